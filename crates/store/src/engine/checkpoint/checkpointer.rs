//! Checkpoints: the frozen memtable is merged into the tree, then its part of the log is released.
//!
//! 1. Freeze: a new memtable becomes active (under the writer's lock, microseconds).
//! 2. Wait until all versions in the frozen memtable are visible and durable.
//! 3. Merge it in key order, tree by tree, paced and in pieces ([`super::pieces`]). Each piece ends with a sync, the
//!    meta page, a sync, and a published generation with the new tree and the same frozen memtable.
//! 4. After the last piece, publish a generation without the frozen memtable.
//! 5. Release the log's segments before the new log start.
//!
//! Writers continue all the time. They wait only if the new memtable is full before the old one is merged, and get an
//! error only if that checkpoint then fails, for example on a full disk. A failed checkpoint loses nothing and is
//! retried. If its sync failed, the store is poisoned, since the content of the disk is unknown. If it met a damaged
//! page, writes stop: [`super::damage_stop`].

use std::io;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use super::damage_stop::DamageStop;
use super::pace::{self, Pacer, Progress};
use super::pieces::{self, Reached, Walk};
use super::retries::Retries;
use crate::base::error::StoreError;
use crate::base::fail_stop::{Held, lock};
use crate::base::key::Version;
use crate::base::limits::{LOOK_FOR_FILES_EVERY, READERS_WAIT_MAX, REST, RETRY_AFTER, RETRY_DAMAGED_AFTER, TICK};
use crate::base::monitor::Monitor;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Instant, Mutex, thread};
use crate::disk::end_sleeps_in_time;
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::log::BatchEnd;
use crate::memtable;
use crate::tree::{PAGE_BYTES, TreeView, TreeWriter};

/// Schedule and results of checkpoints.
#[derive(Default)]
pub(crate) struct Checkpoints {
    state: Monitor<State>,
    /// Held during a merge: by the checkpointer, a bulk attachment, the commit of a large transaction, a backup or a compaction.
    merging: Mutex<()>,
    is_requested_by_size: AtomicBool,
    pub(in crate::engine) damage_stop: DamageStop,
    completed: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Where the frozen memtable ends.
    frozen: Option<BatchEnd>,
    /// The last key of the frozen memtable whose merge is durable.
    reached: Option<Reached>,
    /// Number of `Store::checkpoint` calls so far, and how many of them are served.
    asked: u64,
    served: u64,
    /// The error of the last attempt; cleared by the next success.
    failure: Option<StoreError>,
    /// The attempt could not freeze the active memtable, which says nothing about the merge of a frozen one.
    failed_to_freeze: bool,
    /// Number of attempts, so that a waiting thread can tell a new failure from an old one.
    tries: u64,
    /// Failures since the last success.
    retries: Retries,
    /// Number of writers that wait for the merge of the frozen memtable.
    waiting: u32,
    /// The end of the last attempt, or the start of the store.
    last_end: Option<Instant>,
}

/// What the checkpointer does next.
enum Step {
    /// A checkpoint that serves these calls of `Store::checkpoint`.
    Checkpoint(u64),
    /// The store is poisoned: waiting calls get that error.
    Refuse,
    /// The store closes.
    End,
}

impl State {
    /// Whether the last attempt has just ended, so that the next one has not begun.
    fn is_fresh(&self) -> bool {
        self.last_end.is_some_and(|end| end.elapsed() < RETRY_AFTER)
    }
}

impl Checkpoints {
    pub(crate) fn new() -> Checkpoints {
        let checkpoints = Checkpoints::default();
        checkpoints.state.change(|state| state.last_end = Some(Instant::now()));
        checkpoints
    }

    fn state(&self) -> impl DerefMut<Target = State> {
        self.state.lock()
    }

