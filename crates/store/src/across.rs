//! What a snapshot shows, for threads that help the one that took it.
//!
//! A snapshot belongs to its thread: its guard counts without atomic instructions, its memory of places is one reader's own.
//! What it looks at is the same for everybody and does not change, so other threads may look too, as long as the snapshot is
//! borrowed: it holds the pages for all of them.

use std::borrow::Cow;

use crate::engine::view::View;
use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId, Visit};
use crate::snapshot::Snapshot;
use crate::tree::VisitEntries;

/// A snapshot's state for any number of threads.
#[derive(Clone, Copy)]
pub struct Across<'s> {
    pub(crate) view: View<'s>,
    /// Lost pages of the tree file before anything was read.
    pub(crate) lost: u64,
}

const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Across<'static>>();
};

impl<'s> Across<'s> {
    /// The value of a key.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'s, [u8]>>, Error> {
        let found = self.view.get(tree, key)?;
        self.check()?;
        Ok(found)
    }

    /// See [`Snapshot::scan`].
    pub fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.view.scan(tree, range, direction, visit)?;
        self.check()
    }

    /// See [`Snapshot::scan_leaves`].
    pub fn scan_leaves(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 's>,
    ) -> Result<bool, Error> {
        if !self.view.scan_leaves(None, tree, range, direction, visit)? {
            return Ok(false);
        }
        self.check().map(|()| true)
    }

    /// See [`Snapshot::check`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        self.view.generation.tree.check_lost(self.lost)
    }
}

impl Snapshot<'_> {
    /// The same state for other threads. `None`: this snapshot asks before it waits, which these could not.
    pub fn across(&self) -> Option<Across<'_>> {
        (!self.is_asking()).then(|| Across { view: self.view(), lost: self.lost_before() })
    }

    /// Keys in order that cut a range into about `count` parts of about the same size, as the tree's upper pages tell. What has
    /// changed since the last checkpoint does not count; a small tree gives fewer, or none.
    pub fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        let cuts = self.view().generation.tree.cuts(tree, range, count)?;
        self.check().map(|()| cuts)
    }

    /// About how many entries of a tree lie in a range, as a way down to each of its ends tells: exact where both are one
    /// leaf. What has changed since the last checkpoint does not count.
    pub fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<u64, Error> {
        let about = self.view().generation.tree.entries_about(tree, range)?;
        self.check().map(|()| about)
    }
}
