//! Backup of a store at work, and compaction of one that nobody uses.
//!
//! Both begin with a checkpoint: then the tree alone holds everything that was acknowledged before the call, and its view
//! is one version. A snapshot would show the same through the memtables, and keep them from being used again for as long
//! as the copy takes; a view holds nothing but pages.
//!
//! A compaction that would make the tree file no smaller keeps it as it is. Where the log holds changes, that is found out before the
//! checkpoint that would move them into the tree file: they would make it larger.
//!
//! Compaction leaves the log alone: the new file says of itself what the old one did, the same version and the same
//! place where replay starts. So whichever of the two a crash leaves goes on with the same log. Where the disk has no room for
//! the new file, what the log has prepared gives way.

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
    /// Copies all that is visible when it is called into an empty folder, which is a store then.
    pub(crate) fn backup(self: &Arc<Engine>, disk: &dyn Disk, watch: &mut Watch<'_>) -> Result<Copied, Error> {
        let unfinished = Unfinished::begin(disk)?;
        self.checkpoint()?;
        let view = {
            // Between two pieces of a checkpoint, which may be the next one by now, the trees are no state of the data.
            let _merging = self.hold_merging()?;
            self.tree.view()
        };
        let copied = self.copy_to(disk, &view, log::BEGINNING, watch)?;
        drop(view);
        log::create_least(disk)?;
        unfinished.finish()?;
        Ok(copied)
    }

    /// Writes the tree file anew and puts the new one in the place of the old one, if that is larger. The store takes no more
    /// writes: it is to be opened again.
    pub(crate) fn compact(self: &Arc<Engine>, watch: &mut Watch<'_>) -> Result<Compacted, Error> {
        let merging = self.hold_merging()?;
        let bytes_before = self.tree_file_bytes(TREE_NAME)?;
        let done = |copied: Copied, is_replaced| {
            let Copied { entries, bytes: bytes_anew, .. } = copied;
            Compacted { bytes_before, bytes_anew, entries, is_replaced }
        };
        // Without room for it the checkpoint and the copy find out, which make room.
        match self.measure(watch) {
            Ok(Some(measured)) if measured.bytes >= bytes_before => {
                // Its end merges nothing either.
                self.fail_stop.close();
                return Ok(done(measured, false));
            }
            Ok(_) | Err(Error::Full) => {}
            Err(error) => return Err(error),
        }
        drop(merging);
        self.checkpoint()?;
        // No checkpoint from here on: it would write to the old file, and give back the log that the new one needs.
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

    /// What a tree file with all that is visible takes; `None` where the log holds nothing that is not in the tree file.
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