    /// Reports a frozen memtable, to be merged at once.
    pub(crate) fn frozen(&self, end: BatchEnd) {
        self.state.change(|state| {
            (state.frozen, state.reached) = (Some(end), None);
            self.is_requested_by_size.store(false, Ordering::Relaxed);
        });
    }

    /// Requests a checkpoint because the active memtable is nearly full.
    pub(crate) fn request_by_size(&self) {
        if !self.is_requested_by_size.load(Ordering::Relaxed) {
            self.state.change(|_| self.is_requested_by_size.store(true, Ordering::Relaxed));
        }
    }

    /// The active memtable is about to be frozen, for which a checkpoint may have been requested.
    pub(in crate::engine) fn forget_request_by_size(&self) {
        self.is_requested_by_size.store(false, Ordering::Relaxed);
    }

    /// Whether a frozen memtable waits for its merge.
    pub(in crate::engine) fn has_frozen(&self) -> bool {
        self.state().frozen.is_some()
    }

    /// Makes a change outside of the state that waiting threads test: the store closes, or is stopped.
    pub(crate) fn announce(&self, change: impl FnOnce()) {
        self.state.change(|_| change());
    }

    /// Waits for `time` or until the store closes; true if it closes.
    pub(crate) fn wait_for_close(&self, engine: &Engine, time: Duration) -> bool {
        self.state.wait(Some(time), |_| engine.is_closing.load(Ordering::Acquire).then_some(())).is_some()
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Whether the last checkpoint failed because the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.state().failure, Some(StoreError::Full))
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits until there is no frozen memtable, for a writer whose active one is full. `follow` is called after each
    /// wait: the writer must drop its own old generation, or it would keep freed pages from being reused.
    pub(crate) fn wait_until_merged(&self, engine: &Engine, mut follow: impl FnMut()) -> Result<(), StoreError> {
        let is_pinned = engine.published.reserve().is_none();
        let mut state = self.state();
        // Only a failure of a new attempt counts, or one that has just happened: after an earlier one the disk may have
        // room by now.
        let tries = state.tries;
        let is_over = |failure: &StoreError| matches!(failure, StoreError::Pinned { .. }) && !is_pinned;
        while state.frozen.is_some() {
            engine.check_writable()?;
            if let Some(failure) = state.failure.as_ref().filter(|_| !state.failed_to_freeze)
                && (self.damage_stop.is_set() || state.tries > tries || state.is_fresh() && !is_over(failure))
            {
                return Err(failure.clone());
            }
            let seen = (state.tries, state.reached.clone());
            drop(state);
            self.state.change(|state| state.waiting += 1);
            let has_changed =
                |state: &State| state.frozen.is_none() || state.tries != seen.0 || state.reached != seen.1;
            self.state.wait(Some(TICK), |state| has_changed(state).then_some(()));
            self.state.change(|state| state.waiting -= 1);
            follow();
            state = self.state();
        }
        Ok(())
    }
}

