//! The removal of expired documents.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use super::{CollectionId, DocumentDatabase, WriteKind};
use crate::encoding::key::shown_key;
use crate::encoding::{Scalar, order};
use crate::engine::{self, Direction, KeyRange, ReadView};
use crate::error::{ReadError, WriteError};
use crate::expire::{AtWrite, ExpiryLimit, WithoutTime};
use crate::writes::{Collection, Op, Precondition, Share, ShareOf, scratch, write};

/// Documents in one transaction. Few, so that other writes are not delayed for long and a retry is short.
const BATCH_DOCUMENTS: usize = 64;

/// Result of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Documents removed.
    pub removed: u64,
    /// Expired documents that stay because others refer to them.
    pub blocked: u64,
    /// Expired documents that cannot be removed for another reason.
    pub unremovable: u64,
    /// The first of the unremovable documents, and the reason.
    pub why: Option<String>,
    /// Whether the sweep has not reached the end.
    pub has_more: bool,
    /// How long the oldest scanned document has been expired, in milliseconds, if its field is a number.
    pub lag_ms: u64,
}

/// A sweep over the index of times. Each call continues after the documents seen before, so that documents that cannot be
/// removed do not block others.
#[derive(Debug)]
pub struct Sweep {
    collection: CollectionId,
    due: ExpiryLimit,
    index: usize,
    ranges: VecDeque<Range>,
}

/// A part of an index that is still to be scanned.
#[derive(Debug)]
struct Range {
    from: Bound<Vec<u8>>,
    to: Vec<u8>,
}

impl DocumentDatabase {
    /// The collections whose documents expire.
    pub fn expiring(&self) -> Vec<CollectionId> {
        let infos = self.catalog().collections.iter().enumerate();
        infos.filter(|(_, info)| info.expire.is_some()).map(|(place, _)| CollectionId(place)).collect()
    }

    /// Starts the removal of documents that are expired as of now.
    pub fn sweep(&self, collection: CollectionId) -> Sweep {
        let info = &self.collection_at(collection).info;
        let Some(expire) = &info.expire else {
            return Sweep { collection, due: ExpiryLimit::at(i64::MIN, 0), index: 0, ranges: VecDeque::new() };
        };
        let due = ExpiryLimit::of(expire, self.clock().now_ms());
        let ranges = ranges(&due);
        Sweep { collection, due, index: expire.index, ranges }
    }

    /// Continues a sweep: scans up to `limit` documents, and removes them in small transactions.
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
                // Not negative: the time has passed.
                swept.lag_ms = ((sweep.due.seconds() - first) * 1000.0).round() as u64;
            }
            left -= keys.keys.len();
            if !keys.keys.is_empty()
                && let Some(_passing) = self.pass(WriteKind::Long)
            {
                self.remove(collection, &sweep.due, &keys.keys, &mut swept)?;
            }
            if keys.keys.len() < most {
                sweep.ranges.pop_front();
            }
        }
        Ok(swept)
    }

    /// Removes the documents that are still expired, inside the gate; counts those that cannot be removed.
    fn remove(
        &self,
        collection: &Collection,
        due: &ExpiryLimit,
        keys: &[Vec<u8>],
        swept: &mut Swept,
    ) -> Result<(), WriteError> {
        let mut stays: Vec<bool> = vec![false; keys.len()];
        // Each document that stays costs a transaction of all. If there are several, each document has a transaction of its own.
        for _ in 0..2 {
            let going = keys.iter().enumerate().filter(|(number, _)| !stays[*number]);
            match self.remove_together(collection, due, &going.collect::<Vec<_>>()) {
                Ok(removed) => {
                    swept.removed += removed;
                    return Ok(());
                }
                // Such documents are found one by one, because a single deletion cannot be withdrawn from a transaction.
                Err(Stopped::Document(number, error)) => {
                    stays[number] = true;
                    swept.note(collection, &keys[number], &error);
                    if keys.len() == 1 {
                        return Ok(());
                    }
                }
                Err(Stopped::Together(error)) if keys.len() == 1 => {
                    swept.note(collection, &keys[0], &error);
                    return Ok(());
                }
                Err(Stopped::Together(_)) => break,
                Err(Stopped::Store(error)) => return Err(error),
            }
        }
        let going = keys.iter().zip(&stays).filter(|(_, stays)| !**stays);
        going.into_iter().try_for_each(|(key, _)| self.remove(collection, due, std::slice::from_ref(key), swept))
    }

    /// Removes documents in one transaction, except those that are no longer expired; returns their number.
    fn remove_together(
        &self,
        collection: &Collection,
        due: &ExpiryLimit,
        keys: &[(usize, &Vec<u8>)],
    ) -> Result<u64, Stopped> {
        let mut removal = Removal { collection, due, keys, runs: 0, removed: 0, refused: None };
        let commit = self.store().commit(&mut |tx| removal.run(tx));
        let Removal { removed, refused, .. } = removal;
        match (commit, refused) {
            (Ok(_), _) => Ok(removed),
            (Err(engine::StoreError::Aborted), Some((_, error @ (WriteError::Busy | WriteError::Unknown { .. })))) => {
                Err(Stopped::Store(error))
            }
            (Err(engine::StoreError::Aborted), Some((number, error))) => Err(Stopped::Document(number, error)),
            // The retry was stopped, since all commits would have waited for too long.
            (Err(engine::StoreError::Aborted), None) => Err(Stopped::Together(WriteError::Busy)),
            // A view refuses the resulting row, or the changes are too large for one transaction.
            (Err(error @ (engine::StoreError::Refused { .. } | engine::StoreError::Limit { .. })), _) => {
                Err(Stopped::Together(error.into()))
            }
            (Err(error), _) => Err(Stopped::Store(error.into())),
        }
    }
}

