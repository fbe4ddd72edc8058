//! Forms as arguments of handlers.
//!
//! | subject | file |
//! |---|---|
//! | a form of fields, as a type of serde | `form`, `deserializer` |
//! | a form with files, once it has come | `multipart` |
//! | its handler and its bounds | `upload` |
//! | the way of its body: parsed on the loop, files written on an executor | `intake`, `spool` |
//!
//! The formats themselves are [`http::forms`]'.

mod deserializer;
mod form;
mod intake;
mod multipart;
mod spool;
mod upload;

pub(crate) use deserializer::read;
pub use form::Form;
pub use multipart::{Multipart, UploadedFile};
pub use upload::{Upload, UploadLimits, upload};
