//! Claims: what a large transaction has read, and what no other transaction may change until it has ended.
//!
//! An ordinary transaction is validated when it commits, and prepared again if its reads have changed. That would discard
//! a large transaction's work. So a large one claims each key and range before it reads it. The conflict is decided once,
//! when another transaction would change a claimed key: that one is refused ([`crate::base::error::StoreError::Claimed`]) and may be tried
//! again. Reading what is claimed is no conflict: the reader's transaction precedes the large one.
//!
//! Why no change is missed: the writer holds the claims from its check of a transaction until the transaction is in the
//! memtable. A claim made after that finds the change there, and its reader waits until the change is visible
//! ([`super::large`]). A claim made before it is seen by the check.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use crate::base::fail_stop::lock;
use crate::base::key::{KeyRange, Span, TreeId};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
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
    Parts(Parts),
}

/// Keys and ranges of one tree.
#[derive(Default)]
struct Parts {
    keys: HashSet<Box<[u8]>>,
    spans: Spans,
    bytes: usize,
}

/// Disjoint ranges: start, and end (excluded; `None` is the tree's end).
type Spans = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

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
        let mut folds = changes.folds().map(|(tree, key, _)| (tree, key));
        folds.any(|(tree, key)| self.holds(tree, key))
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
            Some(OfTree::Parts(parts)) => parts.keys.contains(key) || is_in_span(&parts.spans, key),
        }
    }

    fn meets_range(&self, tree: TreeId, from: &[u8], to: Option<&[u8]>) -> bool {
        let is_below_end = |key: &[u8]| to.is_none_or(|to| key < to);
        match self.trees.get(&tree) {
            None => false,
            Some(OfTree::Whole) => true,
            Some(OfTree::Parts(Parts { keys, spans, .. })) => {
                let next = spans.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).next();
                is_in_span(spans, from)
                    || next.is_some_and(|(start, _)| is_below_end(start))
                    || keys.iter().any(|key| **key >= *from && is_below_end(key))
            }
        }
    }

    fn add_key(&mut self, tree: TreeId, key: &[u8]) {
        self.add(tree, |parts| match parts.keys.contains(key) {
            true => {}
            false => {
                parts.keys.insert(key.into());
                parts.bytes += CLAIM_OVERHEAD_BYTES + key.len();
            }
        });
    }

    fn add_span(&mut self, tree: TreeId, span: Span) {
        self.add(tree, |parts| parts.add_span(span));
    }

    /// Adds to the claims of a tree, unless it is claimed as a whole. Beyond the bound the tree with the largest claims becomes
    /// claimed as a whole, which frees their memory.
    fn add(&mut self, tree: TreeId, add: impl FnOnce(&mut Parts)) {
        let of_tree = self.trees.entry(tree).or_insert_with(|| OfTree::Parts(Parts::default()));
        let OfTree::Parts(parts) = of_tree else { return };
        let before = parts.bytes;
        add(parts);
        self.bytes = self.bytes + parts.bytes - before;
        if self.bytes > CLAIMS_BYTES_MAX {
            let largest = self.trees.iter_mut().max_by_key(|(_, of_tree)| of_tree.bytes());
            if let Some((_, largest)) = largest {
                self.bytes -= largest.bytes();
                *largest = OfTree::Whole;
            }
        }
    }
}

impl OfTree {
    fn bytes(&self) -> usize {
        match self {
            OfTree::Whole => 0,
            OfTree::Parts(parts) => parts.bytes,
        }
    }
}

impl Parts {
    fn add_span(&mut self, mut span: Span) {
        // A span that begins before this one and reaches it.
        let before = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(span.from.as_slice()))).next_back();
        if let Some((start, end)) = before.filter(|(_, end)| end.as_ref().is_none_or(|end| *end >= span.from)) {
            if end.is_none() || (span.to.is_some() && *end >= span.to) {
                return;
            }
            span.from.clone_from(start);
        }
        // Spans that begin inside it are merged into it.
        while let Some((start, end)) = self.first_span_from(&span.from)
            && span.to.as_ref().is_none_or(|to| start <= *to)
        {
            self.spans.remove(&start);
            self.bytes -= span_bytes(&start, end.as_ref());
            span.to = span.to.take().zip(end).map(|(own, end)| own.max(end));
        }
        self.bytes += span_bytes(&span.from, span.to.as_ref());
        self.spans.insert(span.from, span.to);
    }

    fn first_span_from(&self, from: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let first = self.spans.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).next();
        first.map(|(start, end)| (start.clone(), end.clone()))
    }
}

fn span_bytes(from: &[u8], to: Option<&Vec<u8>>) -> usize {
    CLAIM_OVERHEAD_BYTES + from.len() + to.map_or(0, Vec::len)
}

/// Whether a span holds a key.
fn is_in_span(spans: &Spans, key: &[u8]) -> bool {
    let span = spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
    span.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < end.as_slice()))
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
        // The tree with the largest claims is chosen, not the one that comes last.
        assert!(!claimed.holds(TreeId(5), b"last"));
        claimed.add_key(TreeId(5), b"last");
        assert!(!claimed.holds(TreeId(5), b"anything"));
        // Ranges that adjoin are one.
        let before = claimed.bytes;
        for key in 0..100u8 {
            let range = KeyRange { from: Bound::Included(&[key]), to: Bound::Excluded(&[key + 1]) };
            Span::of(range).into_iter().for_each(|span| claimed.add_span(TreeId(5), span));
        }
        assert_eq!(claimed.bytes, before + CLAIM_OVERHEAD_BYTES + 2);
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