impl Engine {
    /// Returns an error if the store is poisoned or closing.
    pub(in crate::engine) fn check_writable(&self) -> Result<(), StoreError> {
        if self.is_poisoned() {
            return Err(StoreError::Poisoned);
        }
        if self.is_closing.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Main loop of the checkpointer.
    pub(crate) fn run_checkpointer(&self) {
        // The pause between two slices is shorter than the kernel's default timer slack.
        end_sleeps_in_time();
        let mut lost_pages = 0;
        let mut looked_at = Instant::now();
        loop {
            match self.checkpoints.state.wait(Some(TICK), |state| self.next_step(state)) {
                Some(Step::End) => return,
                // A failure is retried.
                Some(Step::Checkpoint(asked)) => drop(self.run_checkpoint(asked)),
                // A poisoned store answers once.
                Some(Step::Refuse) => self.checkpoints.state.change(|state| {
                    state.served = state.asked;
                    state.failure = Some(StoreError::Poisoned);
                }),
                None => {}
            }
            if looked_at.elapsed() >= LOOK_FOR_FILES_EVERY {
                looked_at = Instant::now();
                // Checkpoints go on: see the module `deleted_files`.
                let _ = self.look_for_files();
            }
            self.report_lost_pages(&mut lost_pages);
            if self.published.retired_len() > 0 {
                self.published.reclaim();
            }
        }
    }

    /// What the checkpointer does next; `None`: nothing yet.
    fn next_step(&self, state: &mut State) -> Option<Step> {
        if self.is_closing.load(Ordering::Acquire) {
            return Some(Step::End);
        }
        if self.is_poisoned() {
            return (state.asked > state.served).then_some(Step::Refuse);
        }
        let is_rested = match self.checkpoints.damage_stop.is_set() {
            true => state.last_end.is_none_or(|end| end.elapsed() >= RETRY_DAMAGED_AFTER),
            false => state.retries.may_try(Instant::now(), state.waiting > 0),
        };
        let may_begin = is_rested || state.asked > state.served;
        (may_begin && self.is_due(state)).then_some(Step::Checkpoint(state.asked))
    }

    /// Logs the number of lost pages each time it has grown, so that a failing disk shows in the log.
    fn report_lost_pages(&self, reported: &mut u64) {
        let lost = self.tree.lost_pages();
        if lost > *reported {
            *reported = lost;
            tracing::error!(lost, "pages of the tree file could not be read: reads that need them fail");
        }
    }

    fn is_due(&self, state: &State) -> bool {
        if state.frozen.is_some() || state.asked > state.served {
            return true;
        }
        if self.checkpoints.is_requested_by_size.load(Ordering::Relaxed) {
            return true;
        }
        let is_late = state.last_end.is_none_or(|end| end.elapsed() >= self.options.checkpoint_interval);
        let is_long = self.log.live_bytes() > self.options.log_bytes_max();
        let is_rested = state.last_end.is_none_or(|end| end.elapsed() >= REST);
        let live_bytes = u64::from(self.tree.live_pages()) * PAGE_BYTES as u64;
        let worth = self.options.checkpoint_worth_bytes(live_bytes);
        let is_worth_it = is_rested && lock(&self.current).active.used_bytes() > worth;
        // A checkpoint releases log segments, and pages of deleted data.
        let is_full = self.disk_space.is_full();
        let is_short = self.log.is_full() && self.log.has_older_segments() || is_full && is_rested;
        let has_changes = !lock(&self.current).active.is_empty();
        let frees = is_full && !state.is_fresh() && self.is_worth_freeing();
        // Not without a rest: while a large transaction writes its pieces, no checkpoint shortens the log.
        (is_late || is_long && is_rested || is_worth_it || is_short) && has_changes || frees
    }

    /// Freezes and merges; a memtable that is already frozen is merged first.
    fn run_checkpoint(&self, asked: u64) -> Result<(), StoreError> {
        let _ = self.look_for_files();
        let _merging = self.fail_stop.lock(&self.checkpoints.merging, MERGING);
        let mut failed_to_freeze = false;
        let result = self.merge_frozen().and_then(|()| {
            self.freeze().inspect_err(|_| failed_to_freeze = true)?;
            self.merge_frozen()
        });
        let result = result.and_then(|()| match self.is_disk_space_scarce() && self.is_worth_freeing() {
            true => self.checkpoint_nothing(),
            false => Ok(()),
        });
        self.checkpoints.state.change(|state| {
            state.failed_to_freeze = failed_to_freeze;
            self.note_result(state, asked, &result);
        });
        result
    }

    fn note_result(&self, state: &mut State, asked: u64, result: &Result<(), StoreError>) {
        state.served = state.served.max(asked);
        state.tries += 1;
        state.last_end = Some(Instant::now());
        state.failure = result.as_ref().err().cloned();
        if !matches!(result, Err(StoreError::Closed | StoreError::Busy | StoreError::Pinned { .. })) {
            self.checkpoints.damage_stop.note(result.as_ref().err().filter(|error| self.is_of_a_page(error)));
        }
        match result {
            Ok(()) => {
                self.checkpoints.completed.fetch_add(1, Ordering::Relaxed);
                let failures = state.retries.succeeded();
                if failures > 0 {
                    tracing::info!(failures, "a checkpoint succeeded after some that failed");
                }
            }
            Err(StoreError::Closed) => {}
            Err(StoreError::Busy) => {
                state.retries.waited(Instant::now());
                tracing::debug!("a checkpoint waits: readers hold the maximum number of memtables")
            }
            // Closing interrupts a merge through its pacing. That is no failure: the log is replayed at the next start.
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::Interrupted && self.is_closing.load(Ordering::Acquire) => {}
            Err(error) => {
                self.checkpoints.failed.fetch_add(1, Ordering::Relaxed);
                // Readers end by themselves, and meanwhile writers wait for a checkpoint.
                let is_of_readers = matches!(error, StoreError::Pinned { .. });
                if is_of_readers {
                    state.retries.waited(Instant::now());
                }
                if is_of_readers || state.retries.failed(Instant::now()) {
                    let failures = state.retries.failures();
                    tracing::warn!(%error, failures, "checkpoint failed; it is tried again");
                }
            }
        }
    }

    /// Whether a checkpoint failed because a page of the tree is damaged or unreadable.
    fn is_of_a_page(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Corrupt { .. } => true,
            StoreError::Io { source, .. } => source.raw_os_error() == Some(libc::EIO) && self.tree.has_lost_in_map(),
            _ => false,
        }
    }

