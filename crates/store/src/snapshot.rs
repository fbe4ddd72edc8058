//! Readers and their snapshots.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::{Engine, Generation, View};
use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId, Version, Visit};
use crate::places::Places;
use crate::readers::{Guard, ReaderSlot};

/// One thread's registration as a reader. Not `Sync`. It keeps the files open: a store can be opened again only after its
/// readers are dropped.
pub struct Reader {
    pub(crate) slot: ReaderSlot<Generation>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) places: Places,
}

/// All data as of one version. Taken without a lock in nanoseconds; pins pages while it lives.
pub struct Snapshot<'r> {
    guard: Guard<'r, Generation>,
    places: &'r Places,
    version: u64,
}

impl Reader {
    /// The newest committed (durable) state.
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        let (guard, version) = self.engine.pin(&self.slot);
        Snapshot { guard, places: &self.places, version }
    }

    /// Notes a key that will be looked up soon. Of many keys a bounded number is noted, and long ones are not.
    #[inline]
    pub fn foresee(&self, tree: TreeId, key: &[u8]) {
        self.places.foresee(tree, key);
    }

    /// Has the noted keys' values fetched from memory, all at once. Changes nothing that a lookup gives.
    #[inline]
    pub fn fetch(&self) {
        let (guard, _) = self.engine.pin(&self.slot);
        self.places.fetch(&guard.tree);
    }
}

impl Snapshot<'_> {
    /// The version this snapshot shows.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View { generation: &self.guard, version: self.version }
    }

    /// The value of a key; borrowed from the map or the arena, owned where it had to be put together.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        self.view().get_by(self.places, tree, key)
    }

    /// Visits entries in key order until the range ends or `visit` breaks. A later scan can go on behind the last key.
    pub fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.view().scan(tree, range, direction, visit)
    }
}
