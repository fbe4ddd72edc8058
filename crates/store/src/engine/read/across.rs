//! A snapshot's state, shared with helper threads of the thread that took the snapshot.
//!
//! A snapshot belongs to one thread: its guard counts without atomic instructions, and its cache of key positions
//! serves one thread. The state itself is immutable and `Sync`. Other threads may read it while they borrow the
//! snapshot, which pins the pages for all of them.

use std::borrow::Cow;

use super::entries::VisitEntries;
use super::snapshot::StoreSnapshot;
use super::view::View;
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Visit};

/// A snapshot's state for any number of threads.
#[derive(Clone, Copy)]
pub struct Across<'s> {
    pub(crate) view: View<'s>,
    /// Number of lost pages of the tree file before the first read.
    pub(crate) lost: u64,
}

const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Across<'static>>();
};

impl<'s> Across<'s> {
    /// The value of a key.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'s, [u8]>>, StoreError> {
        let found = self.view.get(tree, key)?;
        self.check()?;
        Ok(found)
    }

    /// See [`StoreSnapshot::scan`].
    pub fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.view.scan(tree, range, direction, visit)?;
        self.check()
    }

    /// See [`StoreSnapshot::scan_leaves`].
    pub fn scan_leaves(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 's>,
    ) -> Result<bool, StoreError> {
        self.view.scan_leaves(None, tree, range, direction, visit)?;
        self.check().map(|()| true)
    }

    /// See [`StoreSnapshot::check`].
    #[inline]
    pub fn check(&self) -> Result<(), StoreError> {
        self.view.generation.check_lost(self.lost)
    }
}

impl StoreSnapshot<'_> {
    /// The same state for other threads. `None` if this snapshot refuses to wait for the disk
    /// ([`crate::Reader::ask_before_waiting`]); an `Across` always waits.
    pub fn across(&self) -> Option<Across<'_>> {
        (!self.is_asking()).then(|| Across { view: self.view(), lost: self.lost })
    }

    /// Keys, in order, that divide a range into about `count` parts of about the same size, estimated from the tree's
    /// upper pages. Changes since the last checkpoint are not counted. A small tree yields fewer keys, or none.
    pub fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let cuts = self.view().generation.tree.cuts(tree, range, count)?;
        self.check().map(|()| cuts)
    }

    /// Estimated number of entries in a range, from one descent to each of its ends. It is exact if both ends are in
    /// one leaf. Changes since the last checkpoint are not counted.
    pub fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<u64, StoreError> {
        let about = self.view().generation.tree.entries_about(tree, range)?;
        self.check().map(|()| about)
    }
}