    /// Steps 2 to 5 of the module's text. Under `merging`.
    pub(in crate::engine) fn merge_frozen(&self) -> Result<(), StoreError> {
        self.fail_stop.check()?;
        let (frozen, reached) = {
            let state = self.checkpoints.state();
            (state.frozen, state.reached.clone())
        };
        let Some(frozen) = frozen else { return Ok(()) };
        let Some(table) = lock(&self.current).frozen.clone() else { return Ok(()) };
        // Reserved before anything is merged, so that the result can be published.
        let place = self.reserve_state(READERS_WAIT_MAX)?;
        self.wait_until_visible(frozen.version().0)?;
        if self.options.durability != Durability::Commit {
            self.log.sync().map_err(|error| StoreError::Unknown(error.into()))?;
            self.alarm.ring();
        }
        let keys = table.len() as u64;
        let (bytes, live) = (table.used_bytes() as u64, self.tree.live_pages().into());
        let most = keys.div_ceil(pieces::count(keys, bytes, live, self.options.memtable_bytes));
        let mut walk = Walk::after(&table, frozen.version(), reached.as_ref());
        let progress = Arc::new(Progress::of(keys, self.log.bytes_written()));
        let pacer = self.pacer(&progress);
        let view = loop {
            if let Some(view) = self.merge_piece(&mut walk, most, frozen, &progress, &pacer)? {
                break view;
            }
        };
        drop(walk);
        self.publish(place, |generation| {
            generation.tree = view;
            generation.frozen = None;
        });
        self.forget_frozen(frozen.version().0);
        self.log.release_before(frozen.log_start().segment);
        self.refresh_idle_writer();
        self.published.reclaim();
        if self.is_ordinary(&table) {
            *lock(&self.spare) = Some(table);
        }
        Ok(())
    }

