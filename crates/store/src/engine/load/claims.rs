//! Claims: what a large transaction has read, and what no other transaction may change until it has ended.
//!
//! An ordinary transaction is validated when it commits, and prepared again if its reads have changed. That would discard
//! a large transaction's work. So a large one claims each key and range before it reads it. The conflict is decided once,
//! when another transaction would change a claimed key: that one is refused ([`StoreError::Claimed`]) and may be tried
//! again. Reading what is claimed is no conflict: the reader's transaction precedes the large one.
//!
//! Why no change is missed: the writer holds the claims from its check of a transaction until the transaction is in the
//! memtable. A claim made after that finds the change there, and its reader waits until the change is visible
//! ([`super::large`]). A claim made before it is seen by the check.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::base::fail_stop::lock;
use crate::base::key::{KeyRange, Span, TreeId};
use crate::engine::write::changes::Changes;
use crate::log::Edit;

/// Memory for the claimed keys and ranges of all trees. Beyond it a tree is claimed as a whole.
const CLAIMS_BYTES_MAX: usize = 16 << 20;
/// Overhead of a claimed key or range, besides its bytes.
const CLAIM_OVERHEAD_BYTES: usize = 64;

/// The claims of the store's large transaction. There is at most one, so there is one set of claims.
#[derive(Default)]
pub(crate) struct Claims {
    /// A large transaction is active. Changed under the writer's lock.
    is_active: AtomicBool,
    claimed: Mutex<Claimed>,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Claimed {
    trees: HashMap<TreeId, OfTree>,
    bytes: usize,
}

/// What is claimed of a tree.
enum OfTree {
    Whole,
    Parts {
        keys: HashSet<Box<[u8]>>,
        /// Disjoint ranges: start, and end (excluded; `None` is the tree's end).
        spans: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    },
}

impl Claims {
    /// Starts the claims of a large transaction with whole trees. False if another one is active. Under the writer's lock.
    pub(super) fn begin(&self, whole: &[TreeId]) -> bool {
        if self.is_active.swap(true, Ordering::Relaxed) {
            return false;
        }
        let trees = whole.iter().map(|tree| (*tree, OfTree::Whole)).collect();
        *lock(&self.claimed) = Claimed { trees, bytes: 0 };
        true
    }

    /// Ends them. Under the writer's lock.
    pub(super) fn end(&self) {
        *lock(&self.claimed) = Claimed::default();
        self.is_active.store(false, Ordering::Relaxed);
    }

    /// The claims, held as long as the result lives; `None` if no large transaction is active. Under the writer's lock.
    #[inline]
    pub(in crate::engine) fn held(&self) -> Option<MutexGuard<'_, Claimed>> {
        self.is_active.load(Ordering::Relaxed).then(|| lock(&self.claimed))
    }

    pub(super) fn key(&self, tree: TreeId, key: &[u8]) {
        lock(&self.claimed).add_key(tree, key);
    }

    pub(super) fn range(&self, tree: TreeId, range: KeyRange<'_>) {
        if let Some(span) = Span::of(range) {
            lock(&self.claimed).add_span(tree, span);
        }
    }
}

impl Claimed {
    /// Whether a transaction would change something that is claimed, its folds included.
    pub(in crate::engine) fn meet(&self, changes: &Changes) -> bool {
        let is_met = |(tree, key): (TreeId, &[u8])| self.holds(tree, key);
        let folds = changes.folds().map(|(tree, key, _)| (tree, key));
        folds.into_iter().any(is_met)
            || changes.iter().any(|change| {
                let tree = TreeId(change.operation.tree);
                match change.operation.edit {
                    Edit::Put(_) | Edit::Delete => self.holds(tree, change.operation.key),
                    Edit::DeleteRange { to } => self.meets_range(tree, change.operation.key, to),
                }
            })
    }

    /// Whether a key is claimed.
    pub(in crate::engine) fn holds(&self, tree: TreeId, key: &[u8]) -> bool {
        match self.trees.get(&tree) {
            None => false,
            Some(OfTree::Whole) => true,
            Some(OfTree::Parts { keys, spans }) => keys.contains(key) || span_of(spans, key).is_some(),
        }
    }

    fn meets_range(&self, tree: TreeId, from: &[u8], to: Option<&[u8]>) -> bool {
        let is_below_end = |key: &[u8]| to.is_none_or(|to| key < to);
        match self.trees.get(&tree) {
            None => false,
            Some(OfTree::Whole) => true,
            Some(OfTree::Parts { keys, spans }) => {
                span_of(spans, from).is_some()
                    || spans
                        .range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
                        .next()
                        .is_some_and(|(start, _)| is_below_end(start))
                    || keys.iter().any(|key| **key >= *from && is_below_end(key))
            }
        }
    }

    fn parts(&mut self, tree: TreeId) -> Option<(&mut HashSet<Box<[u8]>>, &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>)> {
        let of_tree =
            self.trees.entry(tree).or_insert_with(|| OfTree::Parts { keys: HashSet::new(), spans: BTreeMap::new() });
        match of_tree {
            OfTree::Whole => None,
            OfTree::Parts { keys, spans } => Some((keys, spans)),
        }
    }

    fn add_key(&mut self, tree: TreeId, key: &[u8]) {
        let Some((keys, _)) = self.parts(tree) else { return };
        if keys.contains(key) {
            return;
        }
        keys.insert(key.into());
        self.charge(tree, key.len());
    }

