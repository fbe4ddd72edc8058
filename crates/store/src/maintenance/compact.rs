//! Compaction of a store that is not in use: the tree file is written anew without free space.
//!
//! It begins with a checkpoint, as a backup does. A compaction that would not shrink the tree file leaves it as it is. If
//! the log holds changes, this is computed before the checkpoint, since the checkpoint would grow the file.
//!
//! Compaction does not touch the log: the new file has the version and log start of the old one, so after a crash
//! either file works with the same log. If the disk has no room for the new file, unused log segments are removed.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, Version, Visit};
use crate::base::limits::{CATALOG, TREE_NAME};
use crate::disk::{Access, Disk};
use crate::engine::Engine;
use crate::engine::checkpoint::pace;
use crate::engine::lifecycle::at_rest::refuse_unless_store;
use crate::engine::lifecycle::folder::{PART_NAME, open_disk, remove_part};
use crate::engine::options::StoreOptions;
use crate::engine::read::catalog;
use crate::engine::read::view::View;
use crate::store::Store;
use crate::tree::{Copied, Target, Watch, measure};

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes of the tree file before.
    pub bytes_before: u64,
    /// Bytes of the new one.
    pub bytes_anew: u64,
    /// Entries of all trees.
    pub entries: u64,
    /// Whether the new file has replaced the old one. It does so only if it is smaller.
    pub is_replaced: bool,
}

impl Store {
    /// Rewrites the tree file of a closed store as compactly as possible and replaces the old file. If the new file
    /// would be no smaller, the old one stays. Needs as much free disk space as the live data takes. A crash at any
    /// moment leaves the old file or the new one.
    pub fn compact(dir: &Path, options: StoreOptions, watch: &mut Watch<'_>) -> Result<Compacted, StoreError> {
        refuse_unless_store(dir)?;
        Store::compact_on(Arc::new(open_disk(dir)?), options, watch)
    }

    /// The same on any disk.
    pub fn compact_on(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        watch: &mut Watch<'_>,
    ) -> Result<Compacted, StoreError> {
        let (store, _) = Store::open_on(disk, options)?;
        // The tree file is replaced while the engine has it open, so from here on the engine accepts no writes and
        // writes no checkpoint.
        store.engine().compact(watch)
    }
}

impl Engine {
    /// Rewrites the tree file and replaces the old one if the new one is smaller. Afterwards the store takes no writes
    /// and must be reopened.
    pub(crate) fn compact(self: &Arc<Engine>, watch: &mut Watch<'_>) -> Result<Compacted, StoreError> {
        let merging = self.hold_merging()?;
        let bytes_before = self.tree_file_bytes(TREE_NAME)?;
        let done = |copied: Copied, is_replaced| {
            let Copied { entries, bytes: bytes_anew, .. } = copied;
            Compacted { bytes_before, bytes_anew, entries, is_replaced }
        };
        // If the disk is full, continue: the checkpoint and the copy make room.
        match self.measure(watch) {
            Ok(Some(measured)) if measured.bytes >= bytes_before => {
                // Closing then writes no checkpoint either.
                self.fail_stop.close();
                return Ok(done(measured, false));
            }
            Ok(_) | Err(StoreError::Full) => {}
            Err(error) => return Err(error),
        }
        drop(merging);
        self.checkpoint()?;
        // No checkpoint from here on: it would write to the old file, and release log segments that the new one needs.
        let _merging = self.hold_merging()?;
        let view = self.tree.view();
        let mut copied = self.copy_to(&*self.disk, &view, view.meta().log_start, watch);
        if matches!(copied, Err(StoreError::Full)) {
            self.fail_stop.close();
            self.log.give_all_back();
            copied =
                remove_part(&*self.disk).and_then(|()| self.copy_to(&*self.disk, &view, view.meta().log_start, watch));
        }
        let result = copied.and_then(|copied| {
            if copied.bytes >= self.tree_file_bytes(TREE_NAME)? {
                remove_part(&*self.disk)?;
                return Ok(done(copied, false));
            }
            self.fail_stop.close();
            let context = |error| StoreError::io(format!("rename {PART_NAME}"), error);
            self.disk.sync_dir().map_err(context)?;
            self.disk.rename(PART_NAME, TREE_NAME).map_err(context)?;
            self.disk.sync_dir().map_err(context)?;
            Ok(done(copied, true))
        });
        if result.is_err()
            && let Err(error) = remove_part(&*self.disk)
        {
            tracing::warn!(%error, "cannot remove what an unfinished compaction has written");
        }
        result
    }

    fn tree_file_bytes(&self, name: &str) -> Result<u64, StoreError> {
        let context = |error| StoreError::io(format!("open {name}"), error);
        self.disk.open(name, false, Access::ReadOnly).and_then(|file| file.len()).map_err(context)
    }

    /// The size of a tree file with all visible data; `None` if the memtables are empty.
    fn measure(self: &Arc<Engine>, watch: &mut Watch<'_>) -> Result<Option<Copied>, StoreError> {
        let lent = self.take_slot();
        let (guard, version) = self.pin(lent.slot());
        if guard.tables().all(|table| table.is_empty()) {
            return Ok(None);
        }
        let view = View { generation: &guard, version };
        let mut trees = vec![(CATALOG, None)];
        view.scan(CATALOG, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            trees.extend(catalog::row(key, Some(value)).map(|(name, tree)| (tree, Some(name.to_string()))));
            ControlFlow::Continue(())
        })?;
        trees.sort_unstable();
        let pace = || pace::of_bulk_build(Arc::clone(self));
        let (map_bytes, log_start) = (self.options.map_bytes, self.tree.view().meta().log_start);
        let target = Target { disk: &*self.disk, name: PART_NAME, log_start, map_bytes, pace: &pace };
        let scan = &mut |tree, visit: &mut Visit<'_>| view.scan(tree, KeyRange::ALL, Direction::Forward, visit);
        let measured = measure((&trees, scan), Version(version), &target, watch);
        remove_part(&*self.disk)?;
        measured.map(Some)
    }
}
