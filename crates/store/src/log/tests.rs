//! The log as a whole: torn tails, recycled segments, damage.

use super::*;
use crate::disk::{Access, SystemDisk};

const SEGMENT_BYTES: u64 = 64 * 1024;
const SETTINGS: LogSettings = LogSettings { segment_bytes: SEGMENT_BYTES, sync_each: true };

struct Bench {
    directory: tempfile::TempDir,
    disk: Arc<dyn Disk>,
}

/// The transactions of a log, by version.
type Content = Vec<(u64, Vec<u8>)>;

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(SystemDisk::new(directory.path()).unwrap());
        Bench { directory, disk }
    }

    fn create(&self) -> (Log, Tail, LogPosition) {
        let (log, tail) = Log::create(Arc::clone(&self.disk), SETTINGS).unwrap();
        let start = tail.end().log_start();
        (log, tail, start)
    }

    fn try_open(&self, start: &LogPosition) -> Result<(Log, Tail, Replayed, Content), StoreError> {
        let mut content = Vec::new();
        let retention = Arc::new(Retention::none());
        let (log, tail, replayed) = Log::open(
            Arc::clone(&self.disk),
            SETTINGS,
            (retention, Arc::default()),
            &InTree { start: *start, version: 0, reaches: 0 },
            &mut |_, batch| {
                for transaction in batch.transactions() {
                    let (version, mut operations) = transaction.unwrap();
                    content.push((version, operations.next().unwrap().unwrap().edit.bytes().to_vec()));
                }
                Ok(())
            },
        )?;
        Ok((log, tail, replayed, content))
    }

    fn open(&self, start: &LogPosition) -> (Log, Tail, Replayed, Content) {
        self.try_open(start).unwrap()
    }

    fn overwrite(&self, number: u64, offset: u64, bytes: &[u8]) {
        let file = self.disk.open(&segment::live_name(number), false, Access::Buffered).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        std::fs::read(self.directory.path().join(segment::live_name(number))).unwrap()
    }
}

/// Writes one batch of one transaction; returns its position.
fn append(log: &Log, tail: &mut Tail, version: u64, value: &[u8]) -> LogPosition {
    let mut builder = BatchBuilder::new(4096);
    builder.restart(version);
    builder.begin_transaction();
    builder.push(Operation { tree: 1, key: b"k", edit: Edit::Put(value) }, None);
    builder.end_transaction();
    if tail.room() < (builder.len() as u64).next_multiple_of(4096) {
        log.roll(tail).unwrap();
    }
    let sealed = log.seal(tail, &mut builder);
    log.write(&sealed).unwrap();
    sealed.at
}

fn value(version: u64, len: usize) -> Vec<u8> {
    version.to_le_bytes().iter().copied().cycle().take(len).collect()
}

#[test]
fn batches_come_back_in_order_over_many_segments() {
    let bench = Bench::new();
    let (log, mut tail, start) = bench.create();
    let expected: Content = (1..=100).map(|version| (version, value(version, 3000))).collect();
    for (version, value) in &expected {
        append(&log, &mut tail, *version, value);
    }
    drop(log);
    let (_log, _tail, replayed, content) = bench.open(&start);
    assert_eq!(content, expected);
    assert_eq!((replayed.batches, replayed.torn_bytes), (100, 0));
}

#[test]
fn a_tail_torn_at_any_byte_is_dropped_and_reported_and_never_comes_back() {
    let bench = Bench::new();
    let (log, mut tail, start) = bench.create();
    append(&log, &mut tail, 1, b"first");
    let before = bench.bytes(1);
    let torn_at = append(&log, &mut tail, 2, b"second");
    drop(log);
    let after = bench.bytes(1);
    let (from, len) = (torn_at.offset as usize, HEADER_AND_TRANSACTION + b"second".len());
    for kept in 0..len {
        let mut bytes = before.clone();
        bytes[from..from + kept].copy_from_slice(&after[from..from + kept]);
        bench.overwrite(1, 0, &bytes);
        let (log, mut tail, replayed, content) = bench.open(&start);
        assert_eq!(content, [(1, b"first".to_vec())], "{kept} bytes kept");
        assert_eq!(replayed.torn_bytes > 0, kept >= FIELDS_THAT_TELL, "{kept} bytes kept");
        append(&log, &mut tail, 2, b"other");
        drop(log);
        let (_log, _tail, _, content) = bench.open(&start);
        assert_eq!(content, [(1, b"first".to_vec()), (2, b"other".to_vec())]);
    }
}

/// Magic, length, sequence, and the one byte of the segment number that is not zero.
const FIELDS_THAT_TELL: usize = 17;

/// Batch header, transaction header, operation header, the key "k".
const HEADER_AND_TRANSACTION: usize = batch::HEADER_BYTES + TRANSACTION_HEADER_BYTES + OPERATION_HEADER_BYTES + 1;

