//! The engine: log, memtables and tree together. [`crate::Store`] is its public interface.
//!
//! [`Engine`] holds the state; each room adds the methods of its subject. By their imports the rooms are layered, the
//! lowest first: [`read`], [`checkpoint`], [`write`](mod@write), [`load`] and [`feed`], [`lifecycle`]. All of them import
//! [`Engine`], [`options`] and [`stats`] from here.
//!
//! Threads of a store and their tasks:
//!
//! - callers prepare transactions and read. A lone caller commits by itself ([`write::commit`]).
//! - two committers take turns: gather queued transactions, write them to the log, publish, acknowledge
//!   ([`write::commit`]).
//! - the checkpointer merges the frozen memtable into the tree ([`checkpoint::checkpointer`]).
//! - the log's segment supply prepares segments.
//! - the space keeper looks at free disk space, and allocates memory for the memtable ([`checkpoint::disk_space`]).
//! - with `Durability::Interval`, the syncer syncs the log.
//!
//! Locks, in acquisition order: `merging`, `watch`, `writer`, `turn`, the state of [`checkpoint::checkpointer`],
//! `current`. Those inside log, tree and `published` come after these. The others (queue, pools, seats of the alarm, …) are leaves. Readers take none.
//!
//! Invariants:
//!
//! 1. A version becomes visible only after its batch is written as the durability demands, in order and without gaps.
//! 2. A memtable is merged only when all its versions are visible; its log is released only after the meta page is synced.
//! 3. After a failed sync or write of the log, and after a panic, nothing becomes visible any more (`base/fail_stop.rs`).
//! 4. A memtable, and what a meta page says to be in the trees, ends between two batches ([`write::writer`], `log::BatchEnd`).
//! 5. Everything that a published generation reaches stays until no reader pins it (`base/readers.rs`; for pages, `TreeView`).

pub(crate) mod checkpoint;
pub(crate) mod feed;
pub(crate) mod lifecycle;
pub(crate) mod load;
pub(crate) mod options;
pub(crate) mod read;
pub(crate) mod stats;
pub(crate) mod write;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::base::error::StoreError;
use crate::base::fail_stop::{FailStop, lock};
use crate::base::limits::LOOK_FOR_READERS_EVERY;
use crate::base::readers::{Published, RETIRED_MAX, ReadGuard, ReaderSlot, Reservation};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Instant, Mutex, thread};
use crate::disk::Disk;
use crate::log::{BatchBuilder, Log};
use crate::memtable::Memtable;
use crate::tree::TreeFile;
use checkpoint::checkpointer::Checkpoints;
use checkpoint::deleted_files::DeletedFiles;
use checkpoint::disk_space::DiskSpace;
use checkpoint::throttle::Throttle;
use feed::alarm::Alarm;
use lifecycle::folder::FolderLock;
use load::claims::Claims;
use options::StoreOptions;
use read::pin;
use read::view::{Generation, View};
use stats::{Counters, Stats};
use write::queue::Queue;
use write::request::Request;
use write::ticket::Crowd;
use write::transaction::{Abort, Tx, Work};
use write::weight::Weights;
use write::writer::IdleWriter;

/// See the module's text.
pub(crate) struct Engine {
    pub(crate) options: StoreOptions,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) log: Log,
    pub(crate) tree: TreeFile,
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
    writer: Mutex<IdleWriter>,
    /// Held while a batch is written to the disk.
    turn: Mutex<()>,
    pub(crate) fail_stop: Arc<FailStop>,
    is_closing: Arc<AtomicBool>,
    checkpoints: Checkpoints,
    deleted_files: DeletedFiles,
    disk_space: DiskSpace,
    throttle: Arc<Throttle>,
    pub(crate) alarm: Alarm,
    /// Reader slots with which `commit` prepares.
    slots: Mutex<Vec<ReaderSlot<Generation>>>,
    /// Batch buffers not in use.
    builders: Mutex<Vec<BatchBuilder>>,
    /// A merged memtable, whose memory the next one reuses.
    spare: Mutex<Option<Arc<Memtable>>>,
    sorters: AtomicU64,
    pub(crate) counters: Counters,
    /// What the active large transaction has read.
    pub(crate) claims: Claims,
    /// Last, so that the directory is unlocked only after all files are closed.
    lock: FolderLock,
}

