//! The changes of one transaction: the deleted ranges, then the other changes in order, with only the last one of each key.
//!
//! Deleting a range discards the earlier puts in it. So the ranges may be applied first, in any order: they are kept
//! sorted, and merged if they touch.
//!
//! Operands for the writer to fold ([`super::fold_results`]) are kept separately, one by one.
//!
//! Keys and values lie in one buffer; an entry holds offsets. Few entries are searched linearly, which beats any index
//! while they fit a few cache lines. From [`INDEXED_FROM`] on they are hashed. Entries of a tree are sorted when the
//! transaction first scans the tree, and kept sorted from then on. So no operation costs time proportional to the changes
//! made so far.

use std::hash::BuildHasher;
use std::slice::from_ref;

use hashbrown::HashTable;

use super::overlay::{Ordered, in_range};
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, Span, TreeId};
use crate::base::limits::{KEY_BYTES_MAX, RANGES_MAX, VALUE_BYTES_MAX};
use crate::base::prefetch::{prefetch, prefetch_all};
use crate::base::sync::DefaultHashBuilder;
use crate::log::{Edit, OPERATION_HEADER_BYTES, Operation, TRANSACTION_HEADER_BYTES};

/// Initial capacities, in entries and in bytes of keys and values.
const FIRST_ENTRIES: usize = 8;
const FIRST_BYTES: usize = 512;
/// Number of entries from which on they are hashed.
const INDEXED_FROM: usize = 16;
/// Generous estimate of the memtable overhead of an entry, in addition to key and value. It bounds transactions of many
/// tiny entries.
const ENTRY_OVERHEAD_BYTES: usize = 128;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Changes {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    index: Option<HashTable<u32>>,
    hasher: DefaultHashBuilder,
    /// Deleted ranges, by tree and start; those of one tree neither overlap nor touch.
    ranges: Vec<(TreeId, Span)>,
    /// Operands, in order.
    folds: Vec<Entry>,
    /// The trees that it changes or folds into, sorted.
    trees: Vec<ChangedTree>,
    /// Log bytes and memtable overhead of all entries, dead ones included; compared with `cost_max`.
    cost: usize,
    cost_max: usize,
    /// The name of the bound, for the error.
    too_large: &'static str,
    log_bytes: usize,
    failure: Option<StoreError>,
}

#[derive(Clone, Copy)]
struct Entry {
    tree: u32,
    key_len: u16,
    /// Replaced by a later entry of the same key, or inside a range that was deleted later.
    is_dead: bool,
    kind: Kind,
    /// Offset of the key; the value follows it.
    at: u32,
    value_len: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    PutStamped,
    Delete,
    /// The value is an operand.
    Fold,
}

/// The kinds of changes that a transaction makes in one tree.
struct ChangedTree {
    tree: TreeId,
    /// It puts into the tree or deletes from it.
    is_changed: bool,
    is_folded: bool,
    /// The places of the tree's live entries by key; `None` before the first scan of the tree.
    ordered: Option<Ordered>,
}

/// The changes of a tree, for a scan.
pub(crate) struct ScannedTree<'c> {
    tree: TreeId,
    changes: &'c Changes,
    ordered: Option<&'c Ordered>,
}

/// A change in the form that the memtable and the log take.
#[derive(Clone, Copy)]
pub(crate) struct KeyChange<'c> {
    pub(crate) operation: Operation<'c>,
    /// The writer writes the version into the value's first 8 bytes.
    pub(crate) is_stamped: bool,
}

impl Changes {
    /// An empty set. If its `cost` exceeds `cost_max`, the transaction is refused with `too_large` as the name of the bound.
    pub(crate) fn new(cost_max: usize, too_large: &'static str) -> Changes {
        Changes { cost_max, too_large, ..Changes::default() }
    }

