//! The record of what the writers of a simulated store did, so that the expected content after any number of their
//! transactions is known.
//!
//! Each writer has keys of its own (their first byte is its number) in trees that all writers share, and numbers its
//! transactions. Transaction n puts n into the writer's row of the tree [`COUNTS`] along with its other changes. So the store
//! itself shows how many of each writer's transactions it holds, and all other content must be exactly what these did.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use store::{Direction, KeyRange, Store};

/// The tree with the writers' counts.
pub(crate) const COUNTS: &str = "counts";

/// The number of deleted keys of a tree that are looked up.
const GONE_LOOKED_UP: usize = 4;

/// The identity of a value, from which its bytes are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) number: u64,
    pub(crate) operation: u32,
    pub(crate) len: u32,
}

impl Stamp {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![(self.number * 31 + u64::from(self.operation)) as u8; self.len as usize];
        let head = [&self.number.to_le_bytes()[..], &self.operation.to_le_bytes()].concat();
        let count = head.len().min(bytes.len());
        bytes[..count].copy_from_slice(&head[..count]);
        bytes
    }
}

/// An operation of a transaction besides its count.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put {
        tree: String,
        key: Vec<u8>,
        stamp: Stamp,
    },
    Delete {
        tree: String,
        key: Vec<u8>,
    },
    /// Deletes all keys of the writer from the first one on and below the other one, including those that the
    /// transaction has put before.
    DeleteRange {
        tree: String,
        from: Vec<u8>,
        to: Vec<u8>,
    },
}

impl Operation {
    pub(crate) fn tree(&self) -> &str {
        match self {
            Operation::Put { tree, .. } | Operation::Delete { tree, .. } | Operation::DeleteRange { tree, .. } => tree,
        }
    }
}

/// Changes of one key: the number of the transaction, and the new value.
type Changes = Vec<(u64, Option<Stamp>)>;

/// Everything that one writer did.
#[derive(Clone, Default)]
pub(crate) struct Writer {
    trees: BTreeMap<String, BTreeMap<Vec<u8>, Changes>>,
    /// The operations of each transaction, to be compared with the changes that are read.
    operations: BTreeMap<u64, Vec<Operation>>,
    /// Transactions that were begun.
    pub(crate) begun: u64,
    /// Trees that it attached, with the number of the transaction.
    pub(crate) attached: Vec<(u64, String)>,
    /// Versions of the acknowledged transactions.
    versions: BTreeMap<u64, u64>,
}

impl Writer {
    /// Records the next transaction, before it is committed.
    pub(crate) fn begin(&mut self, operations: &[Operation]) -> u64 {
        self.begun += 1;
        operations.iter().for_each(|operation| self.add(self.begun, operation));
        self.operations.insert(self.begun, operations.to_vec());
        self.begun
    }

    /// Records an operation of this transaction. Transactions are recorded in ascending order.
    pub(crate) fn add(&mut self, number: u64, operation: &Operation) {
        let keys = self.trees.entry(operation.tree().to_string()).or_default();
        let put = |changes: &mut Changes, stamp| {
            changes.retain(|(at, _)| *at < number);
            changes.push((number, stamp));
        };
        match operation {
            Operation::Put { key, stamp, .. } => put(keys.entry(key.clone()).or_default(), Some(*stamp)),
            Operation::Delete { key, .. } => put(keys.entry(key.clone()).or_default(), None),
            Operation::DeleteRange { from, to, .. } => {
                keys.range_mut(from.clone()..to.clone()).for_each(|(_, changes)| put(changes, None));
            }
        }
    }

