//! Forms as arguments of handlers.
//!
//! | subject | file |
//! |---|---|
//! | the fields of a query or a form, as a type that serde can deserialize | `query`, `form`, `deserializer` |
//! | a form with files, complete | `multipart` |
//! | the handler of such a form, and its limits | `upload`, `limits` |
//! | receiving the body: parsed on the loop, files written on an executor | `intake`, `spool` |
//!
//! [`http::forms`] parses the formats themselves. This room imports `routes`, `arguments`, `dispatch` and the rooms below them.

mod deserializer;
mod form;
mod intake;
mod limits;
mod multipart;
mod query;
mod spool;
mod upload;

pub use form::Form;
pub use limits::UploadLimits;
pub use multipart::{Multipart, UploadedFile};
pub use query::Query;
pub use upload::{Upload, upload};
