//! Keys that a collection generates for documents without one.
//!
//! - `counter`: the numbers from 1 on, for number keys. Each number is given only once, even if the document is not stored. So
//!   gaps arise from a refused insert, from a crash (at most [`BLOCK`] numbers), and from a statement or steps that are
//!   retried because of concurrent writes. The counter steps over the documents that clients stored under numbers of their own,
//!   but no such number uses it up: it is never moved into the last [`LAST_PART`]th of the numbers by them, and there it skips
//!   the numbers in use one by one.
//! - `uuid`: version 7 of RFC 9562, for text keys: they sort by the time of creation.
//!
//! The counter is in memory, so concurrent inserts do not conflict. The row on disk (row NAME of the tree `sequences`, 8 bytes,
//! little-endian) is above all numbers given so far; the transaction whose number comes near it moves it ahead. There is no gap
//! after a clean end, which writes the next number itself, after a change of the configuration, which takes over the counter in
//! memory, or if a write is prepared again, since it keeps its number.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::catalog::{CollectionInfo, KeyGeneration};
use crate::encoding::{Key, KeyType, Scalar};
use crate::engine::{Direction, KeyRange, ReadView, Store, TreeId, WriteTransaction};
use crate::error::{ReadError, WriteError};

/// The tree of the counters' rows.
const TREE: &str = "sequences";
/// Numbers by which the row on disk is moved ahead.
const BLOCK: i64 = 256;
/// The transaction that is given the number exactly this far below the row moves the row ahead. So usually one transaction writes
/// the row, before the numbers below it are used up.
const AHEAD: i64 = BLOCK / 2;
/// Attempts to find a free number for one document. A number in use moves the counter past all documents.
const TRIES_MAX: usize = 3;
/// Documents move the counter up to the last part of the numbers of its type.
const LAST_PART: i64 = 16;

/// A collection's key generator.
#[derive(Debug)]
pub(crate) enum Keys {
    Counter(Arc<KeyCounter>),
    Uuid,
}

/// Numbers, each given once.
#[derive(Debug)]
pub(crate) struct KeyCounter {
    next: AtomicI64,
    /// The largest number chosen by a client since `make` last checked, possibly of a refused document; 0: none.
    brought: AtomicI64,
    /// The value of `next` up to which the row on disk need not be moved.
    settled: AtomicI64,
    /// The tree of the collection's documents, and that of the counters' rows.
    documents: TreeId,
    sequences: TreeId,
}

/// A key as JSON text.
type Made = String;

impl Keys {
    /// The generator of a collection. The counter of the previous configuration, if any, is taken over.
    pub(crate) fn open(
        store: &Store,
        view: &impl ReadView,
        info: &CollectionInfo,
        until_now: Option<&Keys>,
    ) -> Result<Option<Keys>, ReadError> {
        Ok(match (info.key.generate, until_now) {
            (None, _) => None,
            (Some(KeyGeneration::Uuid), _) => Some(Keys::Uuid),
            (Some(KeyGeneration::Counter), Some(Keys::Counter(counter))) if counter.documents == info.tree => {
                Some(Keys::Counter(Arc::clone(counter)))
            }
            (Some(KeyGeneration::Counter), _) => {
                let sequences = store.tree(TREE)?;
                // A row that is no number comes from a counter that was used up by a client's number.
                let reserved = view.get(sequences, info.name.as_bytes())?.map(|row| number(&row));
                let reserved = reserved.filter(|reserved| is_key(info, *reserved)).unwrap_or(0);
                let (mut last, bound) = (None, bound(info));
                view.scan(info.tree, until(bound.as_ref()), Direction::Backward, &mut |key, _| {
                    last = of_key(info, key);
                    ControlFlow::Break(())
                })?;
                let next = behind(last).max(reserved);
                let (settled, next) = (AtomicI64::new(next), AtomicI64::new(next));
                let brought = AtomicI64::new(0);
                Some(Keys::Counter(Arc::new(KeyCounter { next, brought, settled, documents: info.tree, sequences })))
            }
        })
    }

    /// A key that no document has, as JSON. `given` is the number from an earlier preparation of the same write; it is set
    /// here.
    pub(crate) fn make<C: WriteTransaction>(
        &self,
        info: &CollectionInfo,
        given: &mut Option<i64>,
        change: &mut C,
    ) -> Result<Made, WriteError> {
        match self {
            Keys::Uuid => Ok(uuid_text()),
            Keys::Counter(counter) => counter.make(info, given, change),
        }
    }

    /// A key that probably no document has, as JSON; [`Keys::claim`] decides. `None`: use [`Keys::make`]. `given` is as there.
    pub(crate) fn propose(&self, info: &CollectionInfo, given: &mut Option<i64>) -> Option<Made> {
        match self {
            Keys::Uuid => Some(uuid_text()),
            Keys::Counter(counter) => counter.propose(info, given),
        }
    }

    /// Gives the proposed key. `false`: a document has this number. Documents are not searched for a UUID.
    pub(crate) fn claim<C: WriteTransaction>(
        &self,
        info: &CollectionInfo,
        given: Option<i64>,
        change: &mut C,
    ) -> Result<bool, WriteError> {
        match (self, given) {
            (Keys::Uuid, _) => Ok(true),
            (Keys::Counter(counter), Some(number)) => counter.claim(number, info, change),
            (Keys::Counter(_), None) => Ok(false),
        }
    }

    /// The tree and the next number, if the row on disk must be updated at the end. `None` if another configuration shares the
    /// counter and may still give numbers.
    pub(crate) fn unsettled(&self) -> Option<(TreeId, [u8; 8])> {
        let Keys::Counter(counter) = self else { return None };
        if Arc::strong_count(counter) > 1 {
            return None;
        }
        let next = counter.next.load(Ordering::Relaxed);
        let is_known = counter.settled.swap(next, Ordering::Relaxed) == next;
        (!is_known).then(|| (counter.sequences, next.to_le_bytes()))
    }

