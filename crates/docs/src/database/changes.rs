//! The changes of documents since a version, transaction by transaction: [`engine::ChangeReader`] in terms of collections and
//! keys.
//!
//! - Every transaction that changed a document of a declared collection is returned once, whole, in order; a large one in
//!   parts. Other changes in the
//!   log (index entries, views, the catalog) are skipped.
//! - The log does not contain imported documents: an import is reported as [`DocumentChange::Reset`] of the collection, and so
//!   is the deletion of a range of documents.

use binjson::StoredDocument;

use crate::database::{CollectionId, DocumentDatabase};
use crate::encoding::{Key, KeyType};
use crate::engine::{self, LoggedChange, STAMP_BYTES, TreeId, Version};

/// A change of a document, or of a whole collection.
#[derive(Clone)]
pub enum DocumentChange<'c> {
    /// It was inserted or changed.
    Put {
        /** Its key. */
        key: Key<'c>,
        /** Its new content. */
        document: StoredDocument<'c>,
    },
    /// It was deleted.
    Delete {
        /** Its key. */
        key: Key<'c>,
    },
    /// The collection must be read anew.
    Reset,
}

/// One change of a transaction.
#[derive(Clone)]
pub struct ChangeEvent<'c> {
    /// The transaction's number.
    pub change_number: u64,
    /// The number of this change in the transaction, from 0.
    pub number: u32,
    /// Whether it is the transaction's last.
    pub is_last: bool,
    /// The collection.
    pub collection: CollectionId,
    /// The change.
    pub change: DocumentChange<'c>,
}

/// Reads the changes of documents. It keeps the store's files open.
pub struct Changes {
    reader: engine::ChangeReader,
    /// The number of the next change of a transaction that comes in parts.
    number: u32,
    /// By tree.
    collections: Vec<(TreeId, CollectionId, KeyType)>,
}

impl DocumentDatabase {
    /// All changes of documents after `version`: see [`engine::Store::changes_since`].
    pub fn changes_since(&self, version: u64) -> Result<Changes, engine::StoreError> {
        let reader = self.store().changes_since(Version(version))?;
        let infos = self.catalog().collections.iter().enumerate();
        let mut collections: Vec<_> =
            infos.map(|(place, info)| (info.tree, CollectionId(place), info.key.kind)).collect();
        collections.sort_unstable_by_key(|(tree, ..)| *tree);
        Ok(Changes { reader, number: 0, collections })
    }
}

impl Changes {
    /// See [`engine::ChangeReader::wake_by`].
    pub fn wake_by(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        self.reader.wake_by(wake);
    }

    /// Of a large transaction that was returned in part: its version, and the number of the last change that was returned.
    pub fn within(&self) -> Option<(u64, u32)> {
        self.number.checked_sub(1).map(|number| (self.reader.version().0 + 1, number))
    }

    /// See [`engine::ChangeReader::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        self.reader.memory_bytes()
    }

    /// All changes up to this version have been returned.
    pub fn version(&self) -> u64 {
        self.reader.version().0
    }

    /// Visits the changes of the next transaction, or of the next part of a large one; there may be none. False if there is
    /// no further transaction now.
    pub fn next(&mut self, mut visit: impl FnMut(&ChangeEvent<'_>)) -> Result<bool, engine::StoreError> {
        let Changes { reader, number, collections } = self;
        let Some(changeset) = reader.next()? else { return Ok(false) };
        let (change_number, is_last_part) = (changeset.version().0, changeset.is_last());
        let mut damaged = false;
        let found = changeset.changes().filter_map(|change| {
            let (collection, change) = of_document(collections, &change)?;
            damaged |= change.is_none();
            Some((collection, change?))
        });
        let mut found = found.peekable();
        while let Some((collection, change)) = found.next() {
            // The last part of a large transaction ends with a change of a document.
            let is_last = is_last_part && found.peek().is_none();
            visit(&ChangeEvent { change_number, number: *number, is_last, collection, change });
            *number = number.saturating_add(1).min(u32::MAX - 1);
        }
        drop(found);
        if is_last_part {
            *number = 0;
        }
        if damaged {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, "a document or key is damaged");
            return Err(engine::StoreError::Io { context: format!("change {change_number}"), source: source.into() });
        }
        Ok(true)
    }
}

/// Translates a change of a tree if the tree holds a collection's documents; `Some((_, None))`: the change is damaged.
fn of_document<'c>(
    collections: &[(TreeId, CollectionId, KeyType)],
    change: &LoggedChange<'c>,
) -> Option<(CollectionId, Option<DocumentChange<'c>>)> {
    let (LoggedChange::Put { tree, .. }
    | LoggedChange::Delete { tree, .. }
    | LoggedChange::DeleteRange { tree, .. }
    | LoggedChange::Reset { tree }) = change
    else {
        return None;
    };
    let place = collections.binary_search_by_key(tree, |(tree, ..)| *tree).ok()?;
    let (_, collection, kind) = collections[place];
    let change = match *change {
        LoggedChange::Put { key, value, .. } => {
            let document = value.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
            kind.of_bytes(key).zip(document).map(|(key, document)| DocumentChange::Put { key, document })
        }
        LoggedChange::Delete { key, .. } => kind.of_bytes(key).map(|key| DocumentChange::Delete { key }),
        _ => Some(DocumentChange::Reset),
    };
    Some((collection, change))
}
