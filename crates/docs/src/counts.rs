//! About how much the trees of a catalog hold: what the planner weighs its ways by.
//!
//! Of each tree the number of entries, and of an index also how many entries one value of its first field has on average, one
//! pair of values of the first two, and so on. Nothing is kept for that while writes go on: branches of the trees tell sizes of
//! ranges (`store/src/tree/portions.rs`), and values are counted in a sample of places spread evenly over the index. A place
//! falls on a value as often as it has entries, so among [`SAMPLES`] places those of size s stand for 1/s values each, and the
//! mean of 1/s is values for each entry.
//!
//! - Taken when a database is opened and then now and again (`counter.rs`), within a time, and kept for the next opening.
//! - What has changed since the last checkpoint does not count, and all of it may be out of date: a plan made from it may be
//!   slow, its answers are right.
//! - All copies of a catalog share the counts.

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::engine::{Direction, KeyRange, TreeId, View};
use crate::order;

/// Places of an index that are looked at.
const SAMPLES: usize = 64;
/// Trees below this many entries count as having so many: what is small now may be large before it is counted again.
pub(crate) const ENTRIES_LEAST: f64 = 1_000.0;
/// Counts that have moved by this factor are told to prepared queries, which then plan anew.
const MOVED_FACTOR: f64 = 8.0;

pub(crate) const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

/// What is known of one tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeCount {
    /// Its entries.
    pub entries: f64,
    /// Of an index: how many entries have the same first value, the same first two, and so on, on average over the values.
    pub alike: Vec<f64>,
}

