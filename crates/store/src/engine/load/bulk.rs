//! Bulk builds: a tree is built bottom-up from sorted entries, without the log.

use std::sync::Arc;

use crate::base::error::StoreError;
use crate::engine::Engine;
use crate::tree::{BulkBuilder, BulkCursor, BulkRoot};

/// Builds one tree bottom-up from sorted entries, without the log. [`crate::Store::attach`] makes it visible as a
/// whole. If it is dropped before that, its pages are freed.
pub struct BulkTree {
    pub(crate) builder: BulkBuilder,
    /// Keeps the files open.
    pub(crate) engine: Arc<Engine>,
}

impl BulkTree {
    /// Adds the next entry; keys must rise strictly.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.builder.push(key, value)
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.builder.entries()
    }
}

/// A build that is read back instead of attached, to be merged with entries that arrived later. Dropping it frees its
/// pages.
pub struct BulkEntries {
    root: BulkRoot,
    /// Keeps the files open.
    _engine: Arc<Engine>,
}

impl BulkTree {
    /// Ends the build and makes it readable.
    pub fn into_entries(self) -> Result<BulkEntries, StoreError> {
        let root = self.builder.finish()?;
        Ok(BulkEntries { root, _engine: self.engine })
    }
}

impl BulkEntries {
    /// The entries in key order.
    pub fn read(&self) -> Result<BulkCursor<'_>, StoreError> {
        self.root.read()
    }
}
