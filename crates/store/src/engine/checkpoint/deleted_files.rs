//! Refusal of writes after a file of the open store was deleted, or cut short.
//!
//! The kernel goes on to read, write and sync a deleted file, and drops it when the store is closed. Behind the end of a file
//! that was cut, it goes on to write. So the store looks whether its files have names and their lengths: before each checkpoint, at each change of the log's segment, and at intervals
//! ([`LOOK_FOR_FILES_EVERY`](crate::base::limits::LOOK_FOR_FILES_EVERY)). From then on writes are refused. Reads go on,
//! and so do checkpoints, which a backup needs: deleted files, and the memtables beside a cut log, still hold everything. What was
//! cut from the tree file is lost: a backup fails if it needs such a page.

use crate::base::error::StoreError;
use crate::base::limits::TREE_NAME;
use crate::base::sync::OnceLock;
use crate::engine::Engine;

/// See the module's text.
#[derive(Default)]
pub(crate) struct DeletedFiles {
    /// The names of those that were found first.
    names: OnceLock<String>,
}

impl DeletedFiles {
    /// The names of deleted and cut files; `None` while there are none.
    #[inline]
    pub(in crate::engine) fn names(&self) -> Option<&str> {
        self.names.get().map(String::as_str)
    }

    /// Returns the error with which writes are refused.
    #[inline]
    pub(in crate::engine) fn check(&self) -> Result<(), StoreError> {
        match self.names() {
            None => Ok(()),
            Some(files) => Err(StoreError::Deleted { files: files.to_string() }),
        }
    }
}

impl Engine {
    /// Looks whether the store's files have names and their lengths. If not, this and all later writes are refused.
    pub(in crate::engine) fn look_for_files(&self) -> Result<(), StoreError> {
        // After a stop there is nothing left to refuse, and compaction has replaced the tree file itself.
        if self.deleted_files.names().is_none() && !self.is_poisoned() {
            let mut names = self.lock.deleted();
            names.extend(self.log.deleted());
            if self.tree.is_cut() {
                names.push(TREE_NAME.to_string());
            }
            if !names.is_empty() && !self.is_poisoned() {
                let files = names.join(", ");
                let error = StoreError::Deleted { files: files.clone() };
                if self.deleted_files.names.set(files).is_ok() {
                    tracing::error!(%error, "writes are refused");
                }
            }
        }
        self.deleted_files.check()
    }
}
