//! Keys that the collection gives to documents that come without one.
//!
//! - `counter`: the numbers from 1 on, for number keys. A number is given once, whatever becomes of the document: an insert
//!   that is refused leaves a gap, and so does a restart ([`BLOCK`] at most). Numbers that documents bring themselves are
//!   stepped over.
//! - `uuid`: version 7 of RFC 9562, for text keys: they sort by the time at which they were made.
//!
//! The counter is in memory, so inserts beside each other do not conflict. What is on disk is a number that none given so
//! far has reached: row NAME of the tree `sequences`, 8 bytes, little-endian, moved ahead by the transaction that first
//! reaches it.

use std::ops::{Bound, ControlFlow};
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
    Counter(Counter),
    Uuid,
}

/// Numbers, each given once.
#[derive(Debug)]
pub(crate) struct Counter {
    next: AtomicI64,
    sequences: TreeId,
}

/// A key as a document has it, in JSON.
type Made = String;

impl Keys {
    /// Those of a collection that makes keys, as of now.
    pub(crate) fn open(store: &Store, view: &impl View, info: &CollectionInfo) -> Result<Option<Keys>, ReadError> {
        Ok(match info.key.generate {
            None => None,
            Some(Generate::Uuid) => Some(Keys::Uuid),
            Some(Generate::Counter) => {
                let sequences = store.tree(TREE)?;
                let reserved = view.get(sequences, info.name.as_bytes())?.map_or(0, |row| number(&row));
                let mut last = None;
                view.scan(info.tree, ALL, Direction::Backward, &mut |key, _| {
                    last = of_key(info, key);
                    ControlFlow::Break(())
                })?;
                let next = AtomicI64::new(behind(last).max(reserved));
                Some(Keys::Counter(Counter { next, sequences }))
            }
        })
    }

    /// A key that no document has, as JSON.
    pub(crate) fn make<C: Change>(&self, info: &CollectionInfo, change: &mut C) -> Result<Made, WriteError> {
        match self {
            Keys::Uuid => Ok(format!("\"{}\"", uuid::Uuid::now_v7())),
            Keys::Counter(counter) => counter.make(info, change),
        }
    }

    /// A document came with a key of its own.
    pub(crate) fn met(&self, key: &Key<'_>) {
        if let (Keys::Counter(counter), Scalar::Integer(number)) = (self, key.scalar())
            && number >= counter.next.load(Ordering::Relaxed)
        {
            counter.next.fetch_max(behind(Some(number)), Ordering::Relaxed);
        }
    }
}

impl Counter {
    fn make<C: Change>(&self, info: &CollectionInfo, change: &mut C) -> Result<Made, WriteError> {
        for _ in 0..TRIES_MAX {
            // At the end of all numbers it stays there.
            let given = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
            let given = given.unwrap_or(i64::MAX);
            let Some(key) = info.key.kind.of_scalar(Scalar::Integer(given)).filter(|_| given < i64::MAX) else { break };
            if change.get(info.tree, key.as_bytes())?.is_none() {
                self.reserve(given, info, change)?;
                return Ok(given.to_string());
            }
            let mut last = None;
            change.scan(info.tree, ALL, Direction::Backward, &mut |key, _| {
                last = of_key(info, key);
                ControlFlow::Break(())
            })?;
            self.next.fetch_max(behind(last), Ordering::Relaxed);
        }
        Err(WriteError::Conflict { what: format!("{} has no number left for a key", info.name) })
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
