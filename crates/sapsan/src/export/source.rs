//! What an export reads documents from.

use binjson::StoredDocument;

/// Called with each document. An error ends the export.
pub(crate) type Visit<'v> = dyn FnMut(StoredDocument<'_>) -> Result<(), Stopped> + 'v;

/// A data folder or a running server, as the export reads it.
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
    /// The fields that its schema declares, in the schema's order. `None`: the source does not know the schema.
    pub(crate) fields: Option<Vec<String>>,
    /// Those of them whose values may be text as well as arrays or objects: an import of a table reads a quoted cell as text.
    pub(crate) may_be_text: Vec<String>,
}

/// Why an export ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The source failed, or a document cannot be written: what is wrong, and what to do.
    Failed(String),
    /// The destination cannot be written.
    Unwritten(std::io::Error),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Stopped {
        Stopped::Unwritten(error)
    }
}
