//! Forms as arguments of handlers.
//!
//! | subject | file |
//! |---|---|
//! | a form of fields, as a type that serde can deserialize | `form`, `deserializer` |
//! | a form with files, complete | `multipart` |
//! | the handler of such a form, and its limits | `upload` |
//! | receiving the body: parsed on the loop, files written on an executor | `intake`, `spool` |
//!
//! [`http::forms`] parses the formats themselves.

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
