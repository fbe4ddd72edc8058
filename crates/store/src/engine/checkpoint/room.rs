//! Room: disk space for the next checkpoints is reserved before anything is acknowledged.
//!
//! On a full disk the store may refuse writes, but acknowledged changes must reach the tree, and the store must be able
//! to open. So each transaction is placed only if the merge of everything in the memtables is certain to find its
//! pages. Their number is bounded by the keys and bytes of a memtable, see [`Need`].
//!
//! While the disk has far more free space than that ([`AMPLE_BYTES`]), nothing is allocated, and the file stays small.
//! If free space becomes scarce, the pages are written ahead, durably, into the tree file.
//!
//! One thread does this, so that no commit waits for a check of the disk while there is space. For the same reason it
//! allocates the memory that the memtable grows into.
//!
//! - [`Room::covers`] is the check of a commit: a few loads and comparisons.
//! - If it fails, [`Room::ask`] waits for the thread and returns whether the space is granted.
//! - While writes are refused, the thread tries again at each [`TICK`], even without a request. So writes resume by themselves, and
//!   the health state is right even without writes.
//!
//! The grant is lowered before the frozen memtable's need is cleared, and the two are read in the opposite order: a
//! thread that sees the smaller need also sees the smaller grant.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::pieces;
use crate::base::error::StoreError;
use crate::base::fail_stop::lock;
use crate::base::limits::TICK;
use crate::engine::Engine;
use crate::log::{Edit, OPERATION_HEADER_BYTES, Operation};
use crate::tree::{PAGE_BYTES, Runs, VALUE_INLINE_MAX, overflow_pages};

/// Free disk space, beyond the need, above which nothing is reserved. Other programs are not expected to fill so much
/// within a [`TICK`].
const AMPLE_BYTES: u64 = 1 << 30;
/// Pages granted beyond the request, if available, so that not every commit has to ask.
pub(crate) const AHEAD_PAGES: u64 = 256;
/// The same while free space is ample. Then a grant is free of cost, while a request costs the writer two thread
/// switches. A sixteenth of [`AMPLE_BYTES`], a few thousand transactions.
const AHEAD_AMPLE_PAGES: u64 = AMPLE_BYTES / 16 / PAGE_BYTES as u64;
/// Idle ticks after which a grant without reserved pages lapses.
const QUIET_TICKS: u32 = 10;
/// Pages that any checkpoint takes for leaves and branches of catalog and space map, regardless of the file's size.
const FIXED_PAGES: u64 = 32;
/// Pages that a deleted range may rewrite in addition to the leaves at its ends: the branches above both, and
/// neighbours of pages that are too empty. Enough for trees of fewer than twelve levels; a tree of 2^32 pages has five.
const RANGE_PAGES: u64 = 20;
/// Pages of each further piece of a checkpoint for catalog and space map, with the pages on which two pieces meet.
const PIECE_PAGES: u64 = 16;
/// For this many pages of the file a checkpoint may rewrite one page of the space map. (A map page covers 32,576 pages; the bound
/// includes the old page, the new one and a directory.)
const PAGES_PER_MAP_PAGE: u64 = 8192;

/// Pages that only deletions may use, so that deletions can free a full disk.
pub(crate) const DELETION_PAGES: u64 = 256;
/// Free pages beyond the need at which refused writes resume, so that the health state does not flap.
const RECOVERY_PAGES: u64 = DELETION_PAGES + 2 * AHEAD_PAGES;

/// Upper bound of the pages for merging a memtable, in numbers that are cheap to update.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Distinct keys.
    pub(crate) keys: u64,
    /// Bytes of keys and values, with a header for each.
    pub(crate) bytes: u64,
    /// Number of deleted ranges.
    pub(crate) ranges: u64,
    /// Part of `bytes` in values with overflow pages.
    pub(crate) apart_bytes: u64,
    /// Number of values with one overflow page.
    pub(crate) singles: u64,
    /// Overflow pages of values that need several adjacent ones.
    pub(crate) runs: Runs,
}

impl Need {
    /// Adds one operation, which may or may not be of a new key.
    pub(crate) fn add(&mut self, operation: &Operation<'_>) {
        let value_len = operation.edit.bytes().len();
        self.bytes += (OPERATION_HEADER_BYTES + operation.key.len() + value_len) as u64;
        match operation.edit {
            Edit::Put(_) if value_len > VALUE_INLINE_MAX => {
                self.apart_bytes += value_len as u64;
                match overflow_pages(value_len) {
                    1 => self.singles += 1,
                    pages => self.runs = self.runs.and(Runs { pages, longest: pages }),
                }
            }
            Edit::Put(_) | Edit::Delete => {}
            Edit::DeleteRange { .. } => self.ranges += 1,
        }
    }

