//! Room: the space that checkpoints will need is there before anything is acknowledged.
//!
//! A full disk may refuse writes, but it must not keep what was acknowledged from reaching the tree, nor the store from
//! being opened again. So each transaction is placed only when the merge of all that the memtables then hold is certain
//! to find its pages. How many that can be follows from the keys and bytes of a memtable, see [`Need`].
//!
//! While the disk has far more room than that ([`AMPLE_BYTES`]), knowing so is enough, and nothing is taken: the file
//! stays as small as it is. Only when room becomes scarce are the pages written ahead, durably, into the tree file.
//!
//! One thread looks after it, so that no commit ever waits for a look at the disk, as long as there is room (the same thread
//! also takes the memory from the kernel into which the memtable grows, for the same reason):
//!
//! - [`Room::covers`] is what a commit asks: two loads and a comparison.
//! - Where it says no, [`Room::ask`] waits for the thread, and hears whether the disk gave what was wanted.
//! - While writes are refused the thread tries again each [`TICK`], asked or not: so they go on by themselves, and
//!   health is told right, also when nobody writes.
//!
//! What is granted is lowered before the frozen memtable's need is forgotten, and both are read in the other order:
//! who sees the smaller need sees the smaller grant too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::limits::TICK;
use super::{Engine, lock, pieces};
use crate::error::Error;
use crate::log::{Edit, OPERATION_HEADER_BYTES, Operation};
use crate::tree::{PAGE_BYTES, Runs, VALUE_INLINE_MAX, overflow_pages};

/// Room on the disk, over what is needed, above which none is taken in advance: nobody else fills as much within a
/// [`TICK`].
const AMPLE_BYTES: u64 = 1 << 30;
/// Pages granted beyond what was asked for, where there are as many: so that not each commit has to ask.
pub(crate) const AHEAD_PAGES: u64 = 256;
/// The same while room is ample: then a promise costs nothing, and asking costs the writer two thread switches. A sixteenth
/// of [`AMPLE_BYTES`], a few thousand transactions.
const AHEAD_AMPLE_PAGES: u64 = AMPLE_BYTES / 16 / PAGE_BYTES as u64;
/// Quiet ticks after which what is granted without being taken lapses.
const QUIET_TICKS: u32 = 10;
/// What any checkpoint takes for catalog and space map, before the file's size counts: their leaves and branches.
const FIXED_PAGES: u64 = 32;
/// Pages that a deleted range may have rewritten beside its ends' leaves: the branches above both, and their neighbours
/// where they were left too empty. Twelve levels would take more; a tree of 2^32 pages has five.
const RANGE_PAGES: u64 = 20;
/// What each further piece of a checkpoint takes for catalog and space map, with the pages on which two pieces meet.
const PIECE_PAGES: u64 = 16;
/// File pages for each of which the space map may be rewritten by one (it covers 32,576; old and new, and a directory).
const PAGES_PER_MAP_PAGE: u64 = 8192;

/// Pages that only deletions may use, so that a full disk can be freed by them.
pub(crate) const DELETION_PAGES: u64 = 256;
/// What writes that were refused wait for beyond what they need, so that health does not go to and fro.
const RECOVERY_PAGES: u64 = DELETION_PAGES + 2 * AHEAD_PAGES;

/// What merging a memtable takes at most, in numbers that are cheap to keep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Keys that differ.
    pub(crate) keys: u64,
    /// Bytes of keys and values, with a header for each.
    pub(crate) bytes: u64,
    /// Deleted ranges.
    pub(crate) ranges: u64,
    /// Of these, bytes of values that have pages of their own.
    pub(crate) apart_bytes: u64,
    /// Values that have one.
    pub(crate) singles: u64,
    /// Pages of values that have several, which lie in one stretch.
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

    /// Pages at most, where the trees have `live` pages before.
    ///
    /// Each key touches one leaf, and no more leaves can be touched than there are. A touched leaf is split in two at
    /// most, but for the bytes that are added, or in three with an untouched one, of which there are the fewer the more
    /// are touched; and a leaf is at least half full when it was not cut for a neighbour that does not fit. Branches, of
    /// three children at least, are half as many as leaves. Each piece of the merge writes catalog and space map anew.
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
    /// Pages that the merges of both memtables will find for certain.
    granted: AtomicU64,
    /// As many of them are for values of several pages.
    granted_runs: AtomicRuns,
    /// What they need: the frozen memtable, and the active one.
    frozen: AtomicU64,
    active: AtomicU64,
    /// The part of it that lies in stretches.
    frozen_runs: AtomicRuns,
    active_runs: AtomicRuns,
    is_refusing: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// [`Runs`] that are read and written as one.
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
    /// Pages in all, and in runs, that somebody waits for.
    asked: Option<(u64, Runs)>,
    /// Why the last one failed.
    failure: Option<Error>,
    /// What failed for want of stretches alone: other writes are taken.
    failed_runs: Option<Runs>,
    /// What is granted is in the file, not only on the disk.
    is_taken: bool,
}

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under it; were it so, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a checkpoint of the active memtable is certain to find so many pages.
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

    /// What the active memtable needs now.
    #[inline]
    pub(crate) fn note(&self, pages: u64, runs: Runs) {
        self.active.store(pages, Ordering::Relaxed);
        self.active_runs.store(runs);
    }

    /// The active memtable was frozen; the next one is empty.
    pub(crate) fn rotated(&self, frozen_pages: u64, frozen_runs: Runs) {
        self.frozen.store(frozen_pages, Ordering::Release);
        self.frozen_runs.store(frozen_runs);
        self.note(0, Runs::default());
    }

    /// What the frozen memtable needs.
    pub(crate) fn frozen_pages(&self) -> u64 {
        self.frozen.load(Ordering::Acquire)
    }

    /// Pages that checkpoints of what the memtables hold need.
    pub(super) fn needed_pages(&self) -> u64 {
        self.needed().0
    }

    fn needed(&self) -> (u64, Runs) {
        let pages = self.frozen.load(Ordering::Acquire) + self.active.load(Ordering::Acquire);
        (pages, self.frozen_runs.load().and(self.active_runs.load()))
    }

    /// Waits for the thread to grant the active memtable so many pages, or to fail. While it fails nobody waits.
    pub(crate) fn ask(&self, active_pages: u64, active_runs: Runs, engine: &Engine) -> Result<(), Error> {
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
                return Err(Error::Full);
            }
            engine.check_writable()?;
            if state.asked.replace((total, runs)).is_none() {
                self.changed.notify_all();
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether writes are refused for want of room.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        let _state = self.state();
        self.changed.notify_all();
    }
}

