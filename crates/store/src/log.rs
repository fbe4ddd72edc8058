//! The log: what was acknowledged. Appended in batches, one sync for each.
//!
//! The writer seals a batch for its place and writes it; nobody else writes to segments in use. What this module
//! promises:
//!
//! 1. [`Log::write`] returned without error (and the log syncs each batch): the batch and all before it will be replayed
//!    after any crash.
//! 2. A batch is replayed whole or not at all, and only behind the batch it was written behind.
//! 3. Once [`Log::release_before`] was told that a segment is no longer needed it is written again, under a new number; not
//!    before the bounds for readers of changes ([`retention`]) let it go.
//!
//! Two ways of writing, both into space written before, so that a sync needs no metadata of the file system: directly
//! (`O_DIRECT | O_DSYNC`), one system call; where the file system cannot, a buffered write and fdatasync. Measured for
//! 4, 16, 64 and 256 KB: direct takes 33, 35, 50 and 95 µs in the median, buffered 39, 46, 62 and 130.

mod batch;
mod buffer;
mod follower;
mod keeper;
mod kept;
mod least;
mod logged;
mod position;
mod replay;
mod retention;
mod segment;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use batch::{Batch, BatchBuilder, Edit, OPERATION_HEADER_BYTES, Operation, TRANSACTION_HEADER_BYTES};
pub(crate) use follower::{Follower, WrittenEnd};
pub(crate) use least::{BEGINNING, create as create_least};
pub(crate) use logged::{Logged, LoggedKind, LoggedOperations, TransactionCursor};
pub use position::LogPosition;
pub(crate) use replay::{Replayed, SEGMENT_BYTES_MAX, look_through, replay, start_exists, start_is_gone};
pub(crate) use retention::{Kept, Retention};
pub(crate) use segment::live_name as segment_name;

use crate::disk::{DIRECT_ALIGN, Disk};
use crate::error::Error;
use crate::fail_stop::FailStop;
use keeper::Keeper;
use retention::Mark;
use segment::{DATA_AT, Segment};

/// Room that a segment takes for itself, a batch for its header and padding, and the batch that closes the log.
pub(crate) const SEGMENT_OVERHEAD_BYTES: u64 = DATA_AT as u64 + 2 * DIRECT_ALIGN as u64 + CLOSING_BYTES;

/// Kept free behind every batch, for the empty one that is written when the log is closed, or opened after a crash:
/// neither may want for space.
const CLOSING_BYTES: u64 = DIRECT_ALIGN as u64;

/// Prepared segments that writers leave alone: so that a store that was closed on a full disk can be opened, however
/// often, and its first checkpoint gives back more.
const SEGMENTS_KEPT: usize = 1;

/// How the log is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSettings {
    pub(crate) segment_bytes: u64,
    /// Each batch is durable when `write` returns; else after [`Log::sync`].
    pub(crate) sync_each: bool,
}

/// See the module's text.
pub(crate) struct Log {
    keeper: Keeper,
    retention: Arc<Retention>,
    disk: Arc<dyn Disk>,
    settings: LogSettings,
    segments: Mutex<Segments>,
    /// Sequence of the last batch known to be synced.
    durable: AtomicU64,
    written: AtomicU64,
    /// The last version in a written batch, and in a synced one (kept only where batches are not synced one by one).
    version_written: AtomicU64,
    version_synced: AtomicU64,
    /// Segment and offset behind the last written batch: see [`WrittenEnd`].
    end: AtomicU64,
    /// One sync at a time: a second one would find nothing unsynced, and say so before the first is done. True once one has
    /// failed: the segments that it was to sync are not among the unsynced any more.
    syncing: Mutex<bool>,
    fail_stop: Arc<FailStop>,
    bytes_written: AtomicU64,
}

struct Segments {
    /// In use: from the last checkpoint's log start to the tail.
    live: BTreeMap<u64, Arc<Segment>>,
    /// Written and not synced, oldest first (only where batches are not synced one by one).
    unsynced: Vec<Arc<Segment>>,
}

/// The end of the log: where the next batch goes. One writer owns it.
pub(crate) struct Tail {
    segment: Arc<Segment>,
    at: LogPosition,
    /// The last version before it.
    version: u64,
    /// Offset from which on the next batch is marked for readers of changes.
    mark_from: u32,
}

