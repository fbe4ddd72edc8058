//! The engine: log, memtables and tree together. [`crate::Store`] is its public interface.
//!
//! Threads of a store and their tasks:
//!
//! - callers prepare transactions and read. A lone caller commits by itself ([`commit`]).
//! - two committers take turns: gather queued transactions, write them to the log, publish, acknowledge ([`commit`]).
//! - the checkpointer merges the frozen memtable into the tree ([`checkpoint`]).
//! - the log's keeper prepares segments.
//! - the room thread keeps disk space for checkpoints ([`room`]).
//! - with `Durability::Interval`, the syncer syncs the log.
//!
//! Locks, in acquisition order: `merging`, `watch`, `writer`, `turn`, the state of [`checkpoint`], `current`. Those inside
//! log, tree, `published` and [`room`] come after these, the state of `room` before the tree's. The others (queue, pools,
//! seats of the alarm, …) are leaves. Readers take none.
//!
//! Invariants:
//!
//! 1. A version becomes visible only after its batch is written as the durability demands, in order and without gaps.
//! 2. A memtable is merged only when all its versions are visible; its log is released only after the meta page is synced.
//! 3. After a failed sync or write of the log, and after a panic, nothing becomes visible any more (`fail_stop.rs`).
//! 4. Everything that a published generation reaches stays until no reader pins it (`readers.rs`; for pages, `TreeView`).

mod alarm;
mod attach;
mod backup;
mod batch;
mod catalog;
pub(crate) mod changes;
mod checkpoint;
mod close;
mod commit;
mod damage_stop;
mod feed;
mod folds;
mod foresee;
pub(crate) mod large;
pub(crate) mod limits;
mod overlay;
mod pace;
mod pieces;
mod pin;
mod queue;
pub(crate) mod reads;
mod recovery;
mod room;
mod throttle;
mod ticket;
pub(crate) mod view;
mod weight;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

pub(crate) use alarm::Wake;
pub(crate) use batch::Request;
pub(crate) use commit::finish;
pub(crate) use ticket::Waiting;

use crate::disk::{Disk, ReadQueue};
use crate::error::Error;
use crate::fail_stop::FailStop;
use crate::folder::FolderLock;
use crate::log::Log;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::readers::{Place, Published, RETIRED_MAX, ReaderSlot};
use crate::transaction::Work;
use crate::tree::{Report, SortedRunWriter, Sorter, TreeFile};
use alarm::Alarm;
use batch::OpenBatch;
use checkpoint::Checkpoints;
use large::Watching;
use queue::Queue;
use room::Room;
use throttle::Throttle;
use ticket::Crowd;
use view::{Generation, View};
use weight::Weights;
use writer::Writer;

/// See the module's text.
pub(crate) struct Engine {
    pub(crate) options: Options,
    disk: Arc<dyn Disk>,
    log: Log,
    tree: TreeFile,
    published: Arc<Published<Generation>>,
    /// The owner's copy of the published generation.
    current: Mutex<Generation>,
    /// The newest version that snapshots see. This field and the next ones have cache lines of their own: every reader
    /// reads it, and the writes of each commit must not evict it from the readers' caches.
    visible: CachePadded<AtomicU64>,
    queue: CachePadded<Queue<Box<Request>>>,
    /// Bytes held by transactions in the queue and in flight.
    pub(crate) weights: CachePadded<Weights>,
    crowd: CachePadded<Crowd>,
    /// Held by the committer that waits for the queue or gathers.
    watch: Mutex<()>,
    writer: Mutex<Writer>,
    /// Held while a batch is written to the disk.
    turn: Mutex<()>,
    pub(crate) fail_stop: Arc<FailStop>,
    is_closing: Arc<AtomicBool>,
    checkpoints: Checkpoints,
    room: Room,
    throttle: Arc<Throttle>,
    pub(crate) alarm: Alarm,
    /// Reader slots with which `commit` prepares.
    slots: Mutex<Vec<ReaderSlot<Generation>>>,
    /// Batch buffers not in use.
    batches: Mutex<Vec<OpenBatch>>,
    /// A merged memtable, whose memory the next one reuses.
    spare: Mutex<Option<Arc<Memtable>>>,
    sorters: AtomicU64,
    pub(crate) counters: Counters,
    /// Keys that others change while a large transaction is active.
    pub(crate) watching: Watching,
    /// Last, so that the directory is unlocked only after all files are closed.
    _lock: FolderLock,
}

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) redone: AtomicU64,
    pub(crate) inline: AtomicU64,
    pub(crate) slowed: AtomicU64,
}