    /// Records a key chosen by the client. The document may still be refused, so the counter reads the stored documents when
    /// it gives the next number.
    pub(crate) fn met(&self, key: &Key<'_>) {
        if let (Keys::Counter(counter), Scalar::Integer(number)) = (self, key.scalar())
            && number >= counter.next.load(Ordering::Relaxed)
        {
            counter.brought.fetch_max(number, Ordering::Relaxed);
        }
    }
}

impl KeyCounter {
    fn make<C: WriteTransaction>(
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
            if !is_key(info, number) {
                break;
            }
            if self.claim(number, info, change)? {
                *given = Some(number);
                return Ok(number.to_string());
            }
            self.step_over_all(info, change)?;
        }
        Err(WriteError::Conflict { what: format!("{} has no number left for a key", info.name) })
    }

    fn propose(&self, info: &CollectionInfo, given: &mut Option<i64>) -> Option<Made> {
        if self.brought.load(Ordering::Relaxed) >= self.next.load(Ordering::Relaxed) {
            return None;
        }
        let number = given.unwrap_or_else(|| self.give());
        *given = Some(number);
        is_key(info, number).then(|| number.to_string())
    }

    fn claim<C: WriteTransaction>(
        &self,
        number: i64,
        info: &CollectionInfo,
        change: &mut C,
    ) -> Result<bool, WriteError> {
        let Some(key) = info.key.kind.of_scalar(Scalar::Integer(number)) else { return Ok(false) };
        if change.get(info.tree, key.as_bytes())?.is_some() {
            return Ok(false);
        }
        self.reserve(number, info, change)?;
        Ok(true)
    }

    /// Moves the counter past all stored documents, except for those in the last part of the numbers. In that part it is moved past
    /// the documents that follow each other without a gap.
    fn step_over_all<C: WriteTransaction>(&self, info: &CollectionInfo, change: &mut C) -> Result<(), WriteError> {
        let (mut last, bound) = (None, bound(info));
        change.scan(info.tree, until(bound.as_ref()), Direction::Backward, &mut |key, _| {
            last = of_key(info, key);
            ControlFlow::Break(())
        })?;
        self.next.fetch_max(behind(last), Ordering::Relaxed);
        let mut next = self.next.load(Ordering::Relaxed);
        let Some(from) = info.key.kind.of_scalar(Scalar::Integer(next)) else { return Ok(()) };
        if bound.is_some_and(|bound| bound.as_bytes() < from.as_bytes()) {
            let range = KeyRange { from: Bound::Included(from.as_bytes()), to: Bound::Unbounded };
            change.scan(info.tree, range, Direction::Forward, &mut |key, _| {
                if of_key(info, key) != Some(next) || next == i64::MAX {
                    return ControlFlow::Break(());
                }
                next += 1;
                ControlFlow::Continue(())
            })?;
            self.next.fetch_max(next, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The next number; it stops at the largest one.
    fn give(&self) -> i64 {
        let given = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        given.unwrap_or(i64::MAX)
    }

    /// Moves the row on disk ahead in two cases: this number has reached the row, or it is exactly [`AHEAD`] below it. If several
    /// transactions move the row at once, each writes a value above its own number, and a transaction that read the row before
    /// another one moved it is prepared again.
    fn reserve<C: WriteTransaction>(
        &self,
        given: i64,
        info: &CollectionInfo,
        change: &mut C,
    ) -> Result<(), WriteError> {
        let name = info.name.as_bytes();
        // While the database is open the row only rises, so a number below it stays below. Were this read validated, each move of the
        // row would make all waiting inserts be prepared again.
        let reserved = change.peek(self.sequences, name)?.map_or(0, |row| number(&row));
        if given < reserved && given != reserved.saturating_sub(AHEAD) {
            return Ok(());
        }
        let reserved = change.get(self.sequences, name)?.map_or(0, |row| number(&row));
        if given >= reserved.saturating_sub(AHEAD) {
            change.put(self.sequences, name, &given.saturating_add(BLOCK).to_le_bytes());
        }
        Ok(())
    }
}

/// The last number before the part into which documents do not move the counter.
fn bound(info: &CollectionInfo) -> Option<Key<'static>> {
    let most = match info.key.kind {
        KeyType::U32 => i64::from(u32::MAX),
        KeyType::I64 => i64::MAX,
        KeyType::String => return None,
    };
    info.key.kind.of_scalar(Scalar::Integer(most - most / LAST_PART))
}

/// All keys up to this one.
fn until<'k>(last: Option<&'k Key<'_>>) -> KeyRange<'k> {
    KeyRange { from: Bound::Unbounded, to: last.map_or(Bound::Unbounded, |last| Bound::Included(last.as_bytes())) }
}

fn uuid_text() -> Made {
    format!("\"{}\"", uuid::Uuid::now_v7())
}

/// Whether a number can be given as a key.
fn is_key(info: &CollectionInfo, number: i64) -> bool {
    number < i64::MAX && info.key.kind.of_scalar(Scalar::Integer(number)).is_some()
}

fn number(row: &[u8]) -> i64 {
    row.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn of_key(info: &CollectionInfo, key: &[u8]) -> Option<i64> {
    match info.key.kind.of_bytes(key)?.scalar() {
        Scalar::Integer(number) => Some(number),
        _ => None,
    }
}

/// The number after the last one; numbers begin at 1.
fn behind(last: Option<i64>) -> i64 {
    last.map_or(1, |last| last.saturating_add(1)).max(1)
}
