//! Backup of an open store, and compaction of an unused one.
//!
//! Both begin with a checkpoint: then the tree alone holds everything acknowledged before the call, and its view is one version. A
//! snapshot would show the same through the memtables, but keep them from being reused during the copy; a view pins only pages.
//!
//! A compaction that would not shrink the tree file leaves it as it is. If the log holds changes, this is computed
//! before the checkpoint, since the checkpoint would grow the file.
//!
//! Compaction does not touch the log: the new file has the version and log start of the old one, so after a crash
//! either file works with the same log. If the disk has no room for the new file, unused log segments are removed.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::limits::{CATALOG, TREE_NAME};
use super::view::View;
use super::{Engine, catalog, pace};
use crate::backup::Compacted;
use crate::disk::{Access, Disk};
use crate::error::Error;
use crate::folder::{PART_NAME, Unfinished, remove_part};
use crate::key::{Direction, KeyRange, Version, Visit};
use crate::log;
use crate::tree::{Copied, Target, Watch, copy, measure};

impl Engine {
    /// Copies everything visible at the call into an empty folder, which becomes a store.
    pub(crate) fn backup(self: &Arc<Engine>, disk: &dyn Disk, watch: &mut Watch<'_>) -> Result<Copied, Error> {
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
        unfinished.finish()?;
        Ok(copied)
    }

    /// Rewrites the tree file and replaces the old one if the new one is smaller. Afterwards the store takes no writes
    /// and must be reopened.
    pub(crate) fn compact(self: &Arc<Engine>, watch: &mut Watch<'_>) -> Result<Compacted, Error> {
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
            Ok(_) | Err(Error::Full) => {}
            Err(error) => return Err(error),
        }
        drop(merging);
        self.checkpoint()?;
        // No checkpoint from here on: it would write to the old file, and release log segments that the new one needs.
        let _merging = self.hold_merging()?;
        let view = self.tree.view();
        let mut copied = self.copy_to(&*self.disk, &view, view.meta().log_start, watch);
        if matches!(copied, Err(Error::Full)) {
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
            let context = |error| Error::io(format!("rename {PART_NAME}"), error);
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

    fn tree_file_bytes(&self, name: &str) -> Result<u64, Error> {
        let context = |error| Error::io(format!("open {name}"), error);
        self.disk.open(name, false, Access::ReadOnly).and_then(|file| file.len()).map_err(context)
    }

    /// The size of a tree file with all visible data; `None` if the memtables are empty.
    fn measure(self: &Arc<Engine>, watch: &mut Watch<'_>) -> Result<Option<Copied>, Error> {
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

    fn copy_to(
        self: &Arc<Engine>,
        disk: &dyn Disk,
        view: &crate::tree::TreeView,
        log_start: log::LogPosition,
        watch: &mut Watch<'_>,
    ) -> Result<Copied, Error> {
        let pace = || pace::of_bulk_build(Arc::clone(self));
        let map_bytes = self.options.map_bytes;
        copy(view, &Target { disk, name: PART_NAME, log_start, map_bytes, pace: &pace }, watch)
    }
}