/// Documents that are removed in one transaction.
struct Removal<'r> {
    collection: &'r Collection,
    due: &'r ExpiryLimit,
    /// The keys with their numbers.
    keys: &'r [(usize, &'r Vec<u8>)],
    runs: u32,
    removed: u64,
    /// The document that cannot be removed, and why.
    refused: Option<(usize, WriteError)>,
}

impl Removal<'_> {
    /// Removes them. From the second run on, all commits wait.
    fn run(&mut self, tx: &mut engine::Tx<'_>) -> Result<(), engine::Abort> {
        self.runs += 1;
        let share = (self.runs > 1).then(|| Share::begin(ShareOf::Commits));
        self.run_within(share.as_ref(), tx)
    }

    fn run_within(&mut self, share: Option<&Share>, tx: &mut engine::Tx<'_>) -> Result<(), engine::Abort> {
        (self.removed, self.refused) = (0, None);
        for (place, &(number, key)) in self.keys.iter().enumerate() {
            // The first document is always removed, however long it takes.
            if place > 0 && share.is_some_and(Share::is_over) {
                return Err(engine::Abort);
            }
            match scratch::with(|scratch| remove_one(self.collection, self.due, key, tx, scratch)) {
                Ok(was_there) => self.removed += u64::from(was_there),
                Err(error) => {
                    self.refused = Some((number, error));
                    return Err(engine::Abort);
                }
            }
        }
        Ok(())
    }
}

/// Why documents were not removed.
enum Stopped {
    /// The document of this number cannot be removed.
    Document(usize, WriteError),
    /// One of them cannot be removed, or not all in one transaction.
    Together(WriteError),
    /// Nothing can be removed now.
    Store(WriteError),
}

impl Swept {
    fn note(&mut self, collection: &Collection, key: &[u8], why: &WriteError) {
        if matches!(why, WriteError::Conflict { .. }) {
            self.blocked += 1;
            return;
        }
        self.unremovable += 1;
        let info = &collection.info;
        self.why.get_or_insert_with(|| format!("{}/{}: {why}", info.name, shown_key(info.key.kind, key)));
    }
}

fn remove_one(
    collection: &Collection,
    due: &ExpiryLimit,
    key: &[u8],
    tx: &mut engine::Tx<'_>,
    scratch: &mut scratch::WriteScratch,
) -> Result<bool, WriteError> {
    if !write::is_due(collection, due, key, tx, scratch)? {
        return Ok(false);
    }
    // Without an expiry limit, so that the document exists for this deletion.
    let op = Op::Delete { key: key.to_vec() };
    write::apply_to_all(collection, (&op, &AtWrite::default()), &Precondition::None, tx, scratch).map(|_| true)
}

/// The expired ranges of an index's first field: numbers, then texts. For expiry by last write, documents without a time expire
/// with the numbers.
fn ranges(due: &ExpiryLimit) -> VecDeque<Range> {
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
    /// The first entry's time, if it is a number.
    first: Option<f64>,
}

/// The stored keys of up to `most` documents in a range; the range is advanced past them.
fn keys(
    snapshot: &engine::StoreSnapshot<'_>,
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
    ReadView::scan(snapshot, collection.info.indexes[index].tree, wanted, Direction::Forward, &mut |entry, _| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::database::Write;
    use crate::writes::share::AGAIN_TIME;

    const ITEMS: &str =
        "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\nexpire = \"until\"\nindexes = [[\"until\"]]\n";

    #[test]
    fn documents_that_take_long_where_all_commit_go_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse("c.toml".as_ref(), ITEMS).unwrap();
        let database = DocumentDatabase::open(&config, folder.path(), engine::StoreOptions::default()).unwrap().0;
        let (id, collection) = (CollectionId(0), database.collection_at(CollectionId(0)));
        let keys: Vec<Vec<u8>> = (1..4u32).map(|id| id.to_be_bytes().to_vec()).collect();
        for number in 1..4 {
            let op = Op::Insert { body: format!("{{\"id\":{number},\"until\":1}}").into_bytes() };
            database.write_now(&Write { collection: id, op, precondition: Precondition::None }).unwrap();
        }
        let sweep = database.sweep(id);
        let keys: Vec<(usize, &Vec<u8>)> = keys.iter().enumerate().collect();
        let removed_again = |keys: &[(usize, &Vec<u8>)]| {
            let mut removal = Removal { collection, due: &sweep.due, keys, runs: 1, removed: 0, refused: None };
            let commit = database.store().commit(&mut |tx| {
                let share = Share::begin(ShareOf::Commits);
                std::thread::sleep(AGAIN_TIME * 2);
                removal.run_within(Some(&share), tx)
            });
            (commit.is_ok(), removal.removed, removal.refused.is_none())
        };
        assert_eq!(removed_again(&keys), (false, 1, true));
        assert_eq!(removed_again(&keys[1..2]), (true, 1, true));
        let mut sweep = database.sweep(id);
        assert_eq!(database.expire(&mut sweep, 100).unwrap().removed, 2);
    }
}