impl Tail {
    pub(crate) fn position(&self) -> LogPosition {
        self.at
    }

    /// Bytes that a batch may have to fit into the segment, and an empty one behind it.
    pub(crate) fn room(&self) -> u64 {
        self.rest().saturating_sub(CLOSING_BYTES)
    }

    fn rest(&self) -> u64 {
        self.segment.bytes.saturating_sub(u64::from(self.at.offset))
    }
}

/// What the tree file has of the log.
pub(crate) struct InTree {
    /// Where replay starts.
    pub(crate) start: LogPosition,
    /// It has all up to this version,
    pub(crate) version: u64,
    /// and a part of those up to this one.
    pub(crate) reaches: u64,
}

/// The log ends here, and before a version of which the tree file has a part: that was durable once.
pub(crate) fn ends_early(end: &LogPosition) -> Error {
    let what =
        "the log ends before changes of which the tree file has a part: a batch that was durable is unreadable or gone";
    Error::corrupt(&segment_name(end.segment), u64::from(end.offset), what)
}

/// A batch with its place, ready to be written.
pub(crate) struct Sealed<'b> {
    bytes: &'b [u8],
    segment: Arc<Segment>,
    at: LogPosition,
    version: u64,
}

impl Log {
    /// Starts the log of a new store; what a creation that did not finish left behind is removed.
    pub(crate) fn create(disk: Arc<dyn Disk>, settings: LogSettings) -> Result<(Log, Tail), Error> {
        remove_files(&*disk, |_| true)?;
        let log = Log::start(disk, settings, (Arc::new(Retention::none()), Arc::default()), 1, Vec::new())?;
        let segment = log.keeper.take(0)?;
        let at = LogPosition { segment: segment.number, offset: DATA_AT, previous: 0, sequence: 1, epoch: 1 };
        log.segments().live.insert(segment.number, Arc::clone(&segment));
        let mut tail = Tail { segment, at, version: 0, mark_from: 0 };
        log.begin_segment(&mut tail);
        Ok((log, tail))
    }