#[test]
fn every_byte_of_an_acknowledged_batch_is_watched_once_a_later_one_is_there() {
    let bench = Bench::new();
    let (log, mut tail, start) = bench.create();
    let at = append(&log, &mut tail, 1, b"first");
    log.write_empty_batch(&mut tail).unwrap();
    drop(log);
    let good = bench.bytes(1);
    for byte in 0..HEADER_AND_TRANSACTION + b"first".len() {
        let place = u64::from(at.offset) + byte as u64;
        bench.overwrite(1, place, &[good[place as usize] ^ 0x10]);
        match bench.try_open(&start).err() {
            Some(StoreError::Corrupt { file, offset, .. }) => {
                assert_eq!((file.as_str(), offset), ("0000000001.log", u64::from(at.offset)));
            }
            other => panic!("byte {byte}: {other:?}"),
        }
        bench.overwrite(1, place, &good[place as usize..=place as usize]);
    }
    assert_eq!(bench.open(&start).3, [(1, b"first".to_vec())]);
}

#[test]
fn damage_at_the_end_of_a_segment_is_noticed_by_the_next_segment() {
    let bench = Bench::new();
    let (log, mut tail, start) = bench.create();
    let mut places = Vec::new();
    for version in 1..=20 {
        places.push(append(&log, &mut tail, version, &value(version, 3000)));
    }
    drop(log);
    let last_of_first = places.iter().rfind(|place| place.segment == 1).unwrap();
    bench.overwrite(1, u64::from(last_of_first.offset) + 500, b"damage");
    assert!(
        matches!(bench.try_open(&start).err(), Some(StoreError::Corrupt { offset, .. }) if offset == u64::from(last_of_first.offset))
    );
}

#[test]
fn old_batches_of_recycled_segments_are_never_replayed() {
    let bench = Bench::new();
    let (log, mut tail, _) = bench.create();
    let mut starts = Vec::new();
    for version in 1..=200 {
        starts.push(append(&log, &mut tail, version, &value(version, 3000)));
        // Like a checkpoint: all but the newest segments are released while the log continues.
        log.release_before(tail.end().log_start().segment.saturating_sub(1));
    }
    drop(log);
    let numbers: Vec<u64> = segment::numbers(&*bench.disk).unwrap();
    assert!(numbers.len() < 13, "segments are reused: {numbers:?}");
    for start in starts.iter().filter(|start| start.segment == tail.end().log_start().segment) {
        let (_, _, replayed, content) = bench.open(start);
        assert_eq!(content.first().map(|(version, _)| *version), Some(start.sequence));
        assert_eq!(content.last().map(|(version, _)| *version), Some(200));
        assert_eq!(replayed.torn_bytes, 0);
    }
}

#[test]
fn a_start_behind_the_last_batch_replays_nothing_though_old_batches_lie_there() {
    let bench = Bench::new();
    let (log, mut tail, start) = bench.create();
    for version in 1..=5 {
        append(&log, &mut tail, version, b"old");
    }
    // The position of batch 3, as if it came one round later.
    let recycled = LogPosition { offset: start.offset + 2 * 4096, sequence: 40, previous: 9, ..start };
    drop(log);
    assert!(bench.open(&recycled).3.is_empty());
}

#[test]
fn unsynced_batches_whose_predecessor_is_lost_are_dropped_with_it() {
    let bench = Bench::new();
    let settings = LogSettings { sync_each: false, ..SETTINGS };
    let (log, mut tail) = Log::create(Arc::clone(&bench.disk), settings).unwrap();
    let start = tail.end().log_start();
    append(&log, &mut tail, 1, b"one");
    let lost = append(&log, &mut tail, 2, b"two");
    append(&log, &mut tail, 3, b"three");
    drop(log);
    bench.overwrite(1, u64::from(lost.offset), &[0; 4096]);
    let (log, mut tail, _, content) = bench.open(&start);
    assert_eq!(content, [(1, b"one".to_vec())]);
    // Same length as the lost one: the old batch 3 now follows it exactly.
    append(&log, &mut tail, 2, b"new");
    drop(log);
    assert_eq!(bench.open(&start).3, [(1, b"one".to_vec()), (2, b"new".to_vec())]);
}

#[test]
fn a_missing_start_segment_is_damage() {
    let bench = Bench::new();
    let (log, _tail, start) = bench.create();
    drop(log);
    let gone = LogPosition { segment: 9, ..start };
    assert!(!start_exists(&*bench.disk, &gone).unwrap());
    assert!(matches!(bench.try_open(&gone).err(), Some(StoreError::Corrupt { .. })));
}

/// Writes the number of transactions, and the checksum of the batch before, into a batch, and makes its checksum right; returns it.
fn forge(batch: &mut [u8], transactions: u32, previous: Option<u32>) -> u32 {
    batch[48..52].copy_from_slice(&transactions.to_le_bytes());
    if let Some(previous) = previous {
        batch[52..56].copy_from_slice(&previous.to_le_bytes());
    }
    let length = u32::from_le_bytes(batch[4..8].try_into().unwrap()) as usize;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&batch[..60]), &batch[64..length]);
    batch[60..64].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

#[test]
fn batches_that_claim_any_number_of_transactions_are_data() {
    let bench = Bench::new();
    let (log, mut tail, start) = bench.create();
    let second = {
        append(&log, &mut tail, 1, &value(1, 100));
        append(&log, &mut tail, 2, &value(2, 100))
    };
    drop((log, tail));
    let mut bytes = bench.bytes(start.segment);
    let previous = forge(&mut bytes[start.offset as usize..], u32::MAX, None);
    forge(&mut bytes[second.offset as usize..], u32::MAX, Some(previous));
    bench.overwrite(start.segment, 0, &bytes);
    assert!(holds_data(&*bench.disk).unwrap());
}
