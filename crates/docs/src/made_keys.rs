//! Keys that the collection gives to documents that come without one.
//!
//! - `counter`: the numbers from 1 on, for number keys. A number is given once, whatever becomes of the document: an insert
//!   that is refused leaves a gap, and so does a crash ([`BLOCK`] at most), and a statement or steps that are begun again because others
//!   changed what they read. Numbers that stored documents brought themselves are stepped over.
//! - `uuid`: version 7 of RFC 9562, for text keys: they sort by the time at which they were made.
//!
//! The counter is in memory, so inserts beside each other do not conflict. What is on disk is a number that none given so
//! far has reached: row NAME of the tree `sequences`, 8 bytes, little-endian, moved ahead by the transaction that first
//! reaches it. A clean end writes the next number itself, another configuration goes on with the counter in memory, and a write that
//! is prepared again keeps its number: none of them leaves a gap.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use store::Store;

use crate::catalog::CollectionInfo;
use crate::engine::{Change, Direction, KeyRange, TreeId, View};
use crate::error::{ReadError, WriteError};
use crate::generate::Generate;
use crate::key::Key;
use crate::order::Scalar;

/// The tree of what is on disk of counters.
const TREE: &str = "sequences";
/// Numbers that the row on disk is ahead.
const BLOCK: i64 = 256;
/// Keys that are tried for one document. A number in use moves the counter behind all documents.
const TRIES_MAX: usize = 3;

/// What gives a collection's keys.
#[derive(Debug)]
pub(crate) enum Keys {
    Counter(Arc<Counter>),
    Uuid,
}

/// Numbers, each given once.
#[derive(Debug)]
pub(crate) struct Counter {
    next: AtomicI64,
    /// The largest number that a document brought since `make` looked last, perhaps one that was refused; 0: none.
    brought: AtomicI64,
    /// What `next` was when the row on disk was last known to be as far.
    settled: AtomicI64,
    /// The collection's tree, and that of the rows.
    documents: TreeId,
    sequences: TreeId,
}

/// A key as a document has it, in JSON.
type Made = String;

impl Keys {
    /// Those of a collection that makes keys, as of now; of one that has made them by another configuration until now, the same.
    pub(crate) fn open(
        store: &Store,
        view: &impl View,
        info: &CollectionInfo,
        until_now: Option<&Keys>,
    ) -> Result<Option<Keys>, ReadError> {
        Ok(match (info.key.generate, until_now) {
            (None, _) => None,
            (Some(Generate::Uuid), _) => Some(Keys::Uuid),
            (Some(Generate::Counter), Some(Keys::Counter(counter))) if counter.documents == info.tree => {
                Some(Keys::Counter(Arc::clone(counter)))
            }
            (Some(Generate::Counter), _) => {
                let sequences = store.tree(TREE)?;
                let reserved = view.get(sequences, info.name.as_bytes())?.map_or(0, |row| number(&row));
                let mut last = None;
                view.scan(info.tree, ALL, Direction::Backward, &mut |key, _| {
                    last = of_key(info, key);
                    ControlFlow::Break(())
                })?;
                let next = behind(last).max(reserved);
                let (settled, next) = (AtomicI64::new(next), AtomicI64::new(next));
                let brought = AtomicI64::new(0);
                Some(Keys::Counter(Arc::new(Counter { next, brought, settled, documents: info.tree, sequences })))
            }
        })
    }

    /// A key that no document has, as JSON. `given` is the number that the same write had when it was prepared before; it is told here.
    pub(crate) fn make<C: Change>(
        &self,
        info: &CollectionInfo,
        given: &mut Option<i64>,
        change: &mut C,
    ) -> Result<Made, WriteError> {
        match self {
            Keys::Uuid => Ok(format!("\"{}\"", uuid::Uuid::now_v7())),
            Keys::Counter(counter) => counter.make(info, given, change),
        }
    }

    /// The tree, and the next number where the row on disk is to tell it: nobody writes any more. Not where another configuration has
    /// the counter too, and may give numbers.
    pub(crate) fn unsettled(&self) -> Option<(TreeId, [u8; 8])> {
        let Keys::Counter(counter) = self else { return None };
        if Arc::strong_count(counter) > 1 {
            return None;
        }
        let next = counter.next.load(Ordering::Relaxed);
        let is_known = counter.settled.swap(next, Ordering::Relaxed) == next;
        (!is_known).then(|| (counter.sequences, next.to_le_bytes()))
    }

    /// A document came with a key of its own. It may still be refused: so the counter only looks at what is stored when it gives the
    /// next number.
    pub(crate) fn met(&self, key: &Key<'_>) {
        if let (Keys::Counter(counter), Scalar::Integer(number)) = (self, key.scalar())
            && number >= counter.next.load(Ordering::Relaxed)
        {
            counter.brought.fetch_max(number, Ordering::Relaxed);
        }
    }
}

impl Counter {
    fn make<C: Change>(
        &self,
        info: &CollectionInfo,
        given: &mut Option<i64>,
        change: &mut C,
    ) -> Result<Made, WriteError> {
        if self.brought.swap(0, Ordering::Relaxed) >= self.next.load(Ordering::Relaxed) {
            self.step_over_all(info, change)?;
        }
        for _ in 0..TRIES_MAX {
            let number = given.take().unwrap_or_else(|| self.give());
            let Some(key) = info.key.kind.of_scalar(Scalar::Integer(number)).filter(|_| number < i64::MAX) else {
                break;
            };
            if change.get(info.tree, key.as_bytes())?.is_none() {
                self.reserve(number, info, change)?;
                *given = Some(number);
                return Ok(number.to_string());
            }
            self.step_over_all(info, change)?;
        }
        Err(WriteError::Conflict { what: format!("{} has no number left for a key", info.name) })
    }

    /// Moves the counter behind all documents that are stored.
    fn step_over_all<C: Change>(&self, info: &CollectionInfo, change: &mut C) -> Result<(), WriteError> {
        let mut last = None;
        change.scan(info.tree, ALL, Direction::Backward, &mut |key, _| {
            last = of_key(info, key);
            ControlFlow::Break(())
        })?;
        self.next.fetch_max(behind(last), Ordering::Relaxed);
        Ok(())
    }

    /// The next number; at the end of all numbers it stays there.
    fn give(&self) -> i64 {
        let given = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        given.unwrap_or(i64::MAX)
    }

    /// Moves the row on disk ahead, where this number has reached it. Transactions beside it may do the same, and what each
    /// of them writes is ahead of its own number; one that read the row before it moved is prepared again.
    fn reserve<C: Change>(&self, given: i64, info: &CollectionInfo, change: &mut C) -> Result<(), WriteError> {
        let name = info.name.as_bytes();
        let reserved = change.get(self.sequences, name)?.map_or(0, |row| number(&row));
        if given >= reserved {
            change.put(self.sequences, name, &given.saturating_add(BLOCK).to_le_bytes());
        }
        Ok(())
    }
}

const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

fn number(row: &[u8]) -> i64 {
    row.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn of_key(info: &CollectionInfo, key: &[u8]) -> Option<i64> {
    match info.key.kind.of_bytes(key)?.scalar() {
        Scalar::Integer(number) => Some(number),
        _ => None,
    }
}

/// The number behind the last one; they begin at 1.
fn behind(last: Option<i64>) -> i64 {
    last.map_or(1, |last| last.saturating_add(1)).max(1)
}
