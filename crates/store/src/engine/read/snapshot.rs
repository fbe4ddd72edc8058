//! Readers and their snapshots.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::direct::{DirectReads, Got};
use super::entries::VisitEntries;
use super::places::Places;
use super::view::{Generation, View};
use crate::base::error::StoreError;
use crate::base::key::{Direction, Entry, KeyRange, TreeId, Version, Visit};
use crate::base::readers::{ReadGuard, ReaderSlot};
use crate::engine::Engine;
use crate::engine::write::gathering::Gathering;
use crate::tree::Lack;

/// The registration of one thread as a reader. Not `Sync`. It keeps the files open, so the store cannot be reopened
/// before all readers are dropped.
pub struct Reader {
    pub(crate) slot: ReaderSlot<Generation>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) places: Places,
    pub(crate) is_asking: Cell<bool>,
    pub(crate) gathering: Gathering,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop_gathering();
    }
}

/// All data as of one version. Taking one needs no lock and a few nanoseconds; it pins pages while it lives.
pub struct StoreSnapshot<'r> {
    guard: ReadGuard<'r, Generation>,
    places: &'r Places,
    version: u64,
    /// Number of lost pages of the tree file before the first read.
    pub(super) lost: u64,
    /// See [`Reader::ask_before_waiting`].
    is_asking: bool,
}

impl Reader {
    /// The same reader without its cache of key positions ([`crate::StoreOptions::places_bytes`]), for data that is rarely read
    /// twice.
    pub fn without_places(self) -> Reader {
        let mut reader = self;
        reader.places = Places::new(0);
        reader
    }

    /// Gathers the transactions that are submitted through this reader from now on ([`crate::Store::submit`]): a sleeping
    /// committer may stay asleep while they wait, so that one group holds those of many events. For an event loop, which must
    /// then call [`Reader::tick_ended`] at the end of each tick.
    pub fn gather_submissions(&self) {
        self.gathering.begin();
    }

    /// Gathers no more, and wakes the committer for what was gathered.
    pub fn stop_gathering(&self) {
        if self.gathering.end() {
            self.engine.queue.wake_idle();
        }
    }

    /// Ends a tick of an event loop: wakes the committer if the tick brought no submission, or if one has waited for long.
    /// `true`: submissions wait for the next tick, before which the loop must not sleep. `now_ns` is the time of a clock that
    /// never goes back.
    #[inline]
    pub fn tick_ended(&self, now_ns: u64) -> bool {
        if self.gathering.tick_ended(now_ns) {
            self.engine.queue.wake_idle();
        }
        self.gathering.is_pending()
    }

    /// Sets whether snapshots of this reader refuse a read with [`StoreError::NotInMemory`] if it would wait for the disk; a scan
    /// may have visited entries before the error. The check costs a system call for each page. By default reads wait.
    #[inline]
    pub fn ask_before_waiting(&self, is_asking: bool) {
        self.is_asking.set(is_asking);
    }

    /// Makes reads of this reader fail with [`StoreError::NotInMemory`] if they would have to compute the checksum of a
    /// value of more bytes than this. For threads that must not be delayed. The checksum is computed when the first
    /// reader reads a value. The default, `usize::MAX`, never fails a read.
    #[inline]
    pub fn check_at_most(&self, bytes: usize) {
        self.places.check_at_most(bytes);
    }

    /// The newest committed state. It is durable with [`crate::Durability::Commit`]; otherwise its newest changes may
    /// not be.
    #[inline]
    pub fn snapshot(&self) -> StoreSnapshot<'_> {
        let (guard, version) = self.engine.pin(&self.slot);
        let lost = guard.lost();
        StoreSnapshot { guard, places: &self.places, version, lost, is_asking: self.is_asking.get() }
    }

    /// Records a key that will be looked up soon. The number of recorded keys is bounded; long keys are ignored.
    #[inline]
    pub fn foresee(&self, tree: TreeId, key: &[u8]) {
        self.places.foresee(tree, key);
    }

    /// The same for a range that will be read forward from this key.
    #[inline]
    pub fn foresee_range(&self, tree: TreeId, from: &[u8]) {
        self.places.foresee_beginning(tree, from);
    }

    /// Prefetches the values of the recorded keys and the first entries of the recorded ranges. Has no effect on results.
    #[inline]
    pub fn fetch(&self) {
        if !self.places.has_foreseen() {
            return;
        }
        let (guard, _) = self.engine.pin(&self.slot);
        self.places.fetch(&guard.tree);
    }
}

