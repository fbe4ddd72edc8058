//! Documents out of a database, as lines of JSON, as arrays, or as a table: for `sapsan export`.
//!
//! - [`Source`]: where documents come from: a data folder at one moment (`folder`), or a running server page by page (`server`).
//! - `text`: lines and arrays; `table`: CSV. `sapsan import` reads each of them.
//! - [`Destination`]: standard output, or a file that has its name only when it is complete.
//!
//! Documents are written while they are read: memory holds a page of them at most, and of a table the names of its columns.

mod destination;
mod folder;
mod server;
mod table;
mod text;

pub(crate) use destination::{Destination, name_is_free};
pub(crate) use folder::FolderSource;
pub(crate) use server::ServerSource;
pub(crate) use table::write_table;
pub(crate) use text::{write_arrays, write_lines};

use binjson::Document;

/// Takes a document; an error ends the export.
pub(crate) type Visit<'v> = dyn FnMut(Document<'_>) -> Result<(), Stopped> + 'v;

/// A place that documents come from.
pub(crate) trait Source {
    /// The collections, in the order of their names.
    fn collections(&self) -> Result<Vec<CollectionOutline>, String>;
    /// Visits the documents of a collection in the order of their keys.
    fn each(&self, collection: &str, visit: &mut Visit<'_>) -> Result<(), Stopped>;
}

/// What is known of a collection before its documents are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectionOutline {
    pub(crate) name: String,
    /// The field with the key.
    pub(crate) key: String,
    /// The fields that its schema names, in its order; `None`: they are not known.
    pub(crate) fields: Option<Vec<String>>,
}

/// Why an export ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The source, or a document, is to blame: what is wrong, and what to do.
    Failed(String),
    /// The destination takes no more.
    Unwritten(std::io::Error),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Stopped {
        Stopped::Unwritten(error)
    }
}