    /// All recorded changes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&str, &[u8], u64, Option<Stamp>)> {
        self.trees
            .iter()
            .flat_map(|(tree, keys)| keys.iter().map(|(key, changes)| (tree.as_str(), key.as_slice(), changes)))
            .flat_map(|(tree, key, changes)| changes.iter().map(move |(number, stamp)| (tree, key, *number, *stamp)))
    }

    pub(crate) fn acknowledge(&mut self, number: u64, version: u64) {
        self.versions.insert(number, version);
    }

    pub(crate) fn tree_names(&self) -> impl Iterator<Item = &str> {
        self.trees.keys().map(String::as_str)
    }

    /// The operations of a transaction, if they are known.
    pub(crate) fn operations_of(&self, number: u64) -> Option<&[Operation]> {
        self.operations.get(&number).map(Vec::as_slice)
    }

    /// The version of a transaction, if it was acknowledged.
    pub(crate) fn version_of(&self, number: u64) -> Option<u64> {
        self.versions.get(&number).copied()
    }

    /// The last acknowledged transaction, or 0.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.versions.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Forgets the later transactions: they were lost, or were never committed.
    pub(crate) fn go_back_to(&mut self, number: u64) {
        for keys in self.trees.values_mut() {
            for changes in keys.values_mut() {
                changes.retain(|(at, _)| *at <= number);
            }
            keys.retain(|_, changes| !changes.is_empty());
        }
        self.begun = number;
        self.operations.retain(|at, _| *at <= number);
        self.attached.retain(|(at, _)| *at <= number);
        self.versions.retain(|at, _| *at <= number);
    }

    /// Only states from this one on are needed: of the older changes only the last one of each key is kept.
    pub(crate) fn forget_before(&mut self, number: u64) {
        for keys in self.trees.values_mut() {
            for changes in keys.values_mut() {
                let last = changes.iter().rposition(|(at, _)| *at <= number).unwrap_or(0);
                changes.drain(..last);
            }
            keys.retain(|_, changes| changes.len() > 1 || changes.first().is_some_and(|(_, stamp)| stamp.is_some()));
        }
    }

    /// The entries of one tree after `number` transactions.
    pub(crate) fn entries(&self, tree: &str, number: u64) -> impl Iterator<Item = (&[u8], Stamp)> {
        self.trees.get(tree).into_iter().flatten().filter_map(move |(key, changes)| {
            let last = changes.iter().rfind(|(at, _)| *at <= number)?;
            last.1.map(|stamp| (key.as_slice(), stamp))
        })
    }
}

/// The writers of a store.
pub(crate) type History = Vec<Writer>;

/// The limits of each writer's count of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: Vec<u64>,
    pub(crate) high: Vec<u64>,
}

impl Bounds {
    /// Exactly these.
    pub(crate) fn exact(counts: &[u64]) -> Bounds {
        Bounds { low: counts.to_vec(), high: counts.to_vec() }
    }
}

/// Compares the whole content of a store with the history; returns the number of each writer's transactions that it holds.
pub(crate) fn check(store: &Store, history: &[Writer], bounds: &Bounds) -> Result<Vec<u64>, String> {
    let report = store.verify();
    if !report.is_clean() {
        return Err(format!("verify: {:?}", report.faults));
    }
    let counts = counts(store, history.len())?;
    for (writer, count) in counts.iter().enumerate() {
        let (low, high) = (bounds.low[writer], bounds.high[writer]);
        if !(low..=high).contains(count) {
            return Err(format!("writer {writer}: {count} transactions, of {low} that must be there and {high} begun"));
        }
    }
    check_order(history, &counts)?;
    let mut trees: Vec<&String> = history.iter().flat_map(|writer| writer.trees.keys()).collect();
    trees.sort_unstable();
    trees.dedup();
    for tree in trees {
        check_tree(store, tree, history, &counts).map_err(|wrong| format!("{counts:?}, tree {tree}: {wrong}"))?;
    }
    Ok(counts)
}

/// The same for one writer of several, all of whose transactions have ended; returns their number.
pub(crate) fn check_writer(store: &Store, number: usize, writer: &Writer) -> Result<u64, String> {
    let report = store.verify();
    if !report.is_clean() {
        return Err(format!("verify: {:?}", report.faults));
    }
    let count = counts(store, number + 1)?[number];
    for tree in writer.trees.keys() {
        let range = KeyRange { from: Bound::Included(&[number as u8]), to: Bound::Excluded(&[number as u8 + 1]) };
        check_range(store, tree, range, writer.entries(tree, count))
            .map_err(|wrong| format!("tree {tree}: {wrong}"))?;
    }
    Ok(count)
}