    /// Maximum number of pages, if the trees have `live` pages before.
    ///
    /// Each key touches one leaf, and no more leaves can be touched than exist. Apart from added bytes, a touched leaf becomes
    /// at most two leaves, or three together with an untouched neighbour; the more leaves are touched, the fewer are untouched.
    /// A leaf is at least half full unless it was cut because of a neighbour that does not fit. Branches have at least three
    /// children, so there are at most half as many as leaves. Each piece of the merge rewrites catalog and space map.
    pub(crate) fn pages(&self, live: u64) -> u64 {
        if self.keys == 0 {
            return 0;
        }
        let touched = (3 * self.keys).min(self.keys.min(live) + live);
        let leaves = touched + 2 * (self.bytes - self.apart_bytes) / PAGE_BYTES as u64 + 2;
        let pieces = pieces::count_most(self.keys, self.bytes);
        let fixed = FIXED_PAGES + (pieces - 1) * PIECE_PAGES + pieces * (live / PAGES_PER_MAP_PAGE);
        leaves + leaves / 2 + self.singles + u64::from(self.runs.pages) + RANGE_PAGES * self.ranges + fixed
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Room {
    /// Pages that the merges of both memtables are certain to find.
    granted: AtomicU64,
    /// The part of them for values of several pages.
    granted_runs: AtomicRuns,
    /// Pages that the frozen and the active memtable need.
    frozen: AtomicU64,
    active: AtomicU64,
    /// The part of the need in runs of adjacent pages.
    frozen_runs: AtomicRuns,
    active_runs: AtomicRuns,
    is_refusing: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// [`Runs`] that are read and written atomically.
#[derive(Default)]
struct AtomicRuns(AtomicU64);

impl AtomicRuns {
    #[inline]
    fn load(&self) -> Runs {
        let both = self.0.load(Ordering::Acquire);
        Runs { pages: (both >> 32) as u32, longest: both as u32 }
    }

    #[inline]
    fn store(&self, runs: Runs) {
        self.0.store(u64::from(runs.pages) << 32 | u64::from(runs.longest), Ordering::Release);
    }
}

#[derive(Default)]
struct State {
    /// The pending request: pages in all, and in runs.
    asked: Option<(u64, Runs)>,
    /// The error of the last request.
    failure: Option<StoreError>,
    /// A request that failed only for want of runs: other writes are accepted.
    failed_runs: Option<Runs>,
    /// The granted pages are in the file, not only free on the disk.
    is_taken: bool,
}

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock, and a panic would leave the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a checkpoint of the active memtable is certain to find this many pages.
    #[inline]
    pub(crate) fn covers(&self, active_pages: u64, active_runs: Runs) -> bool {
        active_pages + self.frozen.load(Ordering::Acquire) <= self.granted.load(Ordering::Acquire)
            && (active_runs.pages == 0 || self.granted_runs.load().covers(active_runs.and(self.frozen_runs.load())))
    }

    /// Under the state's lock.
    fn grant(&self, pages: u64, runs: Runs) {
        self.granted.store(pages, Ordering::Release);
        self.granted_runs.store(runs);
    }

    /// Sets the need of the active memtable.
    #[inline]
    pub(crate) fn note(&self, pages: u64, runs: Runs) {
        self.active.store(pages, Ordering::Relaxed);
        self.active_runs.store(runs);
    }

    /// Moves the need to the frozen memtable; the new active one is empty.
    pub(crate) fn rotated(&self, frozen_pages: u64, frozen_runs: Runs) {
        self.frozen.store(frozen_pages, Ordering::Release);
        self.frozen_runs.store(frozen_runs);
        self.note(0, Runs::default());
    }

    /// The need of the frozen memtable.
    pub(crate) fn frozen_pages(&self) -> u64 {
        self.frozen.load(Ordering::Acquire)
    }

    /// Pages that checkpoints of both memtables need.
    pub(in crate::engine) fn needed_pages(&self) -> u64 {
        self.needed().0
    }

    fn needed(&self) -> (u64, Runs) {
        let pages = self.frozen.load(Ordering::Acquire) + self.active.load(Ordering::Acquire);
        (pages, self.frozen_runs.load().and(self.active_runs.load()))
    }

    /// Waits until the thread grants this need of the active memtable, or fails. After a failure returns without waiting.
    pub(crate) fn ask(&self, active_pages: u64, active_runs: Runs, engine: &Engine) -> Result<(), StoreError> {
        let mut state = self.state();
        loop {
            if self.covers(active_pages, active_runs) {
                return Ok(());
            }
            let runs = active_runs.and(self.frozen_runs.load());
            let total = active_pages + self.frozen.load(Ordering::Acquire);
            if let Some(failure) = &state.failure {
                return Err(failure.copy());
            }
            if state.failed_runs.is_some_and(|failed| runs.covers(failed)) {
                return Err(StoreError::Full);
            }
            engine.check_writable()?;
            if state.asked.replace((total, runs)).is_none() {
                self.changed.notify_all();
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether writes are refused because the disk is full.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        let _state = self.state();
        self.changed.notify_all();
    }
}

impl Engine {
    /// Main loop of the room thread.
    pub(crate) fn run_room(&self) {
        let room = &self.room;
        let mut quiet = 0;
        if self.is_short_at_start() {
            log_change(Some(&StoreError::Full));
            room.is_refusing.store(true, Ordering::Release);
        }
        let mut state = room.state();
        while !self.is_closing.load(Ordering::Acquire) {
            drop(state);
            self.populate_memtable();
            state = room.state();
            let (needed, needed_runs) = room.needed();
            let asked = state.asked.take();
            if asked.is_some() || needed > 0 || room.is_refusing() {
                quiet = 0;
                let (pages, runs) = asked.unwrap_or((needed, needed_runs));
                drop(state);
                // While writes are refused, they resume only if there is room for many of them.
                let probe = if room.is_refusing() { RECOVERY_PAGES } else { 0 };
                let provided = self.provide(pages.max(needed + probe), runs);
                let (outcome, failed_runs) = match provided {
                    Ok(true) => (Ok(()), None),
                    Ok(false) => (Ok(()), Some(runs)),
                    Err(error) => (Err(error), None),
                };
                state = room.state();
                state.failed_runs = failed_runs;
                // `failure` is not compared, since each checkpoint clears it: on a full disk the same message would be
                // repeated.
                if outcome.is_err() != room.is_refusing() {
                    log_change(outcome.as_ref().err());
                }
                state.failure = outcome.err();
                room.is_refusing.store(state.failure.is_some(), Ordering::Release);
                room.changed.notify_all();
            } else {
                quiet += 1;
                if quiet == QUIET_TICKS && !state.is_taken {
                    room.grant(0, Runs::default());
                }
            }
            if state.asked.is_none() {
                let is_idle = quiet >= QUIET_TICKS;
                state = if is_idle {
                    room.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                } else {
                    room.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
                };
            }
        }
    }

    /// Whether the first small transaction would find no room, so that the health state is right before it. Estimated from
    /// the pages that are free or soon will be: reserving them would grow the file at each start.
    fn is_short_at_start(&self) -> bool {
        let Ok(Some(free_bytes)) = self.disk.free_bytes() else { return false };
        let space = self.tree.space_stat();
        let one = Need { keys: 1, bytes: PAGE_BYTES as u64, ..Need::default() }.pages(self.tree.live_pages().into());
        let wanted = self.room.needed_pages() + one + DELETION_PAGES + AHEAD_PAGES;
        wanted > space.free + space.waiting + free_bytes / PAGE_BYTES as u64
    }

    /// Allocates the memory that the active memtable will grow into: see
    /// [`Memtable::populate`](crate::memtable::Memtable).
    fn populate_memtable(&self) {
        let active = Arc::clone(&lock(&self.current).active);
        active.populate();
    }

    /// Grants `pages` in all: from free disk space if that is ample, else from pages reserved in the file. False if the
    /// pages exist, but not all of `runs`.
    fn provide(&self, pages: u64, runs: Runs) -> Result<bool, StoreError> {
        let free_bytes = self.disk.free_bytes().unwrap_or(None).unwrap_or(0);
        let wanted = pages + AHEAD_AMPLE_PAGES;
        if is_ample(free_bytes, pages) {
            let mut state = self.room.state();
            state.is_taken = false;
            self.tree.promise(0, Runs::default(), false)?;
            let granted = self.room.granted.load(Ordering::Relaxed).max(wanted);
            self.room.grant(granted, Runs { pages: in_pages(granted), longest: u32::MAX });
            return Ok(true);
        }
        let wanted = in_pages(pages + AHEAD_PAGES);
        let grow = || self.tree.promise(wanted, runs, true);
        let mut grown = grow();
        // First segments kept only for readers of changes are removed, one at a time; then the pages of the older meta page
        // are freed.
        while let Ok(all) = &grown
            && (all.pages < wanted || all.runs < runs.pages)
            && (self.log.give_back() || self.free_waiting(all.pages)?)
        {
            grown = grow();
        }
        // Once more under the lock: a checkpoint may have ended since.
        let mut state = self.room.state();
        let promised = self.tree.promise(wanted, runs, false)?;
        state.is_taken = true;
        let granted_runs = Runs { pages: promised.runs, ..runs };
        self.room.grant(u64::from(promised.pages.min(wanted)), granted_runs);
        grown?;
        let lacking_runs = u64::from(runs.pages - promised.runs);
        match u64::from(promised.pages) + lacking_runs >= pages {
            true => Ok(lacking_runs == 0),
            false => Err(StoreError::Full),
        }
    }

    /// Runs an empty checkpoint if freed pages wait only for the next checkpoint, and if `available` pages are enough
    /// for one beside the current need. False if there is nothing to free.
    fn free_waiting(&self, available: u32) -> Result<bool, StoreError> {
        let cost = FIXED_PAGES + u64::from(self.tree.live_pages()) / PAGES_PER_MAP_PAGE;
        let (needed, _) = self.room.needed();
        // An empty checkpoint frees as many pages as it writes.
        if u64::from(self.tree.freed_by_next()) <= cost || u64::from(available) < needed + cost {
            return Ok(false);
        }
        self.checkpoint_nothing()
    }

    /// After a merged piece: lowers the grant and the need of the frozen memtable by `taken` pages.
    pub(crate) fn room_advanced(&self, taken: u64) {
        let mut state = self.room.state();
        self.lower_grant(&mut state, taken);
        let left = self.room.frozen_pages().saturating_sub(taken);
        self.room.frozen.store(left, Ordering::Release);
    }

    /// After the merge of the frozen memtable: clears its need and lowers the grant to the pages left.
    pub(crate) fn room_merged(&self) {
        let mut state = self.room.state();
        self.lower_grant(&mut state, 0);
        self.room.frozen_runs.store(Runs::default());
        self.room.frozen.store(0, Ordering::Release);
    }

    /// Lowers the grant to the existing pages after some were taken. Clears earlier failures, since a checkpoint
    /// releases pages and log segments.
    fn lower_grant(&self, state: &mut State, taken: u64) {
        (state.failure, state.failed_runs) = (None, None);
        let pages = self.room.granted.load(Ordering::Relaxed).saturating_sub(taken);
        let runs = self.room.granted_runs.load();
        if !state.is_taken {
            self.room.grant(pages, runs);
            return;
        }
        match self.tree.promise(in_pages(pages), runs, false) {
            Ok(promised) => self.room.grant(pages.min(promised.pages.into()), Runs { pages: promised.runs, ..runs }),
            Err(_) => self.room.grant(0, Runs::default()),
        }
    }
}

/// Whether a disk with this much free space has far more than this many pages need.
pub(in crate::engine) fn is_ample(free_bytes: u64, pages: u64) -> bool {
    free_bytes >= AMPLE_BYTES + 2 * (pages + AHEAD_AMPLE_PAGES) * PAGE_BYTES as u64
}

/// A number of pages as the tree file counts them; no file has more.
fn in_pages(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn log_change(failure: Option<&StoreError>) {
    match failure {
        Some(error) => tracing::error!(%error, "writes are refused until the disk has room for their checkpoint"),
        None => tracing::info!("the disk has room again: writes are taken"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_grows_with_keys_up_to_the_trees_and_with_bytes_without_end() {
        let need = |keys, bytes| Need { keys, bytes, ..Need::default() };
        assert_eq!(need(0, 0).pages(1000), 0);
        let few = need(10, 1000).pages(1000);
        assert!((30..120).contains(&few), "{few}");
        assert_eq!(need(20_000, 0).pages(1000), need(90_000, 0).pages(1000));
        assert!(need(10, 10 << 20).pages(1) >= 3 * (10 << 20) / 4096);
        let runs = Runs { pages: 70, longest: 30 };
        assert_eq!(Need { keys: 1, singles: 3, runs, ..Need::default() }.pages(5), need(1, 0).pages(5) + 73);
    }
}
