//! Entries of a leaf within a range, passed together.
//!
//! A reader of a leaf's entries requests only what it needs of each, the key or the value, and the values live as long as the view. A
//! merging reader asks where a key of another source belongs among them.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use super::view::TreeView;
use super::walk::{Beginning, Walk};
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Visit};
use crate::tree::format::node::{Node, OverflowRef, Stored};
use crate::tree::format::page::PageNo;
use crate::tree::state::shared::Shared;

/// Consecutive entries of one leaf in a scan's order, numbered from 0; at least one.
#[derive(Clone, Copy)]
pub(crate) struct LeafEntries<'v> {
    shared: &'v Shared,
    place: PageNo,
    leaf: Node<'v>,
    /// The first entry, and the one after the last, in key order.
    first: usize,
    end: usize,
    direction: Direction,
    waiting: WaitLimits,
}

/// What a read may wait for: a page that is not in memory, the checksum of a long value.
#[derive(Clone, Copy)]
pub(crate) struct WaitLimits {
    /// Return [`StoreError::NotInMemory`] for a page that is not in memory. Costs a system call for each page.
    pub(crate) is_asking: bool,
    /// Longest value whose checksum is computed; a longer one that was not read before is [`StoreError::NotInMemory`].
    pub(crate) check_max: usize,
}

impl WaitLimits {
    /// For a read that waits for everything.
    pub(crate) const NONE: WaitLimits = WaitLimits { is_asking: false, check_max: usize::MAX };
}