    /// Clears everything but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.folds.clear();
        self.trees.clear();
        self.index = None;
        self.ranges.clear();
        (self.cost, self.log_bytes, self.failure) = (0, 0, None);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ranges.is_empty() && self.folds.is_empty()
    }

    /// Prefetches the fields that locate the changes.
    pub(crate) fn foresee_self(&self) {
        prefetch(from_ref(&self.bytes));
        prefetch(from_ref(&self.ranges));
        prefetch(from_ref(&self.failure));
    }

    /// Prefetches the memory that placing the changes will read.
    pub(crate) fn foresee(&self) {
        prefetch(&self.entries);
        prefetch_all(&self.bytes);
    }

    /// The keys of the first entries.
    pub(crate) fn first_keys(&self, count: usize) -> impl Iterator<Item = (TreeId, &[u8])> {
        let entries = self.entries.iter().chain(&self.folds).take(count);
        entries.map(|entry| (TreeId(entry.tree), entry.key(&self.bytes)))
    }

    /// Bytes of memory held, without the indexes.
    pub(crate) fn held_bytes(&self) -> usize {
        let spans =
            self.ranges.iter().map(|(_, span)| span.from.capacity() + span.to.as_ref().map_or(0, Vec::capacity));
        self.bytes.capacity()
            + (self.entries.capacity() + self.folds.capacity()) * size_of::<Entry>()
            + self.trees.capacity() * size_of::<ChangedTree>()
            + self.ranges.capacity() * size_of::<(TreeId, Span)>()
            + spans.sum::<usize>()
    }

    /// Bytes of this transaction in a batch.
    pub(crate) fn log_bytes(&self) -> usize {
        TRANSACTION_HEADER_BYTES
            + self.log_bytes
            + self.ranges.iter().map(|(_, span)| log_bytes_of(span)).sum::<usize>()
    }

    /// The error, if any, because of which the changes cannot be committed.
    pub(crate) fn take_failure(&mut self) -> Option<StoreError> {
        if self.trees.iter().any(|of| of.is_changed && of.is_folded) {
            return Some(StoreError::Refused { why: "it both folds into a tree and puts into it" });
        }
        let too_large = (self.cost > self.cost_max)
            .then_some(StoreError::Limit { what: self.too_large, limit: self.cost_max as u64 });
        self.failure.take().or(too_large)
    }

    pub(crate) fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], is_stamped: bool) {
        let failure = if value.len() > VALUE_BYTES_MAX {
            Some(StoreError::Limit { what: "value", limit: VALUE_BYTES_MAX as u64 })
        } else if is_stamped && value.len() < 8 {
            Some(StoreError::Limit { what: "stamped value (lower bound)", limit: 8 })
        } else {
            None
        };
        match failure {
            Some(failure) => self.failure = Some(failure),
            None => self.push(tree, key, value, if is_stamped { Kind::PutStamped } else { Kind::Put }),
        }
    }

    pub(crate) fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.push(tree, key, &[], Kind::Delete);
    }

    pub(crate) fn delete_range(&mut self, tree: TreeId, range: KeyRange<'_>) {
        let Some(mut span) = Span::of(range) else { return };
        // One byte more than a key: the bound just above a key is the key with a zero byte appended.
        if span.from.len().max(span.to.as_ref().map_or(0, Vec::len)) > KEY_BYTES_MAX + 1 {
            self.failure = Some(StoreError::Limit { what: "key", limit: KEY_BYTES_MAX as u64 });
            return;
        }
        self.cost = self.cost.saturating_add(log_bytes_of(&span) + 2 * ENTRY_OVERHEAD_BYTES);
        if self.cost > self.cost_max {
            return;
        }
        self.tree(tree).is_changed = true;
        let inside: Vec<u32> = match self.order(tree) {
            Some(ordered) => in_range(ordered, range, Direction::Forward).map(|(_, place)| place).collect(),
            None => Vec::new(),
        };
        inside.into_iter().for_each(|place| self.kill_at(place as usize));
        self.ranges.retain_mut(|(of, other)| {
            let meets = *of == tree && is_from_below(other, &span) && is_from_below(&span, other);
            if meets {
                span.from = std::mem::take(&mut other.from).min(std::mem::take(&mut span.from));
                span.to = std::mem::take(&mut other.to).zip(span.to.take()).map(|(to, own)| to.max(own));
            }
            !meets
        });
        let at = self.ranges.partition_point(|(of, other)| (of, &other.from) < (&tree, &span.from));
        self.ranges.insert(at, (tree, span));
        if self.ranges.len() > RANGES_MAX {
            self.failure =
                Some(StoreError::Limit { what: "deleted ranges of a transaction", limit: RANGES_MAX as u64 });
            self.ranges.truncate(RANGES_MAX);
        }
    }

    /// Adds an operand that the writer will apply to the key's value.
    pub(crate) fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
        if self.admits(key, operand) {
            let operand = self.keep(tree, key, operand, Kind::Fold);
            self.folds.push(operand);
            self.tree(tree).is_folded = true;
        }
    }

    /// The operands, in order: tree, key, operand.
    pub(crate) fn folds(&self) -> impl Iterator<Item = (TreeId, &[u8], &[u8])> {
        self.folds.iter().map(|entry| (TreeId(entry.tree), entry.key(&self.bytes), entry.bytes(&self.bytes)))
    }

    pub(crate) fn has_folds(&self) -> bool {
        !self.folds.is_empty()
    }

    /// Most bytes of all changes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.cost_max
    }

    /// Number of operands.
    pub(crate) fn folds_count(&self) -> usize {
        self.folds.len()
    }

    /// Whether it has operands for this tree.
    pub(crate) fn folds_into(&self, tree: TreeId) -> bool {
        !self.folds.is_empty() && self.known_tree(tree).is_some_and(|of| of.is_folded)
    }

    /// The trees into which it puts or from which it deletes.
    pub(crate) fn changed_trees(&self) -> impl Iterator<Item = TreeId> {
        self.trees.iter().filter(|of| of.is_changed).map(|of| of.tree)
    }

    fn known_tree(&self, tree: TreeId) -> Option<&ChangedTree> {
        self.trees.binary_search_by_key(&tree, |of| of.tree).ok().map(|at| &self.trees[at])
    }

    /// The record of a tree, which is created if missing.
    fn tree(&mut self, tree: TreeId) -> &mut ChangedTree {
        let at = self.trees.partition_point(|of| of.tree < tree);
        if self.trees.get(at).is_none_or(|of| of.tree != tree) {
            self.trees.insert(at, ChangedTree { tree, is_changed: false, is_folded: false, ordered: None });
        }
        &mut self.trees[at]
    }

    /// The tree's entries in order; they are sorted at the first call. `None`: it has none.
    fn order(&mut self, tree: TreeId) -> Option<&Ordered> {
        let Changes { entries, bytes, trees, .. } = self;
        let at = trees.binary_search_by_key(&tree, |of| of.tree).ok().filter(|at| trees[*at].is_changed)?;
        Some(trees[at].ordered.get_or_insert_with(|| {
            let live = entries.iter().zip(0..).filter(|(entry, _)| !entry.is_dead && entry.tree == tree.0);
            live.map(|(entry, place)| (entry.key(bytes).to_vec(), place)).collect()
        }))
    }

    /// Releases the order of scanned trees; the next scan makes it again.
    pub(crate) fn forget_order(&mut self) {
        self.trees.iter_mut().for_each(|of| of.ordered = None);
    }

    /// The changes of a tree, for a scan.
    pub(crate) fn scanned(&mut self, tree: TreeId) -> ScannedTree<'_> {
        self.order(tree);
        ScannedTree { tree, changes: self, ordered: self.known_tree(tree).and_then(|of| of.ordered.as_ref()) }
    }

    /// Adds a change to the cost. `false`: it exceeds a bound and need not be kept, since the transaction will be refused.
    fn admits(&mut self, key: &[u8], value: &[u8]) -> bool {
        if key.len() > KEY_BYTES_MAX {
            self.failure = Some(StoreError::Limit { what: "key", limit: KEY_BYTES_MAX as u64 });
            return false;
        }
        self.cost = self.cost.saturating_add(OPERATION_HEADER_BYTES + key.len() + value.len() + ENTRY_OVERHEAD_BYTES);
        self.cost <= self.cost_max
    }

    fn push(&mut self, tree: TreeId, key: &[u8], value: &[u8], kind: Kind) {
        if !self.admits(key, value) {
            return;
        }
        self.kill(tree, key);
        let entry = self.keep(tree, key, value, kind);
        self.log_bytes += entry.log_bytes();
        let place = self.entries.len();
        self.entries.push(entry);
        self.add_to_index(place);
        let of = self.tree(tree);
        of.is_changed = true;
        if let Some(ordered) = &mut of.ordered {
            ordered.insert(key.to_vec(), place as u32);
        }
    }

    /// Stores the bytes of an entry.
    fn keep(&mut self, tree: TreeId, key: &[u8], value: &[u8], kind: Kind) -> Entry {
        let entry = Entry {
            tree: tree.0,
            key_len: key.len() as u16,
            is_dead: false,
            kind,
            at: self.bytes.len() as u32,
            value_len: value.len() as u32,
        };
        if self.entries.capacity() == 0 {
            // Nearly all transactions fit, so their buffers are allocated once.
            self.entries.reserve(FIRST_ENTRIES);
            self.bytes.reserve((key.len() + value.len()).max(FIRST_BYTES));
        }
        self.bytes.reserve(key.len() + value.len());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        entry
    }

    /// Marks the earlier entry of this key, if any, as dead.
    fn kill(&mut self, tree: TreeId, key: &[u8]) {
        if let Some(place) = self.find(tree, key) {
            self.kill_at(place);
        }
    }

    fn kill_at(&mut self, place: usize) {
        let entry = self.entries[place];
        if let Some(index) = &mut self.index {
            let hash = self.hasher.hash_one((entry.tree, entry.key(&self.bytes)));
            if let Ok(found) = index.find_entry(hash, |at| *at as usize == place) {
                found.remove();
            }
        }
        if let Ok(at) = self.trees.binary_search_by_key(&entry.tree, |of| of.tree.0)
            && let Some(ordered) = &mut self.trees[at].ordered
        {
            ordered.remove(entry.key(&self.bytes));
        }
        self.entries[place].is_dead = true;
        self.log_bytes -= entry.log_bytes();
    }

    fn add_to_index(&mut self, place: usize) {
        let (entries, bytes, hasher) = (&self.entries, &self.bytes, &self.hasher);
        let hash_of = |at: &u32| {
            let entry = entries[*at as usize];
            hasher.hash_one((entry.tree, entry.key(bytes)))
        };
        if let Some(index) = &mut self.index {
            index.insert_unique(hash_of(&(place as u32)), place as u32, hash_of);
        } else if entries.len() >= INDEXED_FROM {
            let mut index = HashTable::with_capacity(2 * INDEXED_FROM);
            for at in (0..entries.len() as u32).filter(|at| !entries[*at as usize].is_dead) {
                index.insert_unique(hash_of(&at), at, hash_of);
            }
            self.index = Some(index);
        }
    }

    fn find(&self, tree: TreeId, key: &[u8]) -> Option<usize> {
        let is_it = |entry: &Entry| !entry.is_dead && entry.tree == tree.0 && entry.key(&self.bytes) == key;
        match &self.index {
            None => self.entries.iter().rposition(is_it),
            Some(index) => index
                .find(self.hasher.hash_one((tree.0, key)), |at| is_it(&self.entries[*at as usize]))
                .map(|at| *at as usize),
        }
    }

    /// The transaction's own change of a key: `None` if it did not touch it, `Some(None)` if it deleted it.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.find(tree, key) {
            Some(place) => Some(self.entries[place].value(&self.bytes)),
            None if self.ranges.is_empty() => None,
            None => self.spans(tree).any(|span| span.holds(key)).then_some(None),
        }
    }

    /// The deleted ranges of a tree, in order.
    fn spans(&self, tree: TreeId) -> impl DoubleEndedIterator<Item = &Span> {
        self.ranges.iter().filter(move |(of, _)| *of == tree).map(|(_, span)| span)
    }

    /// All live changes: the ranges, then the others in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = KeyChange<'_>> {
        let ranges = self.ranges.iter().map(|(tree, span)| KeyChange {
            operation: Operation { tree: tree.0, key: &span.from, edit: Edit::DeleteRange { to: span.to.as_deref() } },
            is_stamped: false,
        });
        let entries = self.entries.iter().filter(|entry| !entry.is_dead).map(|entry| KeyChange {
            operation: Operation {
                tree: entry.tree,
                key: entry.key(&self.bytes),
                edit: entry.value(&self.bytes).map_or(Edit::Delete, Edit::Put),
            },
            is_stamped: entry.kind == Kind::PutStamped,
        });
        ranges.chain(entries)
    }
}

