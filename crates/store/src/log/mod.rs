//! The log of acknowledged transactions, appended in batches with one sync each.
//!
//! The writer seals a batch for its position and writes it; nothing else writes to segments in use. Guarantees:
//!
//! 1. If [`Log::write`] returns without error, and the log syncs each batch, this batch and all earlier ones will be
//!    replayed after any crash.
//! 2. A batch is replayed whole or not at all, and only after the batch that precedes it in the chain.
//! 3. A segment is reused under a new number only after [`Log::release_before`] has released it, and it is no longer
//!    kept for readers of changes ([`retention`]).
//!
//! Batches are written into allocated space, so that a sync writes no file system metadata. They are written directly
//! (`O_DIRECT | O_DSYNC`), with one system call, or, if the file system does not support this, buffered with fdatasync.
//! Measured medians for 4, 16, 64 and 256 KB: 33, 35, 50 and 95 µs directly, 39, 46, 62 and 130 µs buffered.
//!
//! It imports `base` and `disk`. It must not know trees, memtables, or how transactions are prepared.

mod batch;
mod batch_end;
mod buffer;
mod builder;
mod follower;
mod kept_segments;
mod least;
mod logged;
mod position;
mod reader;
mod replay;
mod retention;
mod segment;
mod segment_supply;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use batch::{
    Edit, HEADER_BYTES as BATCH_HEADER_BYTES, OPERATION_HEADER_BYTES, Operation, PiecesInLog, TRANSACTION_HEADER_BYTES,
};
pub(crate) use batch_end::BatchEnd;
pub(crate) use builder::BatchBuilder;
pub(crate) use follower::{Follower, WrittenEnd};
pub(crate) use least::{BEGINNING, create as create_least};
pub(crate) use logged::{Logged, LoggedKind, LoggedOperations};
pub use position::LogPosition;
pub(crate) use reader::{Batch, TransactionCursor};
pub(crate) use replay::{Replayed, SEGMENT_BYTES_MAX, look_through, replay, start_exists, start_is_gone};
pub(crate) use retention::{Retention, RetentionLimits};

use crate::base::error::StoreError;
use crate::base::fail_stop::FailStop;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};
use crate::disk::{DIRECT_ALIGN, Disk};
use kept_segments::KeptSegments;
use retention::Mark;
use segment::{DATA_AT, Segment};
use segment_supply::SegmentSupply;

/// Bytes of a segment that a batch cannot use: the segment's header, the batch's header and padding, and the closing batch.
pub(crate) const SEGMENT_OVERHEAD_BYTES: u64 = DATA_AT as u64 + 2 * DIRECT_ALIGN as u64 + CLOSING_BYTES;

/// Kept free after every batch for the empty batch that is written when the log is closed, or opened after a crash.
/// Neither may fail for lack of space.
const CLOSING_BYTES: u64 = DIRECT_ALIGN as u64;

/// Space in the current segment below which the next small transaction may need another one.
const SHORT_BYTES: u64 = 64 << 10;

/// Prepared segments that writers do not use. With them a store that was closed on a full disk can be opened any number
/// of times; its first checkpoint releases further segments.
const SEGMENTS_KEPT: usize = 1;

/// Settings of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSettings {
    pub(crate) segment_bytes: u64,
    /// Each batch is durable when `write` returns; otherwise after [`Log::sync`].
    pub(crate) sync_each: bool,
}

/// See the module's text.
pub(crate) struct Log {
    supply: SegmentSupply,
    retention: Arc<Retention>,
    disk: Arc<dyn Disk>,
    settings: LogSettings,
    segments: Mutex<Segments>,
    /// Sequence of the last batch known to be synced.
    durable: AtomicU64,
    written: AtomicU64,
    /// The last version in a written batch, and in a synced one (used only if batches are not synced one by one).
    version_written: AtomicU64,
    version_synced: AtomicU64,
    /// Segment and offset after the last written batch: see [`WrittenEnd`].
    end: AtomicU64,
    /// Held during a sync: a second one would find nothing unsynced and return before the first has finished. True
    /// after a failed sync, whose segments are no longer in the unsynced list.
    syncing: Mutex<bool>,
    fail_stop: Arc<FailStop>,
    bytes_written: AtomicU64,
}