impl<'v> LeafEntries<'v> {
    /// Number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.first
    }

    /// Index in the leaf of an entry.
    #[inline]
    fn index(&self, number: usize) -> usize {
        match self.direction {
            Direction::Forward => self.first + number,
            // A number past the last gives an index past the leaf, which is refused there.
            Direction::Backward => (self.end - 1).wrapping_sub(number),
        }
    }

    /// The entries from number `from` up to number `to`, which is above.
    #[inline]
    pub(crate) fn part(&self, from: usize, to: usize) -> LeafEntries<'v> {
        let (first, end) = match self.direction {
            Direction::Forward => (self.first + from, self.first + to),
            Direction::Backward => (self.end - to, self.end - from),
        };
        LeafEntries { first, end, ..*self }
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, number: usize) -> Result<&'v [u8], StoreError> {
        match self.leaf.stored(self.index(number)) {
            Ok(Stored::Inline(value)) => Ok(value),
            Ok(Stored::Overflow(place)) => self.overflow(place),
            Err(damage) => Err(self.shared.damage(self.place, damage)),
        }
    }

    #[inline]
    fn value_of(&self, stored: Stored<'v>) -> Result<&'v [u8], StoreError> {
        match stored {
            Stored::Inline(value) => Ok(value),
            Stored::Overflow(place) => self.overflow(place),
        }
    }

    #[inline(never)]
    fn overflow(&self, place: OverflowRef) -> Result<&'v [u8], StoreError> {
        if self.waiting.is_asking && !self.shared.is_overflow_resident(&place) {
            return Err(StoreError::NotInMemory);
        }
        self.shared.overflow_unless_long(place, self.waiting.check_max)
    }

    /// Writes the key of an entry into `key`.
    #[inline]
    pub(crate) fn key_into(&self, number: usize, key: &mut Vec<u8>) -> Result<(), StoreError> {
        key.clear();
        key.extend_from_slice(self.leaf.prefix());
        let built = self.leaf.push_entry(self.index(number), key).map(drop);
        built.map_err(|damage| self.shared.damage(self.place, damage))
    }

    /// Visits the entries from number `from` up to number `to`; `key` is a buffer. The leaf's prefix is copied once.
    pub(crate) fn visit_run(
        &self,
        (from, to): (usize, usize),
        key: &mut Vec<u8>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let prefix = self.leaf.prefix();
        key.clear();
        key.extend_from_slice(prefix);
        for number in from..to {
            key.truncate(prefix.len());
            let stored = self.leaf.push_entry(self.index(number), key);
            let stored = stored.map_err(|damage| self.shared.damage(self.place, damage))?;
            if visit(key, self.value_of(stored)?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Where a key of the range belongs: the number of entries before it, and whether the next one has this key. The first
    /// `passed` entries are known to be before it.
    pub(crate) fn place_of(&self, key: &[u8], passed: usize) -> Result<(usize, bool), StoreError> {
        let damaged = |damage| self.shared.damage(self.place, damage);
        if passed >= self.len() {
            return Ok((self.len(), false));
        }
        // With many changes, the key often belongs right here.
        let order = self.leaf.order_of(self.index(passed), key).map_err(damaged)?;
        match (order, self.direction) {
            (Ordering::Equal, _) => return Ok((passed, true)),
            (Ordering::Greater, Direction::Forward) | (Ordering::Less, Direction::Backward) => {
                return Ok((passed, false));
            }
            _ => {}
        }
        let (rank, found) = self.leaf.rank(key).map_err(damaged)?;
        let before = match self.direction {
            Direction::Forward => rank.saturating_sub(self.first),
            Direction::Backward => self.end.saturating_sub(rank + usize::from(found)),
        };
        Ok((before.clamp(passed, self.len()), found && before < self.len()))
    }
}

/// The leaves of a range, one after another.
pub(crate) struct Leaves<'v, 'r> {
    shared: &'v Shared,
    walk: Walk<'v>,
    range: KeyRange<'r>,
    direction: Direction,
    waiting: WaitLimits,
    /// Where the range was found to begin, in a forward scan.
    pub(crate) beginning: Option<Beginning>,
    stage: Stage,
    /// The entries of the current leaf. They are lent: copies of them for each leaf made a merged scan a quarter slower.
    current: Option<LeafEntries<'v>>,
}

enum Stage {
    /// On the first leaf, whose entries are not passed yet.
    First(Option<Beginning>),
    /// On a leaf whose entries were passed.
    Inside,
    Ended,
}

impl TreeView {
    /// Visits entries in key order until the range ends or `visit` breaks.
    pub fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let (mut leaves, mut key) = (self.leaves(tree, range, direction, WaitLimits::NONE), Vec::new());
        leaves.start(None)?;
        while let Some(leaf) = leaves.next()? {
            if leaf.visit_run((0, leaf.len()), &mut key, visit)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The leaves of a range, before the first.
    #[inline]
    pub(crate) fn leaves<'v, 'r>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'r>,
        direction: Direction,
        waiting: WaitLimits,
    ) -> Leaves<'v, 'r> {
        let walk = Walk::new(self.shared(), self.root(tree), false);
        Leaves {
            shared: self.shared(),
            walk,
            range,
            direction,
            waiting,
            beginning: None,
            stage: Stage::Ended,
            current: None,
        }
    }
}

impl<'v> Leaves<'v, '_> {
    /// Moves to the first leaf. `known` is the beginning of the range, for a forward scan.
    #[inline]
    pub(crate) fn start(&mut self, known: Option<Beginning>) -> Result<(), StoreError> {
        if self.waiting.is_asking {
            self.walk.ask();
        }
        let start = match self.direction {
            Direction::Forward => self.range.from,
            Direction::Backward => self.range.to,
        };
        let is_any = match known {
            Some(known) => self.walk.start_in(known).map(|()| true)?,
            None => self.walk.start(start, self.direction)?,
        };
        self.stage = if is_any { Stage::First(known) } else { Stage::Ended };
        Ok(())
    }

    /// The entries of the next leaf that has any in the range.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&LeafEntries<'v>>, StoreError> {
        loop {
            let (is_first, known) = match std::mem::replace(&mut self.stage, Stage::Inside) {
                Stage::First(known) => (true, known),
                Stage::Inside if self.walk.turn_to_next(self.direction)? => (false, None),
                _ => {
                    self.stage = Stage::Ended;
                    return Ok(None);
                }
            };
            if self.enter(is_first, known)? {
                return Ok(self.current.as_ref());
            }
        }
    }

    /// Finds the entries of the leaf that are in the range; false if there are none.
    #[inline]
    fn enter(&mut self, is_first: bool, known: Option<Beginning>) -> Result<bool, StoreError> {
        let (shared, direction, waiting) = (self.shared, self.direction, self.waiting);
        let Some((place, leaf)) = self.walk.leaf() else { return Ok(false) };
        let rank = |key: &[u8], from: usize, with_equal: bool| {
            let rank = if from == 0 { leaf.rank(key) } else { leaf.rank_from(key, from) };
            let (rank, found) = rank.map_err(|damage| shared.damage(place, damage))?;
            Ok::<usize, StoreError>(rank + usize::from(found && with_equal))
        };
        // The bound at the scan's start applies only to the first leaf.
        let first = match self.range.from {
            _ if let Some(known) = known => known.rank,
            Bound::Included(key) if is_first || direction == Direction::Backward => rank(key, 0, false)?,
            Bound::Excluded(key) if is_first || direction == Direction::Backward => rank(key, 0, true)?,
            _ => 0,
        };
        let end = match self.range.to {
            Bound::Included(key) if is_first || direction == Direction::Forward => rank(key, first, true)?,
            Bound::Excluded(key) if is_first || direction == Direction::Forward => rank(key, first, false)?,
            _ => leaf.count(),
        };
        if is_first && known.is_none() && direction == Direction::Forward && first < leaf.count() {
            self.beginning = Some(Beginning { leaf: place, rank: first });
        }
        let ends = match direction {
            Direction::Forward => end < leaf.count(),
            Direction::Backward => first > 0,
        };
        if ends {
            self.stage = Stage::Ended;
        }
        self.current = Some(LeafEntries { shared, place, leaf, first, end, direction, waiting });
        Ok(first < end)
    }
}