impl StoreSnapshot<'_> {
    /// The version this snapshot shows.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View { generation: &self.guard, version: self.version }
    }

    /// The value of a key, borrowed from the mapped tree file or the memtable.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        if self.is_asking && !matches!(self.view().lack(tree, key)?, Lack::Nothing) {
            return Err(StoreError::NotInMemory);
        }
        self.get_by_waiting(tree, key)
    }

    #[inline]
    fn get_by_waiting(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        let found = self.view().get_by(self.places, tree, key)?;
        self.check()?;
        Ok(found)
    }

    /// Like `get`. If this snapshot refuses to wait and the last pages of the lookup are not in memory, `reads` may
    /// accept the lookup and deliver the value later, as of this snapshot.
    #[inline]
    pub fn get_or_begin(&self, reads: &mut DirectReads, tree: TreeId, key: &[u8]) -> Result<Got<'_>, StoreError> {
        if self.is_asking {
            match self.view().lack(tree, key)? {
                Lack::Nothing => {}
                Lack::Branch => return Ok(Got::Elsewhere),
                Lack::LastPages(part) => {
                    return Ok(reads.note(&self.guard.tree, key, part).map_or(Got::Elsewhere, Got::Later));
                }
            }
        }
        match self.get_by_waiting(tree, key) {
            // Its checksum must be computed elsewhere.
            Err(StoreError::NotInMemory) => Ok(Got::Elsewhere),
            found => found.map(Got::Now),
        }
    }

    /// Whether all reads through this snapshot so far returned real data. A failing disk may lose a page between a
    /// `get` and the use of the slice that it returned. A caller that copies such slices, or computes from them, must
    /// call this before it returns the result. Costs one load.
    #[inline]
    pub fn check(&self) -> Result<(), StoreError> {
        self.guard.check_lost(self.lost)
    }

    /// The exact number of keys of a tree. Costs a lookup for each key that was changed since the last checkpoint. If
    /// ranges were deleted since then, every key is visited.
    pub fn count(&self, tree: TreeId) -> Result<u64, StoreError> {
        let count = self.view().count(tree)?;
        self.check()?;
        Ok(count)
    }

    /// Looks up many keys of four bytes in about the time of one lookup, and writes each value to the key's index in
    /// `values`. Returns `false`, without a lookup, if this snapshot refuses to wait ([`Reader::ask_before_waiting`]);
    /// use [`StoreSnapshot::get`] then.
    #[inline]
    pub fn get_all<'s>(
        &'s self,
        tree: TreeId,
        keys: &[[u8; 4]],
        values: &mut [Option<&'s [u8]>],
    ) -> Result<bool, StoreError> {
        if self.is_asking {
            return Ok(false);
        }
        self.view().get_all_by(self.places, tree, keys, values)?;
        self.check().map(|()| true)
    }

    /// Visits entries in key order, one leaf at a time, until the range ends or `visit` breaks. Entries changed since the last
    /// checkpoint are merged into the leaf. Returns `false` without a visit if this snapshot refuses to wait; use
    /// [`StoreSnapshot::scan`] then.
    pub fn scan_leaves<'s>(
        &'s self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 's>,
    ) -> Result<bool, StoreError> {
        if self.is_asking {
            return Ok(false);
        }
        self.view().scan_leaves(Some(self.places), tree, range, direction, visit)?;
        self.check().map(|()| true)
    }

    /// Visits entries in key order until the range ends or `visit` breaks. A later scan can continue after the last key.
    pub fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.view().scan_by(Some(self.places), self.is_asking, tree, range, direction, visit)?;
        self.check()
    }

    /// The first entry of a range.
    pub fn first(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<Entry>, StoreError> {
        self.first_by(tree, range, Direction::Forward)
    }

    /// The last entry of a range.
    pub fn last(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<Entry>, StoreError> {
        self.first_by(tree, range, Direction::Backward)
    }

    fn first_by(&self, tree: TreeId, range: KeyRange<'_>, direction: Direction) -> Result<Option<Entry>, StoreError> {
        let mut found = None;
        self.scan(tree, range, direction, &mut |key, value| {
            found = Some((key.to_vec(), value.to_vec()));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}
