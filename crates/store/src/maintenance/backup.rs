//! Backup of an open store: a folder with a complete store, which can be opened, verified and queried directly.
//!
//! It begins with a checkpoint: then the tree alone holds everything acknowledged before the call, and its view is one version. A
//! snapshot would show the same through the memtables, but keep them from being reused during the copy; a view pins only pages.

use std::path::Path;
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::engine::checkpoint::pace;
use crate::engine::lifecycle::folder::{self, FolderLock, PART_NAME, Unfinished};
use crate::log;
use crate::store::Store;
use crate::tree::{Copied, Target, TreeView, Watch, copy};

impl Store {
    /// Copies the open store into a folder that is empty or missing. The copy shows one version, which includes
    /// everything acknowledged before the call. Writers continue. Meanwhile the tree file grows by the pages that
    /// checkpoints replace.
    ///
    /// The folder becomes a store only when this returns, after the copy was read back and verified. A crash before
    /// that leaves no store, and no folder if it was missing; only a hidden one beside it, which the next backup of that name
    /// replaces.
    pub fn backup(&self, to: &Path, watch: &mut Watch<'_>) -> Result<Copied, StoreError> {
        folder::make(to, |disk| self.engine().backup(disk, watch))
    }

    /// The same on any disk.
    pub fn backup_on(&self, to: &dyn Disk, watch: &mut Watch<'_>) -> Result<Copied, StoreError> {
        Ok(self.engine().backup(to, watch)?.0)
    }
}

impl Engine {
    /// Copies everything visible at the call into an empty folder, which becomes a store and stays locked.
    pub(crate) fn backup(
        self: &Arc<Engine>,
        disk: &dyn Disk,
        watch: &mut Watch<'_>,
    ) -> Result<(Copied, FolderLock), StoreError> {
        let unfinished = Unfinished::begin(disk)?;
        self.checkpoint()?;
        let view = {
            // Between two pieces of a checkpoint, possibly a later one, the trees are not a consistent state of the data.
            let _merging = self.hold_merging()?;
            self.tree.view()
        };
        let copied = self.copy_to(disk, &view, log::BEGINNING, watch)?;
        drop(view);
        log::create_least(disk)?;
        Ok((copied, unfinished.finish()?))
    }

    pub(super) fn copy_to(
        self: &Arc<Engine>,
        disk: &dyn Disk,
        view: &TreeView,
        log_start: log::LogPosition,
        watch: &mut Watch<'_>,
    ) -> Result<Copied, StoreError> {
        let pace = || pace::of_bulk_build(Arc::clone(self));
        let map_bytes = self.options.map_bytes;
        copy(view, &Target { disk, name: PART_NAME, log_start, map_bytes, pace: &pace }, watch)
    }
}