struct Segments {
    /// In use: from the last checkpoint's log start to the tail.
    live: BTreeMap<u64, Arc<Segment>>,
    /// Written and not synced, oldest first (only if batches are not synced one by one).
    unsynced: Vec<Arc<Segment>>,
}

/// The end of the log, where the next batch is written. Owned by the writer.
pub(crate) struct Tail {
    segment: Arc<Segment>,
    at: LogPosition,
    /// The last version before it.
    version: u64,
    /// Offset at which the next batch gets a mark for readers of changes.
    mark_from: u32,
}

impl Tail {
    /// The end of the last batch.
    pub(crate) fn end(&self) -> BatchEnd {
        BatchEnd::new(self.version, self.at)
    }

    /// Maximum size of a batch that still fits into the segment with an empty batch after it.
    pub(crate) fn room(&self) -> u64 {
        self.rest().saturating_sub(CLOSING_BYTES)
    }

    fn rest(&self) -> u64 {
        self.segment.bytes.saturating_sub(u64::from(self.at.offset))
    }
}

/// The part of the log that the tree file contains.
pub(crate) struct InTree {
    /// Where replay starts.
    pub(crate) start: LogPosition,
    /// The tree file contains all changes of the versions up to this one.
    pub(crate) version: u64,
    /// The tree file may also contain a part of the changes of the versions up to this one.
    pub(crate) reaches: u64,
}

/// The error for a log that ends at this position, before a version of which the tree file has a part: a durable batch
/// is missing.
pub(crate) fn ends_early(end: &LogPosition) -> StoreError {
    let what =
        "the log ends before changes of which the tree file has a part: a batch that was durable is unreadable or gone";
    end.damage(what)
}

/// A batch with its position, ready to be written.
pub(crate) struct Sealed<'b> {
    bytes: &'b [u8],
    segment: Arc<Segment>,
    at: LogPosition,
    /// The last version in the log with it.
    pub(crate) version: u64,
    pub(crate) transactions: u32,
}

impl Log {
    /// Starts the log of a new store; removes the remains of an unfinished creation.
    pub(crate) fn create(disk: Arc<dyn Disk>, settings: LogSettings) -> Result<(Log, Tail), StoreError> {
        remove_files(&*disk, |_| true)?;
        let log = Log::start(disk, settings, (Arc::new(Retention::none()), Arc::default()), 1, Vec::new())?;
        let segment = log.supply.take(0)?;
        let at = LogPosition { segment: segment.number, offset: DATA_AT, previous: 0, sequence: 1, epoch: 1 };
        log.segments().live.insert(segment.number, Arc::clone(&segment));
        let mut tail = Tail { segment, at, version: 0, mark_from: 0 };
        log.begin_segment(&mut tail);
        Ok((log, tail))
    }

    /// Replays the changes that the tree file lacks, then durably starts a new epoch after the last batch. After that,
    /// bytes behind that position can never be taken for a part of the log again.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        (retention, fail_stop): (Arc<Retention>, Arc<FailStop>),
        tree: &InTree,
        visit: &mut dyn FnMut(&LogPosition, &Batch<'_>) -> Result<(), StoreError>,
    ) -> Result<(Log, Tail, Replayed), StoreError> {
        let InTree { start, version, reaches } = tree;
        let mut found = KeptSegments::before(&*disk, start, *version, retention.keeps());
        let replayed = replay::replay(&*disk, start, &mut |at, batch| {
            found.take(at, batch);
            visit(at, batch)
        })?;
        if found.version() < *reaches {
            return Err(ends_early(&replayed.tail));
        }
        let epoch = replayed.tail.epoch.checked_add(1);
        let epoch = epoch.ok_or_else(|| StoreError::corrupt("log", 0, "epoch beyond its maximum"))?;
        let at = LogPosition { epoch, ..replayed.tail };
        let mut live = BTreeMap::new();
        for number in start.segment..=at.segment {
            live.insert(number, Arc::new(open_segment(&*disk, number, settings.sync_each)?));
        }
        let tail_segment =
            live.get(&at.segment).cloned().ok_or_else(|| StoreError::corrupt("log", 0, "no tail segment"))?;
        remove_files(&*disk, |_| false)?;
        // Includes the segments after the tail (prepared, or written and lost), so that their space stays reserved on a
        // full disk.
        let version = found.version();
        found.hand_over(&retention, |number| live.get(&number).map_or(0, |segment| segment.bytes));
        // Segments beyond the bounds become spares, like all earlier ones.
        let _ = retention.released_before(start.segment);
        let first = retention.first().unwrap_or(start.segment);
        let is_spare = |number: &u64| *number < first || *number > at.segment;
        let spares = segment::numbers(&*disk)?.into_iter().filter(is_spare).collect();
        let log = Log::start(disk, settings, (retention, fail_stop), at.segment + 1, spares)?;
        log.segments().live = live;
        log.durable.store(at.sequence.saturating_sub(1), Ordering::Release);
        log.written.store(at.sequence.saturating_sub(1), Ordering::Release);
        log.version_written.store(version, Ordering::Release);
        log.version_synced.store(version, Ordering::Release);
        let mut tail = Tail { segment: tail_segment, at, version, mark_from: at.offset };
        if replayed.format < segment::FORMAT_VERSION {
            // A segment of an older format stays readable for older builds: no batch with newer content is added to it.
            log.roll_leaving(&mut tail, 0)?;
        }
        log.write_empty_batch(&mut tail)?;
        Ok((log, tail, replayed))
    }

