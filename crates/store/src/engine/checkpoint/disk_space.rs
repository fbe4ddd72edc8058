//! Disk space: a transaction is accepted only if the checkpoints of everything acknowledged are certain to find their pages.
//!
//! The rule, with `needed` as the bound of both memtables and the transaction ([`Need`](super::need::Need)):
//!
//! 1. If the disk has [`AMPLE_BYTES`] more free space than twice `needed`, the transaction is accepted, and nothing is
//!    reserved: the file stays small.
//! 2. Otherwise the pages must be in the tree file: `needed` free ones, and one stretch of adjacent ones for all values of
//!    several pages. The file grows by zeros as far as pages are missing and the disk has room; only checkpoints may use
//!    them ([`TreeFile::reserve`](crate::tree::TreeFile::reserve)).
//! 3. If they are not there, the disk counts as full: the transaction is refused. [`DELETION_PAGES`] of them are for
//!    transactions that only delete, so that deletions can free a full disk. Writes resume when [`RECOVERY_PAGES`] are free
//!    beyond `needed`.
//!
//! Free space is what the file system says, at most [`TICK`] ago. It is not ample either if the file may not grow by that and by
//! [`AMPLE_GROWTH_BYTES`]: by the process's limit on file sizes, or by the map's length. A quota that the file system does not tell counts only when it refuses: until
//! then rule 1 may promise too much. On a file system that copies on write (btrfs, ZFS), writing a page of the file again
//! needs new space, so there rule 2 promises nothing; a quota or a reservation for the folder does.
//!
//! One thread looks at the disk each [`TICK`], so that no commit waits for that, the health state is right without writes,
//! and pages are reserved as soon as other programs fill the disk. For the same reason it allocates the memory that the
//! memtable grows into.

use std::sync::Arc;

use super::need;
use crate::base::error::StoreError;
use crate::base::fail_stop::lock;
use crate::base::limits::TICK;
use crate::base::monitor::Monitor;
use crate::base::sync::Instant;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::engine::Engine;
use crate::tree::{FreePages, PAGE_BYTES};

/// Free disk space, beyond the need, above which nothing is reserved. Other programs are not expected to fill so much
/// within a [`TICK`].
const AMPLE_BYTES: u64 = 1 << 30;
/// The same for the length that the file may have, which only bulk builds use up meanwhile.
const AMPLE_GROWTH_BYTES: u64 = 128 << 20;
/// Pages reserved beyond the request, if available, so that not every transaction has to grow the file.
pub(crate) const AHEAD_PAGES: u64 = 256;
/// Pages that only deletions may use, so that deletions can free a full disk.
pub(crate) const DELETION_PAGES: u64 = 256;
/// Free pages beyond the need at which refused writes resume, so that the health state does not flap.
const RECOVERY_PAGES: u64 = DELETION_PAGES + 2 * AHEAD_PAGES;
/// Pages beyond the need, in the file and on the disk, with which the disk counts as full before a write is refused: the
/// reserve for deletions, the pages ahead and the checkpoint of one transaction.
const LEAST_PAGES: u64 = DELETION_PAGES + AHEAD_PAGES + 64;
const _: () = assert!(LEAST_PAGES < RECOVERY_PAGES);

/// See the module's text.
#[derive(Default)]
pub(crate) struct DiskSpace {
    /// Pages that may be needed without reserving any: see rule 1.
    ample_pages: AtomicU64,
    /// What checkpoints of both memtables need, and a transaction about to be placed: pages in all, and adjacent ones.
    needed_pages: AtomicU64,
    needed_adjacent: AtomicU64,
    is_full: AtomicBool,
    /// Calls of the thread.
    calls: Monitor<Calls>,
}

#[derive(Default)]
struct Calls {
    is_closing: bool,
    wants_memory: bool,
}

impl DiskSpace {
    /// Whether the free space of the disk is ample for this need.
    #[inline]
    pub(crate) fn is_ample(&self, pages: u64) -> bool {
        pages < self.ample_pages.load(Ordering::Relaxed)
    }

    /// Sets the need of both memtables.
    #[inline]
    pub(crate) fn note(&self, needed: FreePages) {
        self.needed_pages.store(needed.all, Ordering::Release);
        self.needed_adjacent.store(needed.adjacent, Ordering::Release);
    }

    /// The need of both memtables.
    pub(in crate::engine) fn needed(&self) -> FreePages {
        let load = |number: &AtomicU64| number.load(Ordering::Acquire);
        FreePages { all: load(&self.needed_pages), adjacent: load(&self.needed_adjacent) }
    }

    /// Whether writes are refused because the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Records whether the disk is full; each change is a line of the log.
    fn set_full(&self, is_full: bool) {
        match (self.is_full.swap(is_full, Ordering::AcqRel), is_full) {
            (false, true) => {
                tracing::error!("the disk is full: writes are refused until it has room for their checkpoint")
            }
            (true, false) => tracing::info!("the disk has room again: writes are taken"),
            _ => {}
        }
    }

    /// Requests the memory that the active memtable grows into.
    pub(crate) fn request_memory(&self) {
        self.calls.change(|calls| calls.wants_memory = true);
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.calls.change(|calls| calls.is_closing = true);
    }
}

impl Engine {
    /// Main loop of the thread.
    pub(crate) fn run_space_keeper(&self) {
        let mut next_look = Instant::now();
        loop {
            let left = next_look.saturating_duration_since(Instant::now());
            let called = self.disk_space.calls.wait(Some(left), |calls| {
                (calls.is_closing || calls.wants_memory).then(|| {
                    calls.wants_memory = false;
                    calls.is_closing
                })
            });
            match called {
                Some(true) => return,
                Some(false) => self.populate_memtable(),
                None => {
                    // A failed sync has stopped the store.
                    let _ = self.look_at_disk();
                    next_look = Instant::now() + TICK;
                }
            }
        }
    }