/// Asked for the size of a range while a plan is made: the tree, and the range's ends where it has them.
type AskRange = dyn Fn(TreeId, KeyRange<'_>) -> Option<u64> + Send + Sync;

/// See the module's text. The default knows nothing: then ways are chosen by their kind.
#[derive(Clone, Default)]
pub struct Counts {
    shared: Option<Arc<Shared>>,
}

struct Shared {
    /// Rises when a count has moved far.
    epoch: AtomicU64,
    known: RwLock<Known>,
    ask: Box<AskRange>,
}

#[derive(Default)]
struct Known {
    now: HashMap<TreeId, TreeCount>,
    /// As they were when prepared queries were told last.
    told: HashMap<TreeId, TreeCount>,
}

impl Counts {
    /// Counts that are set from outside; `ask` gives sizes of ranges.
    pub fn new(ask: impl Fn(TreeId, KeyRange<'_>) -> Option<u64> + Send + Sync + 'static) -> Counts {
        let (epoch, known) = (AtomicU64::new(0), RwLock::default());
        Counts { shared: Some(Arc::new(Shared { epoch, known, ask: Box::new(ask) })) }
    }

    /// Sets what is known of a tree.
    pub fn set(&self, tree: TreeId, count: TreeCount) {
        let Some(shared) = &self.shared else { return };
        let mut known = shared.known.write().unwrap_or_else(PoisonError::into_inner);
        let moved = known.told.get(&tree).is_none_or(|told| count.has_moved(told));
        if moved {
            known.told.insert(tree, count.clone());
        }
        known.now.insert(tree, count);
        drop(known);
        if moved {
            shared.epoch.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether anything may be known.
    pub(crate) fn are_kept(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether they are the same counts, kept in one place: then of one catalog, as an open database has it.
    pub(crate) fn is_same(&self, other: &Counts) -> bool {
        self.shared.as_ref().zip(other.shared.as_ref()).is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Another number than before where a count has moved far since.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.epoch.load(Ordering::Acquire))
    }

    /// What is known of a tree.
    pub fn of(&self, tree: TreeId) -> Option<TreeCount> {
        let known = self.shared.as_ref()?.known.read().unwrap_or_else(PoisonError::into_inner);
        known.now.get(&tree).cloned()
    }

    /// What is known of these trees.
    pub(crate) fn of_all(&self, trees: impl Iterator<Item = TreeId>) -> hashbrown::HashMap<TreeId, TreeCount> {
        let Some(shared) = &self.shared else { return hashbrown::HashMap::new() };
        let known = shared.known.read().unwrap_or_else(PoisonError::into_inner);
        trees.filter_map(|tree| Some((tree, known.now.get(&tree)?.clone()))).collect()
    }

    /// About how many entries lie in a range.
    pub(crate) fn range(&self, tree: TreeId, range: KeyRange<'_>) -> Option<u64> {
        (self.shared.as_ref()?.ask)(tree, range)
    }
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts").field("kept", &self.are_kept()).field("epoch", &self.epoch()).finish()
    }
}

impl TreeCount {
    /// Counts a tree whose keys begin with so many fields. `None`: the view does not tell.
    pub(crate) fn take(view: &dyn View, tree: TreeId, fields: usize) -> Result<Option<TreeCount>, store::Error> {
        let Some(entries) = view.entries_about(tree, ALL)? else { return Ok(None) };
        let mut values = vec![0.0; fields];
        let places =
            if fields == 0 || (entries as f64) < ENTRIES_LEAST { Vec::new() } else { view.cuts(tree, ALL, SAMPLES)? };
        let mut samples = 0;
        for place in places {
            let Some(key) = first_from(view, tree, &place)? else { continue };
            samples += 1;
            let mut rest = &key[..];
            for values in &mut values {
                if order::skip(&mut rest).is_none() {
                    break; // Damaged: who reads it is told.
                }
                *values += 1.0 / alike(view, tree, &key[..key.len() - rest.len()])?.max(1) as f64;
            }
        }
        let alike = match samples {
            0 => Vec::new(),
            samples => values.iter().map(|values| f64::from(samples) / values.max(f64::MIN_POSITIVE)).collect(),
        };
        Ok(Some(TreeCount { entries: entries as f64, alike }))
    }

    /// Whether one of the counts is so many times what it was.
    pub(crate) fn has_moved(&self, told: &TreeCount) -> bool {
        let far = |now: f64, then: f64| {
            let (now, then) = (now.max(1.0), then.max(1.0));
            now / then >= MOVED_FACTOR || then / now >= MOVED_FACTOR
        };
        let (now, then) = (self.entries.max(ENTRIES_LEAST), told.entries.max(ENTRIES_LEAST));
        let values = self.alike.iter().zip(&told.alike).any(|(now, then)| far(*now, *then));
        far(now, then) || values || self.alike.is_empty() != told.alike.is_empty()
    }
}

/// The first key of a tree from a place on.
fn first_from(view: &dyn View, tree: TreeId, place: &[u8]) -> Result<Option<Vec<u8>>, store::Error> {
    let (range, mut first) = (KeyRange { from: Bound::Included(place), to: Bound::Unbounded }, None);
    view.scan(tree, range, Direction::Forward, &mut |key, _| {
        first = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    Ok(first)
}

/// About how many entries begin with these values.
fn alike(view: &dyn View, tree: TreeId, values: &[u8]) -> Result<u64, store::Error> {
    let end = order::end_of(values);
    let range = KeyRange { from: Bound::Included(values), to: Bound::Excluded(&end) };
    Ok(view.entries_about(tree, range)?.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(now: (f64, &[f64]), told: (f64, &[f64]), moved: bool) {
        let count = |(entries, alike): (f64, &[f64])| TreeCount { entries, alike: alike.to_vec() };
        assert_eq!(count(now).has_moved(&count(told)), moved, "{now:?} after {told:?}");
    }

    #[test]
    fn counts_have_moved_at_eight_times_and_not_below_a_thousand() {
        check((8_000.0, &[]), (1_000.0, &[]), true);
        check((7_999.0, &[]), (1_000.0, &[]), false);
        check((1_000.0, &[]), (9_000.0, &[]), true);
        check((999.0, &[]), (0.0, &[]), false);
        check((5_000.0, &[8.0, 1.0]), (5_000.0, &[1.0, 1.0]), true);
        check((5_000.0, &[8.0, 1.0]), (5_000.0, &[2.0, 1.0]), false);
        check((5_000.0, &[1.0]), (5_000.0, &[]), true);
    }

    #[test]
    fn queries_are_told_only_when_counts_have_moved() {
        let (counts, tree) = (Counts::new(|_, _| None), TreeId(1));
        let set = |entries: f64| counts.set(tree, TreeCount { entries, alike: Vec::new() });
        set(1_000.0);
        let epoch = counts.epoch();
        set(4_000.0);
        assert_eq!((counts.epoch(), counts.of(tree).map(|count| count.entries)), (epoch, Some(4_000.0)));
        // Not since the last time, but since queries were told.
        set(8_000.0);
        assert_eq!(counts.epoch(), epoch + 1);
    }
}
