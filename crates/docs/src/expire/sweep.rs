//! The removal of documents whose time has come.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use super::{Due, WithoutTime};
use crate::collection::Collection;
use crate::database::{CollectionId, Database};
use crate::engine::{Direction, KeyRange, View};
use crate::error::{ReadError, WriteError};
use crate::gate::Kind;
use crate::order::{self, Scalar};
use crate::write::{Op, Precondition};
use crate::{scratch, write};

/// Documents of one transaction: small, so that other writes do not wait, nor are redone, for long.
const BATCH_DOCUMENTS: usize = 64;

/// What one call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Documents removed.
    pub removed: u64,
    /// Documents whose time has come, and to which others refer.
    pub blocked: u64,
    /// Whether the sweep has not seen all.
    pub has_more: bool,
    /// How long the one is due that waits longest, in milliseconds, where its field is a number; of those that were looked at.
    pub lag_ms: u64,
}

/// A sweep over the index of times: it goes on behind what it has seen, so that documents which cannot go hold up no others.
#[derive(Debug)]
pub struct Sweep {
    collection: CollectionId,
    due: Due,
    index: usize,
    ranges: VecDeque<Range>,
}

/// A part of an index that is still to be seen.
#[derive(Debug)]
struct Range {
    from: Bound<Vec<u8>>,
    to: Vec<u8>,
}

impl Database {
    /// The collections whose documents expire.
    pub fn expiring(&self) -> Vec<CollectionId> {
        let infos = self.catalog().collections.iter().enumerate();
        infos.filter(|(_, info)| info.expire.is_some()).map(|(place, _)| CollectionId(place)).collect()
    }

    /// Begins to remove documents whose time has come, as of the clock now.
    pub fn sweep(&self, collection: CollectionId) -> Sweep {
        let info = &self.collection_at(collection).info;
        let Some(expire) = &info.expire else {
            return Sweep { collection, due: Due::at(i64::MIN, 0), index: 0, ranges: VecDeque::new() };
        };
        let due = Due::of(expire, self.clock().now_ms());
        let ranges = ranges(&due);
        Sweep { collection, due, index: expire.index, ranges }
    }

    /// Goes on with a sweep: looks at up to `limit` documents, and removes them in small transactions.
    pub fn expire(&self, sweep: &mut Sweep, limit: usize) -> Result<Swept, WriteError> {
        let collection = self.collection_at(sweep.collection);
        let reader = self.store().reader()?;
        let (mut swept, mut left) = (Swept::default(), limit);
        while let Some(range) = sweep.ranges.front_mut() {
            let most = left.min(BATCH_DOCUMENTS);
            if most == 0 {
                swept.has_more = true;
                break;
            }
            let keys = {
                let snapshot = reader.snapshot();
                let keys = keys(&snapshot, collection, sweep.index, range, most)?;
                snapshot.check()?;
                keys
            };
            let is_first = swept.lag_ms == 0 && !keys.keys.is_empty();
            if let Some(first) = sweep.due.time_of(keys.first).filter(|_| is_first) {
                // Not below zero: it has come.
                swept.lag_ms = ((sweep.due.seconds() - first) * 1000.0).round() as u64;
            }
            left -= keys.keys.len();
            self.remove(collection, &sweep.due, &keys.keys, &mut swept)?;
            if keys.keys.len() < most {
                sweep.ranges.pop_front();
            }
        }
        Ok(swept)
    }

