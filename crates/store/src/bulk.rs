//! Bulk builds: a tree's whole content, bottom-up, apart from the log.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Error;
use crate::tree::BulkBuilder;

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
        self.builder.push(key, value).inspect_err(|_| self.engine.poison_with_tree())
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.builder.entries()
    }
}