impl Engine {
    /// Life of the thread that looks after room.
    pub(crate) fn run_room(&self) {
        let room = &self.room;
        let mut quiet = 0;
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
                // Where it failed: whether writes would find room for a while.
                let probe = if room.is_refusing() { RECOVERY_PAGES } else { 0 };
                let provided = self.provide(pages.max(needed + probe), runs);
                let (outcome, failed_runs) = match provided {
                    Ok(true) => (Ok(()), None),
                    Ok(false) => (Ok(()), Some(runs)),
                    Err(error) => (Err(error), None),
                };
                state = room.state();
                state.failed_runs = failed_runs;
                // Not by `failure`, which each checkpoint clears: on a full disk that would tell the same again and again.
                if outcome.is_err() != room.is_refusing() {
                    tell(outcome.as_ref().err());
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

    /// Takes the memory that the active memtable will grow into: see [`Memtable::populate`](crate::memtable::Memtable).
    fn populate_memtable(&self) {
        let active = Arc::clone(&lock(&self.current).active);
        active.populate();
    }

    /// Grants `pages` in all, from what the disk has if that is ample, else from pages in the file. False where they are there,
    /// and not all of `runs`.
    fn provide(&self, pages: u64, runs: Runs) -> Result<bool, Error> {
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
        // What is only kept for readers of changes gives way first, a segment at a time; then what the older meta page reaches.
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
            false => Err(Error::Full),
        }
    }

    /// Where pages wait for nothing but the next checkpoint, and `available` are enough for one beside what is needed already:
    /// an empty one. False where there is nothing to do.
    fn free_waiting(&self, available: u32) -> Result<bool, Error> {
        let cost = FIXED_PAGES + u64::from(self.tree.live_pages()) / PAGES_PER_MAP_PAGE;
        let (needed, _) = self.room.needed();
        // What one writes anew, it frees as well.
        if u64::from(self.tree.freed_by_next()) <= cost || u64::from(available) < needed + cost {
            return Ok(false);
        }
        self.checkpoint_nothing()
    }

    /// A piece of the frozen memtable is merged: so many pages less may it need, and so many are gone.
    pub(crate) fn room_advanced(&self, taken: u64) {
        let mut state = self.room.state();
        self.lower_grant(&mut state, taken);
        let left = self.room.frozen_pages().saturating_sub(taken);
        self.room.frozen.store(left, Ordering::Release);
    }

    /// The frozen memtable is merged: its need is gone, and so are the pages that it took.
    pub(crate) fn room_merged(&self) {
        let mut state = self.room.state();
        self.lower_grant(&mut state, 0);
        self.room.frozen_runs.store(Runs::default());
        self.room.frozen.store(0, Ordering::Release);
    }

    /// Grants no more than there is, after pages were taken. Whatever was refused before: a checkpoint gives pages and log
    /// segments back.
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

/// Whether a disk with so many bytes free has far more room than so many pages.
pub(super) fn is_ample(free_bytes: u64, pages: u64) -> bool {
    free_bytes >= AMPLE_BYTES + 2 * (pages + AHEAD_AMPLE_PAGES) * PAGE_BYTES as u64
}

/// A number of pages as the tree file counts them; no file has more.
fn in_pages(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn tell(failure: Option<&Error>) {
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
