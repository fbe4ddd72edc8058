//! The one through whom all syncs of a tree file go: pacing of checkpoints and builds, room that is made, meta pages.
//!
//! The kernel reports a failed write-back once for an open file, to whichever sync comes next, and takes the pages for clean
//! (fsync(2), "ERRORS"): the sync of a build, or of the thread that makes room, may be told of pages that a checkpoint has
//! written. So whatever sync is told of an error stops the store, and a checkpoint takes nothing for synced before all syncs
//! that were under way have said how they ended:
//!
//! ```text
//!  a build's sync_range      ────────────── EIO, stop ─┤
//!  a checkpoint's sync_all       ─────── all well ┤ waits ┤ finds it stopped: no meta page
//! ```
//!
//! A sync that begins after a checkpoint's has ended well cannot take an error of the checkpoint's pages: those were written
//! by then, or their error was told to somebody before.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use crate::disk::{DiskFile, Map, ReadQueue};
use crate::fail_stop::FailStop;

/// See the module's text.
pub(super) struct SyncOwner {
    file: Arc<dyn DiskFile>,
    fail_stop: Arc<FailStop>,
    /// Read by each sync while it is under way.
    under_way: RwLock<()>,
}

impl SyncOwner {
    pub(super) fn new(file: Arc<dyn DiskFile>, fail_stop: Arc<FailStop>) -> SyncOwner {
        SyncOwner { file, fail_stop, under_way: RwLock::default() }
    }

    pub(super) fn fail_stop(&self) -> &FailStop {
        &self.fail_stop
    }

    /// One sync; an error stops before anybody can take it for ended.
    fn sync(&self, sync: impl FnOnce(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        let _under_way = self.under_way.read().unwrap_or_else(PoisonError::into_inner);
        let _watch = self.fail_stop.watch("the tree file was synced");
        sync(&*self.file).inspect_err(|error| self.fail_stop.stop("sync of the tree", error))
    }

    /// Syncs, waits for the syncs that are under way, and asks whether any has ever failed: for what builds on it. (Who makes
    /// room does not wait: it builds nothing on it but more writes, which are refused once the store has stopped.)
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.sync_data()?;
        drop(self.under_way.write().unwrap_or_else(PoisonError::into_inner));
        match self.fail_stop.is_stopped() {
            true => Err(io::Error::other("an earlier sync failed, or a thread of the store panicked")),
            false => Ok(()),
        }
    }
}

impl DiskFile for SyncOwner {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(|file| file.sync_data())
    }

    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        self.sync(|file| file.sync_range(start, len))
    }

    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }

    fn read_queue(&self, places: usize, place_bytes: usize) -> io::Result<Box<dyn ReadQueue>> {
        self.file.read_queue(places, place_bytes)
    }
}
