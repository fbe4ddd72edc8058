//! Approximate sizes of the trees of a catalog: the planner's statistics.
//!
//! The count of a tree is its number of entries. An index also has the average number of entries that share one value of the
//! first field, one pair of values of the first two fields, and so on. Writes maintain nothing for this: sizes of ranges are
//! estimated from branch pages (`store/src/tree/read/portions.rs`), and values from [`SAMPLES`] positions spread evenly over the
//! index. A position hits a value with a probability in proportion to the number s of the value's entries. So the mean of 1/s
//! over the samples estimates the number of distinct values per entry.
//!
//! - The counts are taken when a database is opened, within a time limit, and then periodically (`opening/counter.rs`). They
//!   are stored for the next opening.
//! - Changes since the last checkpoint are not counted, and any count may be out of date. A plan made from it may be slow, but
//!   its results are correct.
//! - All copies of a catalog share the counts.

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::encoding::order;
use crate::engine::{self, Direction, KeyRange, ReadView, TreeId};

/// Number of positions that are sampled in an index.
const SAMPLES: usize = 64;
/// Smaller trees count as trees with this many entries, because a tree that is small now may be large before it is counted
/// again.
pub(crate) const ENTRIES_LEAST: f64 = 1_000.0;
/// If a count changes by this factor, prepared queries get new plans.
const MOVED_FACTOR: f64 = 8.0;

pub(crate) const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

/// The statistics of one tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeCount {
    /// Its number of entries.
    pub entries: f64,
    /// For an index: how many entries share the same first value, the same first two, and so on, on average over the values.
    pub alike: Vec<f64>,
}

/// Returns the size of a range while a plan is made, from the tree and the range.
type AskRange = dyn Fn(TreeId, KeyRange<'_>) -> Option<u64> + Send + Sync;

/// See the module's text. The default has no counts; access paths are then chosen by their kind.
#[derive(Clone, Default)]
pub struct Counts {
    shared: Option<Arc<Shared>>,
}

struct Shared {
    /// Increased when a count has moved far.
    epoch: AtomicU64,
    known: RwLock<Known>,
    ask: Box<AskRange>,
}

#[derive(Default)]
struct Known {
    now: HashMap<TreeId, TreeCount>,
    /// The counts at the last increase of `epoch`.
    last: HashMap<TreeId, TreeCount>,
}

impl Counts {
    /// Counts that the caller sets; `ask` returns sizes of ranges.
    pub fn new(ask: impl Fn(TreeId, KeyRange<'_>) -> Option<u64> + Send + Sync + 'static) -> Counts {
        let (epoch, known) = (AtomicU64::new(0), RwLock::default());
        Counts { shared: Some(Arc::new(Shared { epoch, known, ask: Box::new(ask) })) }
    }

    /// Sets the count of a tree.
    pub fn set(&self, tree: TreeId, count: TreeCount) {
        let Some(shared) = &self.shared else { return };
        let mut known = shared.known.write().unwrap_or_else(PoisonError::into_inner);
        let moved = known.last.get(&tree).is_none_or(|last| count.has_moved(last));
        if moved {
            known.last.insert(tree, count.clone());
        }
        known.now.insert(tree, count);
        drop(known);
        if moved {
            shared.epoch.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether counts are kept.
    pub(crate) fn are_kept(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether both share the same counts, and so belong to the catalog of one open database.
    pub(crate) fn is_same(&self, other: &Counts) -> bool {
        self.shared.as_ref().zip(other.shared.as_ref()).is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// A number that changes when a count has moved far.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.epoch.load(Ordering::Acquire))
    }

    /// The count of a tree.
    pub fn of(&self, tree: TreeId) -> Option<TreeCount> {
        let known = self.shared.as_ref()?.known.read().unwrap_or_else(PoisonError::into_inner);
        known.now.get(&tree).cloned()
    }

    /// The counts of these trees.
    pub(crate) fn of_all(&self, trees: impl Iterator<Item = TreeId>) -> hashbrown::HashMap<TreeId, TreeCount> {
        let Some(shared) = &self.shared else { return hashbrown::HashMap::new() };
        let known = shared.known.read().unwrap_or_else(PoisonError::into_inner);
        trees.filter_map(|tree| Some((tree, known.now.get(&tree)?.clone()))).collect()
    }

    /// The approximate number of entries in a range.
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
    /// Counts a tree whose keys begin with `fields` values. `None`: the view does not give sizes.
    pub(crate) fn take(
        view: &dyn ReadView,
        tree: TreeId,
        fields: usize,
    ) -> Result<Option<TreeCount>, engine::StoreError> {
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
                    break; // Damaged: reading it reports the damage.
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

    /// Whether one of the counts has changed by [`MOVED_FACTOR`].
    pub(crate) fn has_moved(&self, last: &TreeCount) -> bool {
        let far = |now: f64, then: f64| {
            let (now, then) = (now.max(1.0), then.max(1.0));
            now / then >= MOVED_FACTOR || then / now >= MOVED_FACTOR
        };
        let (now, then) = (self.entries.max(ENTRIES_LEAST), last.entries.max(ENTRIES_LEAST));
        let values = self.alike.iter().zip(&last.alike).any(|(now, then)| far(*now, *then));
        far(now, then) || values || self.alike.is_empty() != last.alike.is_empty()
    }
}

/// The first key of a tree at or after a place.
fn first_from(view: &dyn ReadView, tree: TreeId, place: &[u8]) -> Result<Option<Vec<u8>>, engine::StoreError> {
    let (range, mut first) = (KeyRange { from: Bound::Included(place), to: Bound::Unbounded }, None);
    view.scan(tree, range, Direction::Forward, &mut |key, _| {
        first = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    Ok(first)
}

/// The approximate number of entries that begin with these values.
fn alike(view: &dyn ReadView, tree: TreeId, values: &[u8]) -> Result<u64, engine::StoreError> {
    let end = order::end_of(values);
    let range = KeyRange { from: Bound::Included(values), to: Bound::Excluded(&end) };
    Ok(view.entries_about(tree, range)?.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(now: (f64, &[f64]), last: (f64, &[f64]), moved: bool) {
        let count = |(entries, alike): (f64, &[f64])| TreeCount { entries, alike: alike.to_vec() };
        assert_eq!(count(now).has_moved(&count(last)), moved, "{now:?} after {last:?}");
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
        // Compared with the count that queries were last planned with, not with the previous one.
        set(8_000.0);
        assert_eq!(counts.epoch(), epoch + 1);
    }
}