    fn add_span(&mut self, tree: TreeId, mut span: Span) {
        let Some((_, spans)) = self.parts(tree) else { return };
        let mut bytes = 0;
        // A span that begins before this one and reaches it.
        if let Some((start, end)) =
            spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(span.from.as_slice()))).next_back()
            && end.as_ref().is_none_or(|end| *end >= span.from)
        {
            if end.is_none() || (span.to.is_some() && *end >= span.to) {
                return;
            }
            span.from.clone_from(start);
        }
        // Spans that begin inside it are merged into it.
        while let Some((start, end)) =
            spans.range::<[u8], _>((Bound::Included(span.from.as_slice()), Bound::Unbounded)).next()
            && span.to.as_ref().is_none_or(|to| *start <= *to)
        {
            let (start, end) = (start.clone(), end.clone());
            span.to = span.to.take().zip(end).map(|(own, end)| own.max(end));
            spans.remove(&start);
        }
        bytes += span.from.len() + span.to.as_ref().map_or(0, Vec::len);
        spans.insert(span.from, span.to);
        self.charge(tree, bytes);
    }

    /// Counts a new claim of a tree. Beyond the bound the tree is claimed as a whole, which frees the memory of its parts.
    fn charge(&mut self, tree: TreeId, bytes: usize) {
        self.bytes += CLAIM_OVERHEAD_BYTES + bytes;
        if self.bytes > CLAIMS_BYTES_MAX {
            self.trees.insert(tree, OfTree::Whole);
            let parts = self.trees.values().map(|of_tree| match of_tree {
                OfTree::Whole => 0,
                OfTree::Parts { keys, spans } => {
                    let bytes_of_spans =
                        |(from, to): (&Vec<u8>, &Option<Vec<u8>>)| from.len() + to.as_ref().map_or(0, Vec::len);
                    keys.iter().map(|key| CLAIM_OVERHEAD_BYTES + key.len()).sum::<usize>()
                        + spans.iter().map(|span| CLAIM_OVERHEAD_BYTES + bytes_of_spans(span)).sum::<usize>()
                }
            });
            self.bytes = parts.sum();
        }
    }
}

/// The span that holds a key.
fn span_of<'s>(spans: &'s BTreeMap<Vec<u8>, Option<Vec<u8>>>, key: &[u8]) -> Option<&'s Vec<u8>> {
    let (start, end) = spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
    end.as_ref().is_none_or(|end| key < end.as_slice()).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TREE: TreeId = TreeId(3);

    fn changes(edit: impl FnOnce(&mut Changes)) -> Changes {
        let mut changes = Changes::new(1 << 20, "transaction");
        edit(&mut changes);
        changes
    }

    proptest! {
        #[test]
        fn claims_hold_the_keys_and_ranges_that_were_added(
            added in proptest::collection::vec((0u8..30, proptest::option::of(0u8..12)), 0..20),
            from in 0u8..30, len in proptest::option::of(1u8..12)
        ) {
            let mut claimed = Claimed::default();
            let mut model = HashSet::new();
            for (key, len) in added {
                match len {
                    None => {
                        claimed.add_key(TREE, &[key]);
                        model.insert(key);
                    }
                    Some(len) => {
                        let range = KeyRange { from: Bound::Included(&[key]), to: Bound::Excluded(&[key + len]) };
                        Span::of(range).into_iter().for_each(|span| claimed.add_span(TREE, span));
                        model.extend(key..key + len);
                    }
                }
            }
            for key in 0..50u8 {
                prop_assert_eq!(claimed.holds(TREE, &[key]), model.contains(&key), "{}", key);
                let put = changes(|changes| changes.put(TREE, &[key], b"value", false));
                prop_assert_eq!(claimed.meet(&put), model.contains(&key));
            }
            let end = len.map(|len| [from + len]);
            let to = end.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(&end[..]));
            let deletion = changes(|changes| changes.delete_range(TREE, KeyRange { from: Bound::Included(&[from]), to }));
            let is_met = model.iter().any(|key| *key >= from && len.is_none_or(|len| *key < from + len));
            prop_assert_eq!(claimed.meet(&deletion), is_met);
            prop_assert!(!claimed.holds(TreeId(4), &[from]));
        }
    }

    #[test]
    fn beyond_their_memory_a_tree_is_claimed_as_a_whole() {
        let mut claimed = Claimed::default();
        claimed.add_key(TREE, b"first");
        claimed.add_key(TreeId(4), b"kept");
        let key = [7; 1024];
        for number in 0..2 * (CLAIMS_BYTES_MAX / 1024) as u32 {
            claimed.add_key(TREE, &[&number.to_be_bytes()[..], &key[4..]].concat());
        }
        assert!(claimed.holds(TREE, b"anything") && claimed.holds(TreeId(4), b"kept"));
        assert!(!claimed.holds(TreeId(4), b"anything") && claimed.bytes < CLAIMS_BYTES_MAX);
    }

    #[test]
    fn folds_are_changes_too_and_claims_end() {
        let claims = Claims::default();
        assert!(claims.begin(&[TREE]) && !claims.begin(&[]));
        let fold = changes(|changes| changes.fold(TREE, b"sum", b"one"));
        assert!(claims.held().is_some_and(|claimed| claimed.meet(&fold)));
        claims.end();
        assert!(claims.held().is_none() && claims.begin(&[]));
    }
}
