//! Readers and their snapshots.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use crate::direct::{DirectReads, Got};
use crate::engine::Engine;
use crate::engine::view::{Generation, View};
use crate::error::Error;
use crate::key::{Direction, Entry, KeyRange, TreeId, Version, Visit};
use crate::places::Places;
use crate::readers::{Guard, ReaderSlot};
use crate::transaction::first_of;
use crate::tree::{Lack, VisitEntries};

/// One thread's registration as a reader. Not `Sync`. It keeps the files open: a store can be opened again only after its
/// readers are dropped.
pub struct Reader {
    pub(crate) slot: ReaderSlot<Generation>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) places: Places,
    pub(crate) is_asking: Cell<bool>,
}

/// All data as of one version. Taken without a lock in nanoseconds; pins pages while it lives.
pub struct Snapshot<'r> {
    guard: Guard<'r, Generation>,
    places: &'r Places,
    version: u64,
    /// Lost pages of the tree file before anything was read.
    lost: u64,
    /// See [`Reader::ask_before_waiting`].
    is_asking: bool,
}

impl Reader {
    /// The same reader, which does not remember where it found keys ([`crate::Options::places_bytes`]): for one that reads
    /// what is hardly asked for twice.
    pub fn without_places(self) -> Reader {
        Reader { places: Places::new(0), ..self }
    }

    /// From now on snapshots of this reader refuse a read with [`Error::NotInMemory`] where it would wait for the disk,
    /// or no longer; a scan may have shown entries before. Asking costs a system call for each page; without it a read
    /// that has to wait just does.
    #[inline]
    pub fn ask_before_waiting(&self, is_asking: bool) {
        self.is_asking.set(is_asking);
    }

    /// From now on reads by this reader are refused with [`Error::NotInMemory`] too where they would compute the checksum of a
    /// value of over so many bytes, which is done when it is first read: for threads that others wait for. What another
    /// reader has read has its checksum. `usize::MAX`: none is refused, which is what a new reader does.
    #[inline]
    pub fn check_at_most(&self, bytes: usize) {
        self.places.check_at_most(bytes);
    }

    /// The newest committed (durable) state.
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        let (guard, version) = self.engine.pin(&self.slot);
        let lost = guard.tree.lost();
        Snapshot { guard, places: &self.places, version, lost, is_asking: self.is_asking.get() }
    }

    /// Notes a key that will be looked up soon. Of many keys a bounded number is noted, and long ones are not.
    #[inline]
    pub fn foresee(&self, tree: TreeId, key: &[u8]) {
        self.places.foresee(tree, key);
    }

    /// The same of a range that will be read upwards from this key on.
    #[inline]
    pub fn foresee_range(&self, tree: TreeId, from: &[u8]) {
        self.places.foresee_beginning(tree, from);
    }

    /// Has the noted keys' values and the ranges' first entries fetched from memory, all at once. Changes nothing that a lookup gives.
    #[inline]
    pub fn fetch(&self) {
        if !self.places.has_foreseen() {
            return;
        }
        let (guard, _) = self.engine.pin(&self.slot);
        self.places.fetch(&guard.tree);
    }
}

impl Snapshot<'_> {
    /// The version this snapshot shows.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Pages lost before anything was read.
    pub(crate) fn lost_before(&self) -> u64 {
        self.lost
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View { generation: &self.guard, version: self.version }
    }

    /// The value of a key; borrowed from the map or the arena, owned where it had to be put together.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        if self.is_asking && !matches!(self.view().lack(tree, key)?, Lack::Nothing) {
            return Err(Error::NotInMemory);
        }
        self.get_by_waiting(tree, key)
    }

    #[inline]
    fn get_by_waiting(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        let found = self.view().get_by(self.places, tree, key)?;
        self.check()?;
        Ok(found)
    }

    /// The same; where this snapshot asks before it waits and the last pages of the lookup are not in memory, `reads` may
    /// take it on, and tells the value later, as of this snapshot.
    #[inline]
    pub fn get_or_begin(&self, reads: &mut DirectReads, tree: TreeId, key: &[u8]) -> Result<Got<'_>, Error> {
        if self.is_asking {
            match self.view().lack(tree, key)? {
                Lack::Nothing => {}
                Lack::Branch => return Ok(Got::Elsewhere),
                Lack::Part(part) => {
                    return Ok(reads.note(&self.guard.tree, key, part).map_or(Got::Elsewhere, Got::Later));
                }
            }
        }
        match self.get_by_waiting(tree, key) {
            // Its checksum is to be computed elsewhere.
            Err(Error::NotInMemory) => Ok(Got::Elsewhere),
            found => found.map(Got::Now),
        }
    }

    /// Whether all that was read through this snapshot so far was really there. A page may be lost to a failing disk between
    /// a `get` and the use of the slice it gave: who copied such slices, or computed from them, asks this before the result
    /// leaves the house. Costs a load.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        self.guard.tree.check_lost(self.lost)
    }

    /// How many keys a tree has, exactly. Costs a lookup for each key that was changed since the last checkpoint; where ranges were
    /// deleted since then, a visit of each key.
    pub fn count(&self, tree: TreeId) -> Result<u64, Error> {
        let count = self.view().count(tree)?;
        self.check()?;
        Ok(count)
    }

    /// The first of two steps by which many keys are looked up in about the time of one: has fetched from memory where the
    /// key's value lies, if this reader knows it. For all keys, then [`Snapshot::fetch_value`] for all, then `get`.
    #[inline]
    pub fn fetch_place(&self, tree: TreeId, key: &[u8]) {
        self.places.fetch_place(tree, key);
    }

    /// The second step: has the value itself fetched. Nothing waits for it, and nothing is read from the disk.
    #[inline]
    pub fn fetch_value(&self, tree: TreeId, key: &[u8]) {
        self.places.fetch_value(&self.guard.tree, tree, key);
    }

    /// The values of many keys of four bytes, in about the time of one: each is written over the entry of `values` at its
    /// place. `false`: this snapshot asks before it waits ([`Reader::ask_before_waiting`]), which [`Snapshot::get`] does.
    #[inline]
    pub fn get_all<'s>(
        &'s self,
        tree: TreeId,
        keys: &[[u8; 4]],
        values: &mut [Option<&'s [u8]>],
    ) -> Result<bool, Error> {
        if self.is_asking {
            return Ok(false);
        }
        self.view().get_all_by(self.places, tree, keys, values)?;
        self.check().map(|()| true)
    }

    /// Visits entries in key order, a leaf's at a time, until the range ends or `visit` breaks. `false`, and nothing is
    /// visited, where the entries do not lie in the tree as they are (some have changed since the last checkpoint), or where
    /// this snapshot asks before it waits: then [`Snapshot::scan`] gives them.
    pub fn scan_leaves<'s>(
        &'s self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 's>,
    ) -> Result<bool, Error> {
        if self.is_asking || !self.view().scan_leaves(Some(self.places), tree, range, direction, visit)? {
            return Ok(false);
        }
        self.check().map(|()| true)
    }

    /// Visits entries in key order until the range ends or `visit` breaks. A later scan can go on behind the last key.
    pub fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.view().scan_by(Some(self.places), self.is_asking, tree, range, direction, visit)?;
        self.check()
    }

    /// The first entry of a range.
    pub fn first(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<Entry>, Error> {
        first_of(|visit| self.scan(tree, range, Direction::Forward, visit))
    }

    /// The last entry of a range.
    pub fn last(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<Entry>, Error> {
        first_of(|visit| self.scan(tree, range, Direction::Backward, visit))
    }
}
