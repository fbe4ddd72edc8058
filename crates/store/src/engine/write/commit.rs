//! Group commit: two committers take turns; a lone caller commits on its own thread.
//!
//! ```text
//!  committer A   gather ─ write and sync ─ acknowledge   gather …………… write and sync ─ …
//!  committer B            gather …………… write and sync ─ acknowledge   gather …
//! ```
//!
//! To gather a batch is to place transactions: each is validated, appended to the batch and inserted into the memtable. The
//! lock `writer` is held while a batch is gathered and sealed, the lock `turn` while it is written to the disk. The turn is
//! taken before the writer is released, so batches reach the log in order. While one batch syncs, the other committer
//! gathers the next: it sleeps until [`STRIDE`] transactions wait or the turn is free. So a batch is ready when the disk is
//! free, and a large remainder is left for the next batch, so that the disk does not wait for memory. If a committer slept
//! on the turn itself and gathered only then, the disk would be idle meanwhile; if each transaction woke it, each would
//! cost a thread switch.
//!
//! The alternative is a gathering thread that passes batches to a syncing thread. It costs two more thread switches for
//! each group, and inline commits would be a special case.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::decision::{Decided, Sent};
use super::gathering::{Gathering, QUIET_MAX};
use super::queue::{Queue, Refused};
use super::request::Request;
use super::ticket::{Waiting, wake_waiting};
use super::transaction::{Abort, Commit, RetriableTransaction, Tx, Work, finish};
use super::writer::{OpenBatch, Placed};
use crate::base::error::StoreError;
use crate::base::fail_stop::{Held, lock, panicked};
use crate::base::sync::atomic::Ordering;
use crate::engine::Engine;
use crate::engine::stats::count;
use crate::log::{BatchBuilder, Sealed};

/// Number of transactions that wakes the gathering committer while the other one's batch is in flight. Placing one
/// takes about a microsecond, a wake-up several.
const STRIDE: usize = 16;
/// Maximum number of transactions that are still placed when the disk is already free: a sync takes as long as placing
/// some dozens.
const LATE_MAX: usize = 2 * STRIDE;

/// The right to write to the log. Its release wakes the gathering committer.
pub(in crate::engine) struct Turn<'e> {
    guard: Option<Held<'e, ()>>,
    queue: &'e Queue<Box<Request>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.queue.nudge();
    }
}

/// The activity named by a panic under the turn.
pub(in crate::engine) const SENDING: &str = "a batch was written to the log";