    /// Replays what the tree lacks, then goes on behind the last batch in a new
    /// epoch, durably begun before this returns: nothing that lay behind can ever be taken for a part of the log again.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        (retention, fail_stop): (Arc<Retention>, Arc<FailStop>),
        tree: &InTree,
        visit: &mut dyn FnMut(&LogPosition, &Batch<'_>) -> Result<(), Error>,
    ) -> Result<(Log, Tail, Replayed), Error> {
        let InTree { start, version, reaches } = tree;
        let mut found = kept::Found::before(&*disk, start, *version, retention.keeps());
        let replayed = replay::replay(&*disk, start, &mut |at, batch| {
            found.take(at, batch);
            visit(at, batch)
        })?;
        if found.version() < *reaches {
            return Err(ends_early(&replayed.tail));
        }
        let epoch = replayed.tail.epoch.checked_add(1);
        let epoch = epoch.ok_or_else(|| Error::corrupt("log", 0, "an epoch that no log gets to"))?;
        let at = LogPosition { epoch, ..replayed.tail };
        let mut live = BTreeMap::new();
        for number in start.segment..=at.segment {
            live.insert(number, Arc::new(open_segment(&*disk, number, settings.sync_each)?));
        }
        let tail_segment = live.get(&at.segment).cloned().ok_or_else(|| Error::corrupt("log", 0, "no tail segment"))?;
        remove_files(&*disk, |_| false)?;
        // Also those behind the tail: prepared, or written and lost. Their space stays ours on a full disk.
        let version = found.version();
        found.hand_over(&retention, |number| live.get(&number).map_or(0, |segment| segment.bytes));
        // What is beyond the bounds goes to the spares with all that lies before.
        let _ = retention.released_before(start.segment);
        let first = retention.first().unwrap_or(start.segment);
        let is_spare = |number: &u64| *number < first || *number > at.segment;
        let spares = numbers(&*disk)?.into_iter().filter(is_spare).collect();
        let log = Log::start(disk, settings, (retention, fail_stop), at.segment + 1, spares)?;
        log.segments().live = live;
        log.durable.store(at.sequence.saturating_sub(1), Ordering::Release);
        log.written.store(at.sequence.saturating_sub(1), Ordering::Release);
        log.version_written.store(version, Ordering::Release);
        log.version_synced.store(version, Ordering::Release);
        let mut tail = Tail { segment: tail_segment, at, version, mark_from: at.offset };
        if replayed.format < segment::FORMAT_VERSION {
            // A segment that an older build could read stays one: it gets nothing that such a build does not know.
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
    ) -> Result<Log, Error> {
        let shared = (Arc::clone(&disk), Arc::clone(&retention), Arc::clone(&fail_stop));
        let keeper = Keeper::start(shared, settings.sync_each, settings.segment_bytes, next, spares)?;
        Ok(Log {
            keeper,
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

    /// Goes on in the next segment. `Full` when there is none because the disk is full: nothing has changed then.
    pub(crate) fn roll(&self, tail: &mut Tail) -> Result<(), Error> {
        self.roll_leaving(tail, SEGMENTS_KEPT)
    }

    fn roll_leaving(&self, tail: &mut Tail, kept: usize) -> Result<(), Error> {
        let segment = self.keeper.take(kept)?;
        self.segments().live.insert(segment.number, Arc::clone(&segment));
        tail.at = LogPosition { segment: segment.number, offset: DATA_AT, ..tail.at };
        tail.segment = segment;
        self.begin_segment(tail);
        Ok(())
    }

    /// Readers of changes can start where this segment does.
    fn begin_segment(&self, tail: &mut Tail) {
        self.retention.began(Mark { at: tail.at, version: tail.version }, tail.segment.bytes);
        tail.mark_from = DATA_AT + Retention::mark_every(tail.segment.bytes);
    }

    /// And here, so that they need not read a whole segment to get to its end.
    #[cold]
    fn mark(&self, tail: &mut Tail) {
        self.retention.mark(Mark { at: tail.at, version: tail.version });
        tail.mark_from = tail.at.offset.saturating_add(Retention::mark_every(tail.segment.bytes));
    }

    /// Gives the batch its place; the tail moves behind it. The caller made sure that there is room.
    pub(crate) fn seal<'b>(&self, tail: &mut Tail, builder: &'b mut BatchBuilder) -> Sealed<'b> {
        if tail.at.offset >= tail.mark_from {
            self.mark(tail);
        }
        if builder.transactions() > 0 {
            tail.version = builder.last_version();
        }
        let at = tail.at;
        let (bytes, next) = builder.seal(&at, self.durable.load(Ordering::Acquire));
        assert!(u64::from(next.offset) <= tail.segment.bytes, "a batch must fit into its segment");
        tail.at = next;
        Sealed { bytes, segment: Arc::clone(&tail.segment), at, version: tail.version }
    }

    /// Writes a sealed batch; durable on return where each batch is synced. One at a time, in the order of sealing.
    /// After an error nobody knows what is on the disk: the caller must not write again.
    pub(crate) fn write(&self, sealed: &Sealed<'_>) -> std::io::Result<()> {
        sealed.segment.file.write_all_at(sealed.bytes, u64::from(sealed.at.offset))?;
        self.bytes_written.fetch_add(sealed.bytes.len() as u64, Ordering::Relaxed);
        // Segment numbers rise by one: 32 bits last for 4 billion segments, and past that a reader reads more than it needs.
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

    /// Makes all written batches durable (where they are not synced one by one). After an error see [`Log::write`].
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

    /// Writes and syncs a batch without transactions: a witness that all before it was durable.
    pub(crate) fn write_empty_batch(&self, tail: &mut Tail) -> Result<(), Error> {
        self.sync().map_err(|error| Error::io("sync the log", error))?;
        if tail.rest() < CLOSING_BYTES {
            self.roll_leaving(tail, 0)?;
        }
        let mut builder = BatchBuilder::new(DIRECT_ALIGN);
        // So every batch tells how far the versions are before it.
        builder.restart(tail.version + 1);
        let sealed = self.seal(tail, &mut builder);
        self.write(&sealed).and_then(|()| self.sync()).map_err(|error| Error::io("write to the log", error))
    }

    /// Segments before this one are needed no more, but for readers of changes.
    pub(crate) fn release_before(&self, number: u64) {
        let mut segments = self.segments();
        let live = segments.live.split_off(&number);
        segments.live = live;
        segments.unsynced.retain(|segment| segment.number >= number);
        drop(segments);
        self.keeper.recycle(self.retention.released_before(number));
    }

    /// Removes a file that nothing needs, else the oldest segment that only readers of changes want, so that the disk has its
    /// space; false when there is none.
    pub(crate) fn give_back(&self) -> bool {
        self.keeper.give_back()
            || self.retention.give_back().is_some_and(|number| keeper::remove_kept(&*self.disk, number))
    }

    /// Removes all files that no recovery needs. For a store that writes no more.
    pub(crate) fn give_all_back(&self) {
        self.keeper.give_all_back();
        while self.give_back() {}
    }

    /// A reader of what follows a version; else the version from which on changes are there.
    pub(crate) fn follow(&self, version: u64) -> Result<Follower, u64> {
        let mark = self.retention.place(version)?;
        let (disk, retention) = (Arc::clone(&self.disk), Arc::clone(&self.retention));
        Ok(Follower::new(disk, retention, self.settings.sync_each, mark))
    }

    /// The end of what is written.
    pub(crate) fn end(&self) -> WrittenEnd {
        let end = self.end.load(Ordering::Acquire);
        WrittenEnd { segment: end >> 32, offset: end as u32 }
    }

    /// The last version that is certain to be on the disk, where batches are not synced one by one; else `None`: all that
    /// is written is.
    pub(crate) fn version_synced(&self) -> Option<u64> {
        (!self.settings.sync_each).then(|| self.version_synced.load(Ordering::Acquire))
    }

    /// The version from which on changes can be read, and bytes of segments that only readers of changes want.
    pub(crate) fn changes_kept(&self) -> (u64, u64) {
        (self.retention.oldest(), self.retention.kept_bytes())
    }

    /// Whether a checkpoint would give segments back.
    pub(crate) fn has_older_segments(&self) -> bool {
        self.segments().live.len() > 1
    }

    /// Whether the next segment will be refused, for now.
    pub(crate) fn is_full(&self) -> bool {
        self.keeper.is_failing(SEGMENTS_KEPT)
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

fn open_segment(disk: &dyn Disk, number: u64, sync_each: bool) -> Result<Segment, Error> {
    let name = segment::live_name(number);
    let open = || -> std::io::Result<Segment> {
        let (file, is_direct) = segment::open_for_writing(disk, &name, sync_each)?;
        Ok(Segment { number, bytes: file.len()?, file, is_direct })
    };
    open().map_err(|error| Error::io(format!("open {name}"), error))
}

/// Whether this is the name of a segment.
pub(crate) fn is_segment(name: &str) -> bool {
    segment::number_of(name, ".log").is_some()
}

/// Numbers of all segment files.
/// The numbers of all segments, in no order.
fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    let names = disk.list().map_err(|error| Error::io("list the store's directory", error))?;
    Ok(names.iter().filter_map(|name| segment::number_of(name, ".log")).collect())
}

/// Removes the segments that `remove` names, and all half-made ones.
fn remove_files(disk: &dyn Disk, remove: impl Fn(u64) -> bool) -> Result<(), Error> {
    let context = |error| Error::io("remove unused log segments", error);
    for name in disk.list().map_err(context)? {
        let unused = segment::number_of(&name, ".log").is_some_and(&remove);
        if unused || segment::number_of(&name, ".new").is_some() {
            disk.remove(&name).map_err(context)?;
        }
    }
    disk.sync_dir().map_err(context)
}

/// Whether the directory holds a log with transactions, or one that cannot be a new store's.
pub(crate) fn holds_data(disk: &dyn Disk) -> Result<bool, Error> {
    let numbers = numbers(disk)?;
    if numbers.is_empty() {
        return Ok(false);
    }
    let start = LogPosition { segment: 1, offset: DATA_AT, previous: 0, sequence: 1, epoch: 1 };
    if !start_exists(disk, &start)? {
        // A segment has its name when it is whole; of those of a new store the first may have been removed again.
        return Ok(numbers.iter().any(|number| !(2..=3).contains(number)));
    }
    let mut transactions = 0;
    replay::replay(disk, &start, &mut |_, batch| {
        transactions += batch.transaction_count();
        Ok(())
    })?;
    // Of a backup, which has all in the tree file.
    Ok(transactions > 0 || least::is_there(disk)?)
}

#[cfg(test)]
mod tests;
