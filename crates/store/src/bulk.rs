//! Bulk builds: a tree's whole content, bottom-up, apart from the log.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Error;
use crate::tree::{BulkBuilder, BulkCursor, BulkRoot};

/// Builds one tree bottom-up from sorted entries, apart from the log; visible all at once by [`crate::Store::attach`].
/// Dropped before that, its pages are free again.
pub struct BulkTree {
    pub(crate) builder: BulkBuilder,
    /// Keeps the files open.
    pub(crate) engine: Arc<Engine>,
}

impl BulkTree {
    /// Adds the next entry; keys must rise strictly.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.builder.push(key, value)
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.builder.entries()
    }
}

/// A build that is read again instead of being attached: what is to stand between its entries came later. Dropped, its pages
/// are free again.
pub struct BulkEntries {
    root: BulkRoot,
    /// Keeps the files open.
    _engine: Arc<Engine>,
}

impl BulkTree {
    /// Ends the build, to be read.
    pub fn into_entries(self) -> Result<BulkEntries, Error> {
        let root = self.builder.finish()?;
        Ok(BulkEntries { root, _engine: self.engine })
    }
}

impl BulkEntries {
    /// Its entries in order of their keys.
    pub fn read(&self) -> Result<BulkCursor<'_>, Error> {
        self.root.read()
    }
}