impl<'c> ScannedTree<'c> {
    /// The changes in a range, in the scan's order.
    pub(crate) fn in_range(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> impl Iterator<Item = (&'c [u8], Option<&'c [u8]>)> + use<'c> {
        let changes = self.changes;
        let entries = self.ordered.map(|ordered| in_range(ordered, range, direction));
        let value = move |place: u32| changes.entries[place as usize].value(&changes.bytes);
        entries.into_iter().flatten().map(move |(key, place)| (key, value(place)))
    }

    /// The deleted ranges, in order.
    pub(crate) fn spans(&self) -> impl DoubleEndedIterator<Item = &'c Span> + use<'c> {
        self.changes.spans(self.tree)
    }
}

/// Whether a span starts at or below the end of another.
fn is_from_below(span: &Span, end: &Span) -> bool {
    end.to.as_ref().is_none_or(|to| span.from <= *to)
}

fn log_bytes_of(span: &Span) -> usize {
    OPERATION_HEADER_BYTES + span.from.len() + span.to.as_ref().map_or(0, Vec::len)
}

#[cfg(test)]
thread_local! {
    /// Number of keys read by this thread, as a measure of work.
    static KEYS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Entry {
    fn key<'c>(&self, bytes: &'c [u8]) -> &'c [u8] {
        #[cfg(test)]
        KEYS_READ.set(KEYS_READ.get() + 1);
        let at = self.at as usize;
        &bytes[at..at + usize::from(self.key_len)]
    }

    fn value<'c>(&self, bytes: &'c [u8]) -> Option<&'c [u8]> {
        (self.kind != Kind::Delete).then(|| self.bytes(bytes))
    }

    /// The bytes after the key.
    fn bytes<'c>(&self, bytes: &'c [u8]) -> &'c [u8] {
        let at = self.at as usize + usize::from(self.key_len);
        &bytes[at..at + self.value_len as usize]
    }

    fn log_bytes(&self) -> usize {
        OPERATION_HEADER_BYTES + usize::from(self.key_len) + self.value_len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::Bound;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_last_change_of_a_key_counts(
            steps in proptest::collection::vec((0u32..2, 0u8..40, proptest::option::of(0u8..255)), 0..120)
        ) {
            let mut changes = Changes::new(1 << 20, "transaction");
            let mut model: BTreeMap<(u32, Vec<u8>), Option<Vec<u8>>> = BTreeMap::new();
            let mut deleted = BTreeSet::new();
            for (tree, key, value) in steps {
                if key % 8 == 7 {
                    // To a key above, or to the end.
                    let to = value.map_or(Bound::Unbounded, |_| Bound::Excluded(&[40u8][..]));
                    changes.delete_range(TreeId(tree), KeyRange { from: Bound::Included(&[key]), to });
                    let is_inside = |at: &(u32, Vec<u8>)| at.0 == tree && at.1[0] >= key;
                    model.retain(|at, _| !is_inside(at));
                    deleted.retain(|at: &(u32, u8)| at.0 != tree || at.1 < key);
                    deleted.extend((key..40).map(|key| (tree, key)));
                    continue;
                }
                match value {
                    Some(value) => changes.put(TreeId(tree), &[key], &[value], false),
                    None => changes.delete(TreeId(tree), &[key]),
                }
                model.insert((tree, vec![key]), value.map(|value| vec![value]));
                if key % 4 == 0 {
                    let scanned = changes.scanned(TreeId(tree));
                    let found: Vec<_> = scanned.in_range(KeyRange::ALL, Direction::Forward).collect();
                    let own = model.iter().filter(|((of, _), _)| *of == tree);
                    let expected: Vec<_> = own.map(|((_, key), value)| (key.as_slice(), value.as_deref())).collect();
                    prop_assert_eq!(found, expected);
                }
                prop_assert_eq!(changes.get(TreeId(tree), &[key]), Some(value.as_ref().map(std::slice::from_ref)));
            }
            let is_range = |change: &KeyChange<'_>| matches!(change.operation.edit, Edit::DeleteRange { .. });
            prop_assert!(changes.iter().skip_while(is_range).all(|change| !is_range(&change)), "ranges come first");
            let ranges: Vec<_> = changes.iter().filter(is_range).map(|change| change.operation).collect();
            for (tree, key) in (0..2).flat_map(|tree| (0..40).map(move |key| (tree, key))) {
                let is_in = |range: &&Operation<'_>| {
                    let is_below = range.edit.bytes().is_empty() || [key].as_slice() < range.edit.bytes();
                    range.tree == tree && range.key <= [key].as_slice() && is_below
                };
                let count = ranges.iter().filter(is_in).count();
                prop_assert_eq!(count, usize::from(deleted.contains(&(tree, key))), "{} {}", tree, key);
                if !model.contains_key(&(tree, vec![key])) {
                    prop_assert_eq!(changes.get(TreeId(tree), &[key]), (count > 0).then_some(None));
                }
            }
            let all: BTreeMap<_, _> = changes.iter().filter(|change| !is_range(change)).map(|change| {
                let Operation { tree, key, edit } = change.operation;
                ((tree, key.to_vec()), (edit != Edit::Delete).then(|| edit.bytes().to_vec()))
            }).collect();
            prop_assert_eq!(changes.iter().count() - ranges.len(), model.len());
            prop_assert_eq!(&all, &model);
            let range_bytes: usize = ranges.iter().map(|range| 12 + range.key.len() + range.edit.bytes().len()).sum();
            let log_bytes: usize = range_bytes + model.iter().map(|((_, key), value)| 12 + key.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>();
            prop_assert_eq!(changes.log_bytes(), 8 + log_bytes);
            let range = KeyRange { from: std::ops::Bound::Included(&[5]), to: std::ops::Bound::Excluded(&[30]) };
            let found: Vec<u8> = changes.scanned(TreeId(1)).in_range(range, Direction::Backward).map(|(key, _)| key[0]).collect();
            let mut expected: Vec<u8> = model.keys().filter(|(tree, key)| *tree == 1 && (5..30).contains(&key[0])).map(|(_, key)| key[0]).collect();
            expected.reverse();
            prop_assert_eq!(found, expected);
        }
    }

    /// Keys read for a statement that writes this many documents: each with its index entry, a view, the search for the last
    /// document, and a deleted range.
    fn keys_read(documents: u32) -> usize {
        let [rows, entries, view, other] = [TreeId(1), TreeId(2), TreeId(3), TreeId(4)];
        KEYS_READ.set(0);
        let mut changes = Changes::new(usize::MAX, "transaction");
        for document in 0..documents {
            let (key, above) = (document.to_be_bytes(), (document + 1).to_be_bytes());
            assert!(!changes.folds_into(rows) && changes.get(rows, &key).is_none());
            changes.put(rows, &key, b"value", false);
            changes.delete(entries, &key);
            changes.fold(view, &key, b"operand");
            changes.put(other, &key, b"", false);
            changes.delete_range(other, KeyRange { from: Bound::Included(&key), to: Bound::Excluded(&above) });
            let last = changes.scanned(rows).in_range(KeyRange::ALL, Direction::Backward).next();
            assert_eq!(last, Some((key.as_slice(), Some(b"value".as_slice()))));
        }
        assert!(changes.folds_into(view) && changes.changed_trees().eq([rows, entries, other]));
        assert!(changes.take_failure().is_none());
        KEYS_READ.get()
    }

    #[test]
    fn twice_as_many_documents_take_twice_the_work() {
        let (one, two) = (keys_read(500), keys_read(1000));
        assert!(two < 3 * one, "{two} keys are read for twice as many documents, {one} before");
    }

    #[test]
    fn what_is_too_large_is_remembered_until_the_commit() {
        let mut changes = Changes::new(1000, "transaction");
        changes.put(TreeId(1), &[0; KEY_BYTES_MAX + 1], b"", false);
        assert!(matches!(changes.take_failure(), Some(StoreError::Limit { what: "key", .. })));
        changes.put(TreeId(1), b"k", &[0; 2000], false);
        assert!(matches!(changes.take_failure(), Some(StoreError::Limit { what: "transaction", .. })));
        changes.clear();
        changes.put(TreeId(1), b"k", b"short", true);
        assert!(matches!(changes.take_failure(), Some(StoreError::Limit { .. })));
    }
}