impl Engine {
    /// Main loop of a committer thread.
    pub(crate) fn run_committer(&self) {
        let mut builder = self.new_builder();
        let mut done = Vec::new();
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.commit_group(&mut builder, &mut done))) {
                Ok(true) => {}
                Ok(false) => return,
                // The committer continues, so that later transactions are refused.
                Err(_) => {
                    self.fail_stop.stop_after_panic(SENDING);
                    self.acknowledge(&mut done, &Sent::Panicked);
                }
            }
        }
    }

    fn new_builder(&self) -> BatchBuilder {
        BatchBuilder::new(self.options.batch_bytes_max() / 4)
    }

    /// Waits for a group and commits it; false once the store is closed and the queue is empty.
    fn commit_group(&self, builder: &mut BatchBuilder, done: &mut Decided) -> bool {
        let watch = lock(&self.watch);
        if self.hold_writer().backlog.is_empty() && !self.queue.wait() {
            return false;
        }
        let mut writer = self.hold_writer();
        self.slow_down(&mut writer);
        self.make_room_for_next(&mut writer, done);
        let mut batch = writer.open(builder);
        let turn = self.gather_until_turn(&mut batch, done);
        drop(watch);
        let sealed = self.seal(batch);
        drop(writer);
        let sent = self.write(sealed, turn);
        self.acknowledge(done, &sent);
        true
    }

    /// Places transactions until the batch is full or the disk is free.
    fn gather_until_turn(&self, batch: &mut OpenBatch<'_, '_>, done: &mut Decided) -> Turn<'_> {
        self.gather(batch, done, usize::MAX);
        loop {
            // A leftover transaction did not fit; only sending the batch makes room for it.
            if !batch.writer.backlog.is_empty() {
                return self.take_turn();
            }
            if let Some(turn) = self.try_turn() {
                self.gather(batch, done, LATE_MAX);
                return turn;
            }
            self.queue.wait_for_more(STRIDE);
            self.gather(batch, done, usize::MAX);
        }
    }

    fn turn<'e>(&'e self, guard: Held<'e, ()>) -> Turn<'e> {
        Turn { guard: Some(guard), queue: &self.queue }
    }

    pub(in crate::engine) fn take_turn(&self) -> Turn<'_> {
        self.turn(self.fail_stop.lock(&self.turn, SENDING))
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        self.fail_stop.try_lock(&self.turn, SENDING).map(|guard| self.turn(guard))
    }

    /// Places at most `count_max` waiting transactions, as far as the batch has room.
    fn gather(&self, batch: &mut OpenBatch<'_, '_>, done: &mut Decided, count_max: usize) {
        if !self.is_poisoned() {
            self.refresh(batch.writer);
        }
        let writer = &mut *batch.writer;
        if writer.backlog.is_empty() {
            let mut taken = std::mem::take(&mut writer.taken);
            self.queue.take_into(&mut taken);
            writer.backlog.extend(taken.drain(..));
            writer.taken = taken;
        }
        let count = count_max.min(writer.backlog.len());
        let mut placed_count = 0;
        while placed_count < count
            && let Some(mut request) = batch.writer.backlog.pop_front()
        {
            let placed = if self.is_poisoned() {
                Placed::Decided(Err(StoreError::Poisoned).into())
            } else {
                batch.writer.foresee();
                let (work, mut prepare) = request.parts();
                self.place(batch, work, &mut prepare)
            };
            match placed {
                Placed::Decided(decision) => done.push((request, decision)),
                Placed::SendFirst => {
                    batch.writer.backlog.push_front(request);
                    batch.writer.wants_room = true;
                    break;
                }
            }
            placed_count += 1;
        }
        self.queue.settle(placed_count);
    }

    /// Ends the batch: its folds are put, and it gets its position in the log. `None` if there is nothing to write.
    fn seal<'b>(&self, mut batch: OpenBatch<'_, 'b>) -> Option<Sealed<'b>> {
        if self.is_poisoned() {
            return None;
        }
        self.put_folds(&mut batch);
        let OpenBatch { writer, builder } = batch;
        (builder.transactions() > 0).then(|| self.log.seal(&mut writer.tail, builder))
    }

    /// Writes the batch and makes it visible.
    fn write(&self, sealed: Option<Sealed<'_>>, turn: Turn<'_>) -> Sent {
        let Some(sealed) = sealed else {
            // No batch is in flight during this turn, so all earlier ones are durable, or have failed.
            return if self.is_poisoned() { Sent::Poisoned } else { Sent::Durable };
        };
        let sent = match self.log.write(&sealed) {
            Ok(()) => {
                self.show(sealed.version);
                Sent::Durable
            }
            Err(error) => {
                self.poison("writing to the log", &error);
                Sent::Failed(error.into())
            }
        };
        drop(turn);
        self.alarm.ring();
        if matches!(sent, Sent::Durable) {
            count(&self.counters.groups, 1);
            count(&self.counters.commits, u64::from(sealed.transactions));
        }
        sent
    }

    /// Finishes all transactions that were decided in the batch.
    fn acknowledge(&self, done: &mut Decided, sent: &Sent) {
        // Done before any outcome is reported, because its receiver may submit again at once.
        self.weights.give_back(done.iter().map(|(request, _)| request.weight).sum());
        let mut callers = 0;
        for (request, decision) in done.drain(..) {
            callers += usize::from(request.is_awaited);
            if let Some(transaction) = request.take() {
                finish(transaction, sent.outcome(decision));
            }
        }
        self.crowd.note(callers);
        wake_waiting();
    }

    /// Queues a prepared transaction; returns it if the queue is full. While `gathering` is on, a sleeping committer may stay
    /// asleep.
    pub(crate) fn enqueue(
        &self,
        request: Box<Request>,
        gathering: Option<&Gathering>,
    ) -> Result<(), Box<dyn RetriableTransaction>> {
        let pushed = match gathering.filter(|gathering| gathering.is_on()) {
            Some(gathering) => self.queue.push_quietly(request, QUIET_MAX).map(|is_asleep| gathering.note(is_asleep)),
            None => self.queue.push(request),
        };
        match pushed {
            Ok(()) => Ok(()),
            Err(Refused::Full(request)) => request.take().map_or(Ok(()), Err),
            Err(Refused::Closed(request)) => {
                self.weights.give_back(request.weight);
                if let Some(transaction) = request.take() {
                    finish(transaction, Err(StoreError::Closed));
                }
                wake_waiting();
                Ok(())
            }
        }
    }

    /// Whether a quarter of the queue is free, in places and in bytes.
    pub(crate) fn has_room(&self) -> bool {
        self.weights.has_room() && self.queue.has_room()
    }

    /// Prepares, commits and waits.
    pub(crate) fn commit(
        &self,
        change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send),
    ) -> Result<Commit, StoreError> {
        let mut work = Work::new(self.options.transaction_bound());
        self.prepare(&mut work, change)?;
        match catch_unwind(AssertUnwindSafe(|| self.commit_inline(&mut work, change))) {
            Ok(None) => {}
            Ok(Some(outcome)) => return outcome,
            Err(_) => {
                self.fail_stop.stop_after_panic(SENDING);
                return Err(panicked());
            }
        }
        Waiting::run(change, &self.crowd, |waiting| {
            self.enqueue(Box::new(Request::new(waiting, work, 0, true)), None).map_err(|_refused| StoreError::Busy)
        })
    }

    /// Commits on the calling thread if nothing is queued and no batch is in flight.
    fn commit_inline(
        &self,
        work: &mut Work,
        change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send),
    ) -> Option<Result<Commit, StoreError>> {
        if self.queue.depth() > 0 || self.is_closing.load(Ordering::Acquire) {
            return None;
        }
        let mut writer = self.try_hold_writer()?;
        // Large commits of a single caller can outrun a merge.
        self.slow_down(&mut writer);
        let turn = self.try_turn()?;
        if self.is_poisoned() {
            return Some(Err(StoreError::Poisoned));
        }
        self.refresh(&mut writer);
        let mut builder = lock(&self.builders).pop().unwrap_or_else(|| self.new_builder());
        let mut batch = writer.open(&mut builder);
        let outcome = match self.place(&mut batch, work, change) {
            Placed::Decided(decision) => {
                let sealed = self.seal(batch);
                drop(writer);
                Some(self.write(sealed, turn).outcome(decision))
            }
            // A committer makes room.
            Placed::SendFirst => None,
        };
        if matches!(outcome, Some(Ok(_))) {
            count(&self.counters.inline, 1);
        }
        lock(&self.builders).push(builder);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::disk::MemoryDisk;
    use crate::{Store, StoreOptions, Submit, TreeId};

    const TREE: TreeId = TreeId(7);
    const COUNT: u8 = 40;

    struct Put {
        number: u8,
        outcome: mpsc::Sender<Result<Commit, StoreError>>,
    }

    impl RetriableTransaction for Put {
        fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
            tx.put(TREE, &[self.number], b"value");
            Ok(())
        }

        fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
            self.outcome.send(outcome).unwrap();
        }
    }

    #[test]
    fn a_panic_under_the_writers_lock_is_told_to_all_and_shows_nothing_of_its_batch() {
        let disk = Arc::new(MemoryDisk::new(64 << 20));
        let mut options = StoreOptions::default();
        (options.memtable_bytes, options.log_segment_bytes) = (256 << 10, 64 << 10);
        let (store, _) = Store::open_on(disk.clone(), options.clone()).unwrap();
        let put = |store: &Store, number: u8| {
            store.commit(&mut |tx| {
                tx.put(TREE, &[number], b"value");
                Ok(())
            })
        };
        (0..3).for_each(|number| assert!(put(&store, number).is_ok()));
        let reader = store.reader().unwrap();
        let (outcome, outcomes) = mpsc::channel();
        {
            let mut writer = store.engine().hold_writer();
            for number in 100..100 + COUNT {
                let transaction = Box::new(Put { number, outcome: outcome.clone() });
                assert!(matches!(store.submit(&reader, transaction), Submit::Queued));
            }
            // The memtable accepts no version below its newest, so placing panics in the store's own assertion.
            writer.next_version = 1;
        }
        for _ in 0..COUNT {
            let outcome = outcomes.recv_timeout(std::time::Duration::from_secs(60)).expect("each transaction finishes");
            assert!(matches!(outcome, Err(StoreError::Poisoned | StoreError::Unknown(_))), "{outcome:?}");
        }
        assert!(store.stats().poisoned_by.is_some_and(|cause| cause.contains("panic")));
        assert!(matches!(put(&store, 3), Err(StoreError::Poisoned)));
        assert!(matches!(store.checkpoint(), Err(StoreError::Poisoned)));
        let check = |store: &Store| {
            let reader = store.reader().unwrap();
            let snapshot = reader.snapshot();
            (0..=u8::MAX).for_each(|key| assert_eq!(snapshot.get(TREE, &[key]).unwrap().is_some(), key < 3, "{key}"));
        };
        check(&store);
        drop((reader, store));
        let (store, _) = Store::open_on(disk, options).unwrap();
        check(&store);
        put(&store, 3).unwrap();
    }
}