    /// Allocates the memory that the active memtable will grow into: see
    /// [`Memtable::populate`](crate::memtable::Memtable).
    fn populate_memtable(&self) {
        let active = Arc::clone(&lock(&self.current).active);
        active.populate();
    }

    /// Looks how much free space the disk has.
    fn growth(&self) -> Growth {
        Growth { disk: self.disk.free_bytes().unwrap_or(None), file: self.tree.growth_bytes_max() }
    }

    /// Looks how much free space the disk has, for transactions.
    pub(crate) fn note_growth(&self) {
        self.disk_space.ample_pages.store(self.growth().ample_pages().unwrap_or(0), Ordering::Relaxed);
    }

    /// Applies the rule to what was acknowledged.
    fn look_at_disk(&self) -> Result<(), StoreError> {
        let space = &self.disk_space;
        self.note_growth();
        let needed_if_scarce = || Some(space.needed()).filter(|needed| !space.is_ample(needed.all));
        if needed_if_scarce().is_none() {
            // Asked again under the lock of the pages: a transaction may have reserved some meanwhile.
            self.tree.reserve(&|| needed_if_scarce().unwrap_or_default(), 0)?;
            space.set_full(false);
            return Ok(());
        }
        if space.is_full() {
            space.set_full(!self.reserve(RECOVERY_PAGES, FreePages { adjacent: 0, ..space.needed() })?);
            return Ok(());
        }
        // Only then the need is that of what was acknowledged: no transaction is being placed, and no merge has taken pages
        // that still count as needed.
        let mut writer = self.try_hold_writer();
        if let Some(writer) = &mut writer {
            self.refresh(writer);
        }
        let is_settled = writer.as_ref().is_some_and(|writer| writer.generation.frozen.is_none());
        let needed = FreePages { adjacent: 0, ..space.needed() };
        let has_needed = needed.all == 0 || self.reserve(0, needed)?;
        let growth = self.growth();
        let growth = growth.disk.map_or(LEAST_PAGES, |bytes| bytes.min(growth.file) / PAGE_BYTES as u64);
        if is_settled && (!has_needed || self.tree.free_pages().all + growth < needed.all + LEAST_PAGES) {
            space.set_full(true);
        }
        Ok(())
    }

    /// Reserves what is needed, and `more` pages; segments kept only for readers of changes are removed before pages are
    /// missing. Whether the pages are there for `least`.
    fn reserve(&self, more: u64, least: FreePages) -> Result<bool, StoreError> {
        let wanted = || {
            let needed = self.disk_space.needed();
            FreePages { all: needed.all + more, ..needed }
        };
        loop {
            let free = self.tree.reserve(&wanted, AHEAD_PAGES as u32)?;
            let is_enough = free.all >= least.all + more && free.adjacent >= least.adjacent;
            if is_enough || !self.log.give_back() {
                return Ok(is_enough);
            }
        }
    }

    /// Whether checkpoints are certain to find their pages if this is `needed` with a transaction about to be placed, and
    /// `more` pages.
    pub(crate) fn has_disk_space(&self, needed: FreePages, more: u64) -> Result<bool, StoreError> {
        let before = self.disk_space.needed();
        // First, so that the thread does not release what is reserved here.
        self.disk_space.note(needed);
        let reserved = if self.disk_space.is_ample(needed.all) { Ok(true) } else { self.reserve(more, needed) };
        // After a failed sync this transaction was refused like the next ones.
        let has_space = reserved.map_err(|error| if self.is_poisoned() { StoreError::Poisoned } else { error })?;
        if !has_space {
            self.disk_space.note(before);
        }
        Ok(has_space)
    }

    /// After a refusal: the disk counts as full, unless only adjacent pages are missing.
    pub(crate) fn note_refusal(&self, needed: FreePages, more: u64) {
        let free = self.tree.free_pages();
        let lacks_adjacent = needed.adjacent.saturating_sub(free.adjacent);
        if free.all + lacks_adjacent < needed.all + more {
            self.disk_space.set_full(true);
        }
    }

    /// Whether the disk has ample space for these pages beside everything acknowledged, or does not tell.
    pub(in crate::engine) fn is_ample_for(&self, pages: u64) -> bool {
        self.growth().ample_pages().is_none_or(|ample| pages + self.disk_space.needed().all < ample)
    }

    /// Whether free space is so scarce that pages freed by a checkpoint should be usable at once.
    pub(super) fn is_disk_space_scarce(&self) -> bool {
        self.disk_space.is_full() || !self.disk_space.is_ample(self.disk_space.needed().all)
    }

    /// Whether an empty checkpoint frees more pages than it takes: those that only the older meta page reaches.
    pub(super) fn is_worth_freeing(&self) -> bool {
        u64::from(self.tree.freed_by_next()) > need::empty_pages(self.tree.live_pages().into())
    }
}

/// Bytes by which the tree file can grow.
struct Growth {
    /// Free space of the disk; `None` if it does not tell.
    disk: Option<u64>,
    /// What the file may grow by.
    file: u64,
}

impl Growth {
    /// Pages that may be needed without reserving any. Twice as much must be free on the disk, because the log takes space too.
    fn ample_pages(&self) -> Option<u64> {
        let disk = self.disk?.saturating_sub(AMPLE_BYTES) / 2;
        Some(disk.min(self.file.saturating_sub(AMPLE_GROWTH_BYTES)) / PAGE_BYTES as u64)
    }
}
