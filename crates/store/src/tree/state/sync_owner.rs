//! The owner of all syncs of a tree file: pacing of checkpoints and builds, reserving of pages, meta pages.
//!
//! The kernel reports a failed write-back once for an open file, to whichever sync comes next, and then marks the pages clean
//! (fsync(2), "ERRORS"). So the sync of a build, or of a writer that reserves pages, may get the error of a checkpoint's pages. Therefore
//! any failed sync stops the store, and a checkpoint counts its pages as synced only after all syncs in progress have ended:
//!
//! ```text
//!  a build's sync_range      ────────────── EIO, stop ─┤
//!  a checkpoint's sync_all       ─────── no error ┤ waits ┤ finds the store stopped: no meta page
//! ```
//!
//! A sync that begins after a checkpoint's sync has succeeded cannot get an error of the checkpoint's pages: these were
//! written by then, or their error was reported to another sync before.

use std::io;
use std::sync::Arc;

use crate::base::fail_stop::FailStop;
use crate::base::sync::{PoisonError, RwLock};
use crate::disk::{DiskFile, Map, ReadQueue};

/// See the module's text.
pub(super) struct SyncOwner {
    file: Arc<dyn DiskFile>,
    fail_stop: Arc<FailStop>,
    /// Held for reading by each sync in progress.
    under_way: RwLock<()>,
}

impl SyncOwner {
    pub(super) fn new(file: Arc<dyn DiskFile>, fail_stop: Arc<FailStop>) -> SyncOwner {
        SyncOwner { file, fail_stop, under_way: RwLock::default() }
    }

    pub(super) fn fail_stop(&self) -> &FailStop {
        &self.fail_stop
    }

    /// Runs one sync; an error stops the store before the sync counts as ended.
    fn sync(&self, sync: impl FnOnce(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        let _under_way = self.under_way.read().unwrap_or_else(PoisonError::into_inner);
        let _watch = self.fail_stop.watch("the tree file was synced");
        sync(&*self.file).inspect_err(|error| self.fail_stop.stop("sync of the tree", error))
    }

    /// Syncs, waits for the syncs in progress, and checks whether any has ever failed. For callers that build on the result. (A
    /// sync that reserves pages does not wait: only further writes depend on it, and they are refused once the store has stopped.)
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

    fn allocate(&self, start: u64, len: u64) -> io::Result<()> {
        self.file.allocate(start, len)
    }

    fn len_max(&self) -> u64 {
        self.file.len_max()
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