fn counts(store: &Store, writers: usize) -> Result<Vec<u64>, String> {
    let Some(tree) = store.existing_tree(COUNTS).map_err(|error| error.to_string())? else {
        return Ok(vec![0; writers]);
    };
    let reader = store.reader().map_err(|error| error.to_string())?;
    let snapshot = reader.snapshot();
    let count = |writer: usize| {
        let found = snapshot.get(tree, &[writer as u8]).map_err(|error| error.to_string())?;
        Ok(found.map_or(0, |bytes| u64::from_le_bytes((*bytes).try_into().unwrap())))
    };
    (0..writers).map(count).collect()
}

/// The transactions in the store are a prefix of the order in which they were committed.
fn check_order(history: &[Writer], counts: &[u64]) -> Result<(), String> {
    let pairs = || history.iter().zip(counts);
    let newest_kept =
        pairs().filter_map(|(writer, count)| writer.versions.range(..=*count).map(|(_, v)| *v).max()).max();
    let oldest_lost =
        pairs().filter_map(|(writer, count)| writer.versions.range(count + 1..).map(|(_, v)| *v).min()).min();
    match (newest_kept, oldest_lost) {
        (Some(kept), Some(lost)) if kept > lost => Err(format!("version {kept} is there, {lost} before it is not")),
        _ => Ok(()),
    }
}

fn check_tree(store: &Store, name: &str, history: &[Writer], counts: &[u64]) -> Result<(), String> {
    let expected = history.iter().zip(counts).flat_map(|(writer, count)| writer.entries(name, *count));
    check_range(store, name, KeyRange::ALL, expected)?;
    history.iter().zip(counts).try_for_each(|(writer, count)| check_gone(store, name, writer, *count))
}

/// Lookups of some of the deleted keys find nothing.
fn check_gone(store: &Store, name: &str, writer: &Writer, count: u64) -> Result<(), String> {
    let Some(tree) = store.existing_tree(name).map_err(|error| error.to_string())? else { return Ok(()) };
    let reader = store.reader().map_err(|error| error.to_string())?;
    let snapshot = reader.snapshot();
    let is_gone =
        |changes: &Changes| changes.iter().rfind(|(at, _)| *at <= count).is_some_and(|(_, stamp)| stamp.is_none());
    let keys = writer.trees.get(name).into_iter().flatten();
    for (key, _) in keys.filter(|(_, changes)| is_gone(changes)).take(GONE_LOOKED_UP) {
        if snapshot.get(tree, key).map_err(|error| error.to_string())?.is_some() {
            return Err(format!("{key:?} is found, and deleted"));
        }
    }
    Ok(())
}

fn check_range<'h>(
    store: &Store,
    name: &str,
    range: KeyRange<'_>,
    mut expected: impl Iterator<Item = (&'h [u8], Stamp)>,
) -> Result<(), String> {
    let Some(tree) = store.existing_tree(name).map_err(|error| error.to_string())? else {
        return expected.next().map_or(Ok(()), |(key, stamp)| Err(format!("it is not there, nor {key:?} {stamp:?}")));
    };
    let reader = store.reader().map_err(|error| error.to_string())?;
    let snapshot = reader.snapshot();
    let mut wrong = None;
    let mut last = None;
    let scanned = snapshot.scan(tree, range, Direction::Forward, &mut |key, value| match expected.next() {
        Some((wanted, stamp)) if wanted == key && stamp.bytes() == value => {
            last = Some((key.to_vec(), stamp));
            ControlFlow::Continue(())
        }
        other => {
            let head = &value[..value.len().min(12)];
            wrong = Some(format!("found {key:?} with {} bytes {head:?}, not {other:?}", value.len()));
            ControlFlow::Break(())
        }
    });
    scanned.map_err(|error| error.to_string())?;
    if let Some((key, stamp)) = expected.next().filter(|_| wrong.is_none()) {
        wrong = Some(format!("{key:?} {stamp:?} is missing"));
    }
    // The last key by a lookup too, which uses another code path.
    if let Some((key, stamp)) = last.filter(|_| wrong.is_none()) {
        let found = snapshot.get(tree, &key).map_err(|error| error.to_string())?;
        if found.as_deref() != Some(&stamp.bytes()) {
            wrong = Some(format!("{key:?} is scanned and not found"));
        }
    }
    wrong.map_or(Ok(()), Err)
}