    fn start(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        (retention, fail_stop): (Arc<Retention>, Arc<FailStop>),
        next: u64,
        spares: Vec<u64>,
    ) -> Result<Log, StoreError> {
        let shared = (Arc::clone(&disk), Arc::clone(&retention), Arc::clone(&fail_stop));
        let supply = SegmentSupply::start(shared, settings.sync_each, settings.segment_bytes, next, spares)?;
        Ok(Log {
            supply,
            retention,
            disk,
            settings,
            segments: Mutex::new(Segments { live: BTreeMap::new(), unsynced: Vec::new() }),
            durable: AtomicU64::new(0),
            written: AtomicU64::new(0),
            version_written: AtomicU64::new(0),
            version_synced: AtomicU64::new(0),
            end: AtomicU64::new(0),
            syncing: Mutex::default(),
            fail_stop,
            bytes_written: AtomicU64::new(0),
        })
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues in the next segment. Returns `Full` if the disk has no room for one; then nothing has changed.
    pub(crate) fn roll(&self, tail: &mut Tail) -> Result<(), StoreError> {
        self.roll_leaving(tail, SEGMENTS_KEPT)
    }

    fn roll_leaving(&self, tail: &mut Tail, kept: usize) -> Result<(), StoreError> {
        let segment = self.supply.take(kept)?;
        self.segments().live.insert(segment.number, Arc::clone(&segment));
        tail.at = LogPosition { segment: segment.number, offset: DATA_AT, ..tail.at };
        tail.segment = segment;
        self.begin_segment(tail);
        Ok(())
    }

    /// Marks the segment's start as a starting point for readers of changes.
    fn begin_segment(&self, tail: &mut Tail) {
        self.retention.began(Mark { at: tail.at, version: tail.version }, tail.segment.bytes);
        tail.mark_from = DATA_AT + Retention::mark_every(tail.segment.bytes);
    }

    /// Marks a position inside the segment, so that a reader need not read the whole segment to reach its end.
    #[cold]
    fn mark(&self, tail: &mut Tail) {
        self.retention.mark(Mark { at: tail.at, version: tail.version });
        tail.mark_from = tail.at.offset.saturating_add(Retention::mark_every(tail.segment.bytes));
    }

    /// Gives the batch its position and moves the tail after it. The caller has made sure that there is room.
    pub(crate) fn seal<'b>(&self, tail: &mut Tail, builder: &'b mut BatchBuilder) -> Sealed<'b> {
        if tail.at.offset >= tail.mark_from {
            self.mark(tail);
        }
        if builder.transactions() > 0 {
            tail.version = builder.last_version();
        }
        let (at, transactions) = (tail.at, builder.transactions());
        let (bytes, next) = builder.seal(&at, self.durable.load(Ordering::Acquire));
        assert!(u64::from(next.offset) <= tail.segment.bytes, "a batch must fit into its segment");
        tail.at = next;
        Sealed { bytes, segment: Arc::clone(&tail.segment), at, version: tail.version, transactions }
    }

    /// Writes a sealed batch, one at a time and in the order of sealing; durable on return if each batch is synced.
    /// After an error the content of the disk is unknown, and the caller must not write again.
    pub(crate) fn write(&self, sealed: &Sealed<'_>) -> std::io::Result<()> {
        sealed.segment.file.write_all_at(sealed.bytes, u64::from(sealed.at.offset))?;
        self.bytes_written.fetch_add(sealed.bytes.len() as u64, Ordering::Relaxed);
        // Segment numbers rise by one, so 32 bits last for 4 billion segments. After that a reader only reads more than it
        // needs.
        let end = u64::from(sealed.at.offset) + sealed.bytes.len() as u64;
        self.end.store(sealed.at.segment << 32 | end, Ordering::Release);
        if self.settings.sync_each {
            if !sealed.segment.is_direct {
                sealed.segment.file.sync_data()?;
            }
            self.durable.store(sealed.at.sequence, Ordering::Release);
        } else {
            let mut segments = self.segments();
            if segments.unsynced.last().is_none_or(|last| last.number != sealed.segment.number) {
                segments.unsynced.push(Arc::clone(&sealed.segment));
            }
            drop(segments);
            self.version_written.store(sealed.version, Ordering::Release);
        }
        self.written.store(sealed.at.sequence, Ordering::Release);
        Ok(())
    }

    /// Makes all written batches durable (if they are not synced one by one). After an error see [`Log::write`].
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        let mut has_failed = self.fail_stop.lock(&self.syncing, "the log was synced");
        if *has_failed {
            return Err(std::io::Error::other("an earlier sync of the log failed"));
        }
        *has_failed = true;
        let written = self.written.load(Ordering::Acquire);
        let version = self.version_written.load(Ordering::Acquire);
        let unsynced = std::mem::take(&mut self.segments().unsynced);
        for segment in &unsynced {
            segment.file.sync_data().inspect_err(|error| self.fail_stop.stop("sync of the log", error))?;
        }
        *has_failed = false;
        self.durable.fetch_max(written, Ordering::AcqRel);
        self.version_synced.fetch_max(version, Ordering::AcqRel);
        Ok(())
    }

    /// Writes and syncs a batch without transactions, which proves that all earlier ones were durable.
    pub(crate) fn write_empty_batch(&self, tail: &mut Tail) -> Result<(), StoreError> {
        self.sync().map_err(|error| StoreError::io("sync the log", error))?;
        if tail.rest() < CLOSING_BYTES {
            self.roll_leaving(tail, 0)?;
        }
        let mut builder = BatchBuilder::new(DIRECT_ALIGN);
        // An empty batch too has a first version, from which readers learn the newest version.
        builder.restart(tail.version + 1);
        let sealed = self.seal(tail, &mut builder);
        self.write(&sealed).and_then(|()| self.sync()).map_err(|error| StoreError::io("write to the log", error))
    }

    /// Releases the segments before this one: recovery does not need them. They may be kept for readers of changes.
    pub(crate) fn release_before(&self, number: u64) {
        let mut segments = self.segments();
        let live = segments.live.split_off(&number);
        segments.live = live;
        segments.unsynced.retain(|segment| segment.number >= number);
        drop(segments);
        self.supply.recycle(self.retention.released_before(number));
    }

    /// Removes an unused file, or else the oldest segment kept only for readers of changes, to free disk space. False if there is none.
    pub(crate) fn give_back(&self) -> bool {
        self.supply.give_back()
            || self.retention.give_back().is_some_and(|number| segment_supply::remove_kept(&*self.disk, number))
    }

    /// Removes all files that recovery does not need. For a store that will not write again.
    pub(crate) fn give_all_back(&self) {
        self.supply.give_all_back();
        while self.give_back() {}
    }

    /// A reader of the versions after this one; `Err`: the oldest version after which all changes are available.
    pub(crate) fn follow(&self, version: u64) -> Result<Follower, u64> {
        self.retention.place(version).map(|mark| self.follow_from(mark.at))
    }

    /// A reader that starts at this position.
    pub(crate) fn follow_from(&self, at: LogPosition) -> Follower {
        let (disk, retention) = (Arc::clone(&self.disk), Arc::clone(&self.retention));
        Follower::new(disk, retention, self.settings.sync_each, at)
    }

    /// The end of the written log.
    pub(crate) fn end(&self) -> WrittenEnd {
        let end = self.end.load(Ordering::Acquire);
        WrittenEnd { segment: end >> 32, offset: end as u32 }
    }

    /// The last version that is certain to be durable, if batches are not synced one by one. `None`: everything written is durable.
    pub(crate) fn version_synced(&self) -> Option<u64> {
        (!self.settings.sync_each).then(|| self.version_synced.load(Ordering::Acquire))
    }

    /// The oldest version after which all changes are available, and the bytes of segments kept only for readers of changes.
    pub(crate) fn changes_kept(&self) -> (u64, u64) {
        (self.retention.oldest(), self.retention.kept_bytes())
    }

    /// Whether a checkpoint would release segments.
    pub(crate) fn has_older_segments(&self) -> bool {
        self.segments().live.len() > 1
    }

    /// Whether the next segment would currently be refused because the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.failure(), Some(StoreError::Full))
    }

    /// Why the next small transaction would currently be refused: it needs the next segment.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        let left = self.settings.segment_bytes.saturating_sub(u64::from(self.end().offset));
        if left < SHORT_BYTES { self.failure() } else { None }
    }

    /// Why the next segment would currently be refused.
    fn failure(&self) -> Option<StoreError> {
        self.supply.failure(SEGMENTS_KEPT)
    }

    /// The names of the segments that recovery needs and that were deleted or cut short.
    pub(crate) fn deleted(&self) -> Vec<String> {
        // Under the lock: a segment leaves the list before it may be removed.
        let segments = self.segments();
        let is_cut = |segment: &Segment| segment.file.len().is_ok_and(|len| len < segment.bytes);
        let is_deleted = |segment: &&Arc<Segment>| matches!(segment.file.has_name(), Ok(false)) || is_cut(segment);
        segments.live.values().filter(is_deleted).map(|segment| segment::live_name(segment.number)).collect()
    }

    /// Bytes of all segments that recovery needs.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.segments().live.len() as u64 * self.settings.segment_bytes
    }

    /// Bytes written since the start.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}

