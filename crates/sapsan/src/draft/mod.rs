//! Drafts a service file from a file of documents, for `sapsan init`.
//!
//! - `field` counts the types and values of one field; `distinct` finds out whether its values repeat.
//! - `collection` has the fields of one collection, and chooses its key.
//! - `reading` reads the file into them.
//! - `file` writes the service file, with the evidence beside each guess.
//!
//! Reading is bounded by `DOCUMENTS_MAX` and `BYTES_MAX`, memory by the bounds of fields and of distinct values. If only the
//! beginning of a file was read, rules that the rest may break are written as comments.
//!
//! This room imports no other.

mod collection;
mod distinct;
mod field;
mod file;
mod reading;

pub(crate) use file::Shown;
pub(crate) use reading::Draft;