    /// Merges one piece of the frozen memtable. After the last piece, returns the complete trees, which are not yet
    /// published.
    fn merge_piece(
        &self,
        walk: &mut Walk<'_>,
        most: u64,
        frozen: BatchEnd,
        progress: &Progress,
        pacer: &Arc<Mutex<Pacer>>,
    ) -> Result<Option<Arc<TreeView>>, StoreError> {
        let mut tree = self.tree.begin(pace::of_checkpoint(pacer))?;
        let is_last = !walk.merge(&mut tree, most, &|| progress.note(&self.log, &self.throttle))?;
        if lock(&self.current).frozen.as_ref().is_some_and(|table| table.lost() > 0) {
            // The log still has what is lost here: the store must be reopened.
            let error = memtable::lost_error();
            self.fail_stop.stop("reading a large transaction's file", &io::Error::other(error.to_string()));
            return Err(error);
        }
        if is_last {
            return self.finish(tree, frozen).map(Some);
        }
        let view = self.finish_part(tree, frozen.version())?;
        self.publish_if_room(|generation| generation.tree = view);
        self.checkpoints.state.change(|state| state.reached = walk.reached().cloned());
        self.refresh_idle_writer();
        self.published.reclaim();
        Ok(None)
    }

    /// An empty checkpoint, under `merging`: after it no meta page reaches the pages that the previous one has freed.
    fn checkpoint_nothing(&self) -> Result<(), StoreError> {
        let tree = self.tree.begin(pace::unhindered(Arc::clone(&self.is_closing)))?;
        let view = match self.finish_part(tree, Version(0)) {
            // It is not needed for what was acknowledged.
            Err(StoreError::Full) => return Ok(()),
            finished => finished?,
        };
        self.publish_if_room(|generation| generation.tree = view);
        self.refresh_idle_writer();
        self.published.reclaim();
        Ok(())
    }

    /// Ends a checkpoint after which the trees contain everything up to this place in the log, and nothing after it.
    pub(in crate::engine) fn finish(&self, tree: TreeWriter<'_>, end: BatchEnd) -> Result<Arc<TreeView>, StoreError> {
        self.finished(tree.finish(end.version(), end.log_start()))
    }

    /// Ends a piece of a checkpoint, which may have merged a part of the versions up to `reaches`.
    fn finish_part(&self, tree: TreeWriter<'_>, reaches: Version) -> Result<Arc<TreeView>, StoreError> {
        self.finished(tree.finish_part(reaches))
    }

    /// A failed sync poisons the store; a full disk does not.
    fn finished(&self, view: Result<Arc<TreeView>, StoreError>) -> Result<Arc<TreeView>, StoreError> {
        view.inspect_err(|error| {
            if let StoreError::Io { source, .. } = error
                && source.kind() != io::ErrorKind::Interrupted
            {
                self.poison("sync of the tree", source);
            }
        })
    }

    pub(in crate::engine) fn wait_until_visible(&self, version: u64) -> Result<(), StoreError> {
        while self.visible() < version {
            self.check_writable()?;
            // A batch is in flight: tens of microseconds on a good disk.
            thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Waits for a checkpoint that contains everything visible at the call.
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        let ticket = self.checkpoints.state.change(|state| {
            state.asked += 1;
            state.asked
        });
        loop {
            let served = self.checkpoints.state.wait(Some(TICK), |state| {
                (state.served >= ticket).then(|| state.failure.as_ref().map_or(Ok(()), |failure| Err(failure.clone())))
            });
            match served {
                Some(result) => return result,
                None => self.check_writable()?,
            }
        }
    }

    /// Waits for a running merge to end and keeps the next one from starting.
    pub(crate) fn hold_merging(&self) -> Result<Held<'_, ()>, StoreError> {
        let merging = self.fail_stop.lock(&self.checkpoints.merging, MERGING);
        self.merge_frozen()?;
        Ok(merging)
    }

    /// Records that the frozen memtable that ends at or before this version is merged.
    pub(in crate::engine) fn forget_frozen(&self, merged: u64) {
        self.checkpoints.state.change(|state| {
            if state.frozen.is_some_and(|frozen| frozen.version().0 <= merged) {
                (state.frozen, state.reached) = (None, None);
            }
        });
    }
}

/// The activity named by a panic under the merge lock.
const MERGING: &str = "a memtable was merged";