fn open_segment(disk: &dyn Disk, number: u64, sync_each: bool) -> Result<Segment, StoreError> {
    let name = segment::live_name(number);
    let open = || -> std::io::Result<Segment> {
        let (file, is_direct) = segment::open_for_writing(disk, &name, sync_each)?;
        Ok(Segment { number, bytes: file.len()?, file, is_direct })
    };
    open().map_err(|error| StoreError::io(format!("open {name}"), error))
}

/// Whether this is the name of a segment.
pub(crate) fn is_segment(name: &str) -> bool {
    segment::number_of(name, ".log").is_some()
}

/// Removes the segments for which `remove` is true, and all unfinished ones.
fn remove_files(disk: &dyn Disk, remove: impl Fn(u64) -> bool) -> Result<(), StoreError> {
    let context = |error| StoreError::io("remove unused log segments", error);
    for name in disk.list().map_err(context)? {
        let unused = segment::number_of(&name, ".log").is_some_and(&remove);
        if unused || segment::number_of(&name, ".new").is_some() {
            disk.remove(&name).map_err(context)?;
        }
    }
    disk.sync_dir().map_err(context)
}

/// Whether the directory holds a log with transactions, or a log that cannot belong to a new store.
pub(crate) fn holds_data(disk: &dyn Disk) -> Result<bool, StoreError> {
    let numbers = segment::numbers(disk)?;
    if numbers.is_empty() {
        return Ok(false);
    }
    let start = LogPosition { segment: 1, offset: DATA_AT, previous: 0, sequence: 1, epoch: 1 };
    if !start_exists(disk, &start)? {
        // A segment gets its name when it is complete. The first segments of a new store may already have been removed.
        return Ok(numbers.iter().any(|number| !(2..=3).contains(number)));
    }
    // Damaged headers may give counts of any size.
    let mut has_transactions = false;
    replay::replay(disk, &start, &mut |_, batch| {
        has_transactions |= batch.transaction_count() > 0;
        Ok(())
    })?;
    // The log of a backup, whose data is all in the tree file.
    Ok(has_transactions || least::is_there(disk)?)
}

#[cfg(test)]
mod tests;
