//! Backup of a store at work, and compaction of one that nobody uses.
//!
//! Both begin with a checkpoint: then the tree alone holds everything that was acknowledged before the call, and its view
//! is one version. A snapshot would show the same through the memtables, and keep them from being used again for as long
//! as the copy takes; a view holds nothing but pages.
//!
//! Compaction leaves the log alone: the new file says of itself what the old one did, the same version and the same
//! place where replay starts. So whichever of the two a crash leaves goes on with the same log. Where the disk has no room for
//! the new file, what the log has prepared gives way.

use std::sync::Arc;

use super::limits::TREE_NAME;
use super::{Engine, pace};
use crate::disk::Disk;
use crate::error::Error;
use crate::folder::{PART_NAME, Unfinished, remove_part};
use crate::log;
use crate::tree::{Copied, Target, Watch, copy};

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

    /// Writes the tree file anew and puts the new one in the place of the old one. The store takes no more writes: it is
    /// to be opened again.
    pub(crate) fn compact(self: &Arc<Engine>, watch: &mut Watch<'_>) -> Result<Copied, Error> {
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
            self.fail_stop.close();
            let context = |error| Error::io(format!("rename {PART_NAME}"), error);
            self.disk.sync_dir().map_err(context)?;
            self.disk.rename(PART_NAME, TREE_NAME).map_err(context)?;
            self.disk.sync_dir().map_err(context)?;
            Ok(copied)
        });
        if result.is_err()
            && let Err(error) = remove_part(&*self.disk)
        {
            tracing::warn!(%error, "cannot remove what an unfinished compaction has written");
        }
        result
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