    /// Removes those of the documents that are still due, and to which nobody refers.
    fn remove(
        &self,
        collection: &Collection,
        due: &Due,
        keys: &[Vec<u8>],
        swept: &mut Swept,
    ) -> Result<(), WriteError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut blocked: Vec<bool> = vec![false; keys.len()];
        let Some(_passing) = self.pass(Kind::Long) else { return Ok(()) };
        // What is referred to is found one by one: its deletion cannot be taken out of a transaction again.
        loop {
            let (mut removed, mut refused) = (0, None);
            let commit = self.store().commit(&mut |tx| {
                (removed, refused) = (0, None);
                for (number, key) in keys.iter().enumerate().filter(|(number, _)| !blocked[*number]) {
                    match scratch::with(|scratch| remove_one(collection, due, key, tx, scratch)) {
                        Ok(was_there) => removed += u64::from(was_there),
                        Err(error) => {
                            refused = Some((number, error));
                            return Err(store::Abort);
                        }
                    }
                }
                Ok(())
            });
            match (commit, refused) {
                (Err(store::Error::Aborted), Some((number, WriteError::Conflict { .. }))) => {
                    blocked[number] = true;
                    swept.blocked += 1;
                }
                (Err(store::Error::Aborted), Some((_, error))) => return Err(error),
                (Err(error), _) => return Err(error.into()),
                (Ok(_), _) => {
                    swept.removed += removed;
                    return Ok(());
                }
            }
        }
    }
}

fn remove_one(
    collection: &Collection,
    due: &Due,
    key: &[u8],
    tx: &mut store::Tx<'_>,
    scratch: &mut scratch::Scratch,
) -> Result<bool, WriteError> {
    if !write::is_due(collection, due, key, tx, scratch)? {
        return Ok(false);
    }
    // By its key alone: for this deletion the document is there.
    let op = Op::Delete { key: key.to_vec() };
    write::apply_to_all(collection, (&op, None), &Precondition::None, tx, scratch).map(|_| true)
}

/// The ranges of an index's first field that have come: numbers, then texts; where the time of the last write is noted, that what
/// has none goes with the numbers.
fn ranges(due: &Due) -> VecDeque<Range> {
    let (mut numbers, mut texts) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    order::upper(Scalar::Real(due.seconds()), &mut numbers.1);
    match due.without_time() {
        WithoutTime::Never => order::upper(Scalar::Null, &mut numbers.0),
        WithoutTime::Nothing => return VecDeque::new(),
        WithoutTime::All => return [Range { from: Bound::Included(numbers.0), to: numbers.1 }].into(),
    }
    order::lower(Scalar::Text(""), &mut texts.0);
    order::upper(Scalar::Text(due.text()), &mut texts.1);
    [numbers, texts].map(|(from, to)| Range { from: Bound::Included(from), to }).into()
}

struct Keys {
    keys: Vec<Vec<u8>>,
    /// The first one's time, where it is a number.
    first: Option<f64>,
}

/// The stored keys of up to `most` documents in a range, which is moved behind them.
fn keys(
    snapshot: &store::Snapshot<'_>,
    collection: &Collection,
    index: usize,
    range: &mut Range,
    most: usize,
) -> Result<Keys, ReadError> {
    let fields = collection.info.indexes[index].fields.len();
    let kind = collection.info.key.kind;
    let mut found = Keys { keys: Vec::new(), first: None };
    let (mut last, mut damaged) = (None, false);
    let from = range.from.as_ref().map(Vec::as_slice);
    let wanted = KeyRange { from, to: Bound::Excluded(&range.to) };
    View::scan(snapshot, collection.info.indexes[index].tree, wanted, Direction::Forward, &mut |entry, _| {
        let (mut rest, mut text, mut first) = (entry, Vec::new(), Vec::new());
        if found.keys.is_empty() {
            found.first = match order::decode(&mut &*entry, &mut first) {
                Some(Scalar::Integer(seconds)) => Some(seconds as f64),
                Some(Scalar::Real(seconds)) => Some(seconds),
                _ => None,
            };
        }
        let skipped = (0..fields).all(|_| order::skip(&mut rest).is_some());
        let key = order::decode(&mut rest, &mut text).filter(|_| skipped).and_then(|key| kind.of_scalar(key));
        match key {
            Some(key) => found.keys.push(key.as_bytes().to_vec()),
            None => damaged = true,
        }
        last = Some(entry.to_vec());
        if damaged || found.keys.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if damaged {
        return Err(ReadError::Damaged(format!("an index entry of {}", collection.info.name)));
    }
    if let Some(last) = last {
        range.from = Bound::Excluded(last);
    }
    Ok(found)
}