impl Engine {
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.fail_stop.is_stopped()
    }

    /// Stops all writes after a failed disk operation; reads continue.
    fn poison(&self, what: &str, error: &std::io::Error) {
        self.checkpoints.announce(|| self.fail_stop.stop(what, error));
    }

    pub(crate) fn register(&self) -> Result<ReaderSlot<Generation>, StoreError> {
        self.published.register().ok_or(StoreError::Busy)
    }

    /// Pins the newest state: a generation, and the version to read in it.
    #[inline]
    pub(crate) fn pin<'s>(&self, slot: &'s ReaderSlot<Generation>) -> (ReadGuard<'s, Generation>, u64) {
        // A loaded tree or a large transaction is published before its version is visible; a reader that gets it must see
        // that version.
        pin::pin(&self.published, slot, |generation| self.visible().max(generation.contains()))
    }

    /// Replaces the published generation, unless readers hold so many old states that it would have to wait. For
    /// intermediate states, which the next one replaces soon.
    fn publish_if_room(&self, change: impl FnOnce(&mut Generation)) {
        if let Some(place) = self.published.reserve() {
            self.publish(place, change);
        }
    }

    /// Replaces the published generation, at a place reserved before anything was changed.
    fn publish(&self, place: Reservation<'_, Generation>, change: impl FnOnce(&mut Generation)) {
        let mut current = self.fail_stop.lock(&self.current, "a state was published");
        change(&mut current);
        let is_in_file = current.tables().any(|table| table.is_in_file());
        current.is_in_file = is_in_file;
        place.replace(current.clone());
    }

    /// Reserves a place for a state to be published. If readers hold the maximum number of old states, waits for them
    /// at most `wait_max`. The caller has changed nothing yet, and does not hold `current`.
    fn reserve_state(&self, wait_max: Duration) -> Result<Reservation<'_, Generation>, StoreError> {
        let began = Instant::now();
        loop {
            if let Some(place) = self.published.reserve() {
                return Ok(place);
            }
            self.check_writable()?;
            if began.elapsed() >= wait_max {
                return Err(StoreError::Pinned { states: RETIRED_MAX as u64 });
            }
            thread::sleep(LOOK_FOR_READERS_EVERY);
        }
    }

    /// Runs `prepare` on the calling thread against the newest state, with a slot of the pool.
    pub(crate) fn prepare(
        &self,
        work: &mut Work,
        prepare: &mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>,
    ) -> Result<(), StoreError> {
        let lent = self.take_slot();
        let (guard, version) = self.pin(lent.slot());
        work.prepare(View { generation: &guard, version }, prepare)
    }

    pub(crate) fn take_slot(&self) -> LentSlot<'_> {
        loop {
            if let Some(slot) = lock(&self.slots).pop() {
                return LentSlot { engine: self, slot: Some(slot) };
            }
            // All slots are in use, each for the duration of one `prepare`. The slots of registered readers are not
            // used here.
            thread::yield_now();
        }
    }

    /// Beginning of the names of temporary files, for one sorter.
    pub(crate) fn sorter_name(&self) -> String {
        format!("sort-{}", self.sorters.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn stats(&self) -> Stats {
        let generation = lock(&self.current).clone();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (changes_oldest, changes_kept_bytes) = self.log.changes_kept();
        let (damaged_pages, damage) = self.tree.damaged_pages();
        Stats {
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
            files_deleted: self.deleted_files.names().map(str::to_string),
            log_refusal: self
                .log
                .refusal()
                .filter(|error| !matches!(error, StoreError::Full))
                .map(|error| error.to_string()),
            is_poisoned: self.is_poisoned(),
            poisoned_by: self.fail_stop.cause().map(str::to_string),
            is_full: self.disk_space.is_full() || self.log.is_full() || self.checkpoints.is_full(),
        }
    }
}

/// A slot of the pool. It is returned even if its user panics, since the pool is small.
pub(crate) struct LentSlot<'e> {
    engine: &'e Engine,
    /// `Some` until it is dropped.
    slot: Option<ReaderSlot<Generation>>,
}

impl LentSlot<'_> {
    pub(crate) fn slot(&self) -> &ReaderSlot<Generation> {
        self.slot.as_ref().expect("it is lent until it is dropped")
    }
}

impl Drop for LentSlot<'_> {
    fn drop(&mut self) {
        lock(&self.engine.slots).extend(self.slot.take());
    }
}