/// Called at most once for each group, so the cost of the locked instruction does not matter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Locks state that no panic leaves half changed. Other state is locked by [`FailStop::lock`].
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Polling interval of threads that wait for readers to release old states.
const LOOK_FOR_READERS_EVERY: Duration = Duration::from_millis(1);

impl Engine {
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.fail_stop.is_stopped()
    }

    /// Stops all writes after a failed disk operation; reads continue.
    fn poison(&self, what: &str, error: &std::io::Error) {
        self.fail_stop.stop(what, error);
        self.checkpoints.wake_all();
    }

    /// See [`TreeFile::read_queue`].
    pub(crate) fn read_queue(&self, places: usize, place_bytes: usize) -> Option<Box<dyn ReadQueue>> {
        self.tree.read_queue(places, place_bytes)
    }

    pub(crate) fn register(&self) -> Result<ReaderSlot<Generation>, Error> {
        self.published.register().ok_or(Error::Busy)
    }

    /// Pins the newest state: a generation, and the version to read in it.
    #[inline]
    pub(crate) fn pin<'s>(&self, slot: &'s ReaderSlot<Generation>) -> (crate::readers::Guard<'s, Generation>, u64) {
        // A loaded tree is published before its version is visible; a reader that gets the tree must see that version.
        pin::pin(&self.published, slot, |generation| self.visible().max(generation.tree.meta().version.0))
    }

    /// Replaces the published generation, unless readers hold so many old states that it would have to wait. For
    /// intermediate states, which the next one replaces soon.
    fn publish_if_room(&self, change: impl FnOnce(&mut Generation)) {
        let mut current = self.fail_stop.lock(&self.current, "a state was published");
        let mut next = current.clone();
        change(&mut next);
        if self.published.replace(next.clone()).is_ok() {
            *current = next;
        }
    }

    /// Replaces the published generation, at a place reserved before anything was changed.
    fn publish(&self, place: Place<'_, Generation>, change: impl FnOnce(&mut Generation)) {
        let mut current = self.fail_stop.lock(&self.current, "a state was published");
        change(&mut current);
        place.replace(current.clone());
    }

    /// Reserves a place for a state to be published. If readers hold the maximum number of old states, waits for them
    /// at most `wait_max`. The caller has changed nothing yet, and does not hold `current`.
    fn reserve_state(&self, wait_max: Duration) -> Result<Place<'_, Generation>, Error> {
        let began = Instant::now();
        loop {
            if let Some(place) = self.published.reserve() {
                return Ok(place);
            }
            self.check_writable()?;
            if began.elapsed() >= wait_max {
                return Err(Error::Pinned { states: RETIRED_MAX as u64 });
            }
            std::thread::sleep(LOOK_FOR_READERS_EVERY);
        }
    }

    /// Runs `prepare` on the calling thread against the newest state, with a slot of the pool.
    pub(crate) fn prepare(
        &self,
        work: &mut Work,
        prepare: &mut dyn FnMut(&mut crate::Tx<'_>) -> Result<(), crate::Abort>,
    ) -> Result<(), Error> {
        let lent = self.take_slot();
        let (guard, version) = self.pin(lent.slot());
        work.prepare(View { generation: &guard, version }, prepare)
    }

    pub(crate) fn bulk(self: &Arc<Engine>) -> crate::tree::BulkBuilder {
        self.tree.bulk(pace::of_bulk_build(Arc::clone(self)))
    }

    fn take_slot(&self) -> LentSlot<'_> {
        loop {
            if let Some(slot) = lock(&self.slots).pop() {
                return LentSlot { engine: self, slot: Some(slot) };
            }
            // All slots are in use, each for the duration of one `prepare`. The slots of registered readers are not
            // used here.
            std::thread::yield_now();
        }
    }

    /// A sorter with temporary files of its own in the store's directory.
    pub(crate) fn sorter(&self, memory_bytes: usize) -> Sorter {
        Sorter::new(Arc::clone(&self.disk), &self.sorter_name(), memory_bytes)
    }

    /// The same for entries that are already sorted.
    pub(crate) fn sorted_run(&self) -> Result<SortedRunWriter, Error> {
        SortedRunWriter::new(Arc::clone(&self.disk), &self.sorter_name())
    }

    fn sorter_name(&self) -> String {
        format!("sort-{}", self.sorters.fetch_add(1, Ordering::Relaxed))
    }

    /// Checks every page that the newest tree reaches, and the use of all others.
    pub(crate) fn verify(&self) -> Report {
        self.tree.verify()
    }

    /// Use of the tree file's pages.
    pub(crate) fn space_stat(&self) -> crate::tree::SpaceStat {
        self.tree.space_stat()
    }

    pub(crate) fn stats(&self) -> crate::Stats {
        let generation = lock(&self.current).clone();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (changes_oldest, changes_kept_bytes) = self.log.changes_kept();
        let (damaged_pages, damage) = self.tree.damaged_pages();
        crate::Stats {
            version: self.visible(),
            queue_depth: self.queue.depth() as u64,
            queue_bytes: self.weights.bytes() as u64,
            commits: load(&self.counters.commits),
            groups: load(&self.counters.groups),
            inline_commits: load(&self.counters.inline),
            redone: load(&self.counters.redone),
            slowed: load(&self.counters.slowed),
            log_bytes_written: self.log.bytes_written(),
            log_bytes: self.log.live_bytes(),
            changes_oldest,
            changes_kept_bytes,
            change_readers: self.alarm.readers() as u64,
            checkpoints: self.checkpoints.completed(),
            checkpoint_failures: self.checkpoints.failed(),
            memtable_bytes: generation.active.used_bytes() as u64,
            frozen_bytes: generation.frozen.as_ref().map_or(0, |table| table.used_bytes() as u64),
            tree_pages: u64::from(generation.tree.meta().page_count),
            tree_version: generation.tree.meta().version.0,
            retired_generations: self.published.retired_len() as u64,
            pinned_states: generation.tree.meta().sequence - self.tree.oldest_view(),
            pinned_pages: self.tree.pinned_pages(),
            lost_pages: self.tree.lost_pages(),
            damaged_pages,
            damage: damage.map(|error| error.to_string()),
            is_stopped_by_damage: self.checkpoints.damage_stop.is_set(),
            is_poisoned: self.is_poisoned(),
            poisoned_by: self.fail_stop.cause().map(str::to_string),
            is_full: self.room.is_refusing() || self.log.is_full() || self.checkpoints.is_full(),
        }
    }
}

/// A slot of the pool. It is returned even if its user panics, since the pool is small.
struct LentSlot<'e> {
    engine: &'e Engine,
    /// `Some` until it is dropped.
    slot: Option<ReaderSlot<Generation>>,
}

impl LentSlot<'_> {
    fn slot(&self) -> &ReaderSlot<Generation> {
        self.slot.as_ref().expect("it is lent until it is dropped")
    }
}

impl Drop for LentSlot<'_> {
    fn drop(&mut self) {
        lock(&self.engine.slots).extend(self.slot.take());
    }
}
