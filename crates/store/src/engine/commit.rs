//! Group commit: two committers take turns, a lone caller does it all by itself.
//!
//! ```text
//!  committer A   gather ─ write and sync ─ acknowledge   gather …………… write and sync ─ …
//!  committer B            gather …………… write and sync ─ acknowledge   gather …
//! ```
//!
//! `writer` is held while a batch is gathered and sealed, `turn` while it is on its way to the disk; the turn is taken
//! before the writer is let go, so batches reach the log in order. While one batch syncs, the other committer gathers the
//! next as it comes: it sleeps until [`STRIDE`] transactions wait or the turn is free. So when the disk is free there is
//! a batch for it, and what has come last is left for the next one if it is much: the disk does not wait for memory. A
//! committer that slept on the turn itself, and gathered once it had it, left the disk idle for as long as that took; one
//! that is woken by each transaction costs a thread switch for each.
//!
//! Handing batches from a gathering thread to a syncing one was the other way: it costs two more thread switches for each
//! group, and the caller who commits inline would be a special case.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, TryLockError};

use super::batch::{OpenBatch, Request};
use super::queue::{Queue, Refused};
use super::ticket::wake_waiting;
use super::writer::{Placed, Writer};
use super::{Engine, Waiting, count, lock};
use crate::error::Error;
use crate::key::Version;
use crate::transaction::{Abort, Commit, Transaction, Tx, Work};

/// Transactions for which the committer that gathers is woken while the other one's batch is on its way. It places one
/// in about a microsecond, and a wake-up costs several.
const STRIDE: usize = 16;
/// Transactions that are still placed when the disk is free already: a sync takes as long as some dozens of them.
const LATE_MAX: usize = 2 * STRIDE;

/// The right to write to the log; whoever gathers hears when it is free again.
struct Turn<'e> {
    guard: Option<MutexGuard<'e, ()>>,
    queue: &'e Queue<Box<Request>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.queue.nudge();
    }
}

/// How sending a batch ended.
enum Sent {
    Durable,
    /// An earlier failure.
    Poisoned,
    /// This write or sync failed.
    Failed(std::io::Error),
}

impl Sent {
    fn outcome(&self, version: u64) -> Result<Commit, Error> {
        match self {
            Sent::Durable => Ok(Commit { version: Version(version) }),
            Sent::Poisoned => Err(Error::Poisoned),
            Sent::Failed(error) => Err(Error::Unknown(copy_of(error))),
        }
    }
}

/// An `io::Error` cannot be cloned, and each transaction of the batch wants one.
fn copy_of(error: &std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

impl Engine {
    /// Life of a committer thread.
    pub(crate) fn run_committer(&self) {
        let mut batch = OpenBatch::new(&self.options);
        loop {
            let watch = lock(&self.watch);
            if lock(&self.writer).backlog.is_empty() && !self.queue.wait() {
                return;
            }
            let mut writer = lock(&self.writer);
            let turn = self.gather_until_turn(&mut writer, &mut batch);
            drop(watch);
            let sent = self.send(writer, turn, &mut batch);
            self.acknowledge(&mut batch, &sent);
        }
    }

    /// Places what comes until the batch is full or the disk is free.
    fn gather_until_turn(&self, writer: &mut Writer, batch: &mut OpenBatch) -> Turn<'_> {
        self.slow_down(writer);
        self.gather(writer, batch, usize::MAX);
        loop {
            // What is left over did not fit: only sending makes room for it.
            if !writer.backlog.is_empty() {
                return self.turn(lock(&self.turn));
            }
            if let Some(turn) = self.try_turn() {
                self.gather(writer, batch, LATE_MAX);
                return turn;
            }
            self.queue.wait_for_more(STRIDE);
            self.gather(writer, batch, usize::MAX);
        }
    }

    fn turn<'e>(&'e self, guard: MutexGuard<'e, ()>) -> Turn<'e> {
        Turn { guard: Some(guard), queue: &self.queue }
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        match self.turn.try_lock() {
            Ok(guard) => Some(self.turn(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.turn(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Places what waits, so many at most, as far as the batch has room.
    fn gather(&self, writer: &mut Writer, batch: &mut OpenBatch, count_max: usize) {
        self.refresh(writer);
        if writer.backlog.is_empty() {
            let mut taken = std::mem::take(&mut writer.taken);
            self.queue.take_into(&mut taken);
            writer.backlog.extend(taken.drain(..));
            writer.taken = taken;
        }
        let count = count_max.min(writer.backlog.len());
        let mut placed_count = 0;
        while placed_count < count
            && let Some(mut request) = writer.backlog.pop_front()
        {
            writer.foresee();
            let Request { transaction, work, .. } = &mut *request;
            let placed = if self.is_poisoned() {
                Placed::Refused(Error::Poisoned)
            } else {
                self.place(writer, batch, work, &mut |tx| transaction.prepare(tx))
            };
            match placed {
                Placed::Done(version) => batch.done.push((request, Ok(version))),
                Placed::Refused(error) => batch.done.push((request, Err(error))),
                Placed::SendFirst => {
                    writer.backlog.push_front(request);
                    break;
                }
            }
            placed_count += 1;
        }
        self.queue.settle(placed_count);
    }

    /// Writes the batch and makes it visible. Lets the writer go as soon as the batch has its place.
    fn send(&self, mut writer: MutexGuard<'_, Writer>, turn: Turn<'_>, batch: &mut OpenBatch) -> Sent {
        self.put_folds(&mut writer, batch);
        if self.is_poisoned() {
            batch.builder.restart(0);
            return Sent::Poisoned;
        }
        let transactions = batch.builder.transactions();
        if transactions == 0 {
            return Sent::Durable;
        }
        let last_version = batch.builder.last_version();
        let sealed = self.log.seal(&mut writer.tail, &mut batch.builder);
        drop(writer);
        let written = self.log.write(&sealed);
        let sent = match written {
            Ok(()) => {
                self.show(last_version);
                Sent::Durable
            }
            Err(error) => {
                self.poison("writing to the log", &error);
                Sent::Failed(error)
            }
        };
        batch.builder.restart(0);
        drop(turn);
        self.alarm.ring();
        count(&self.counters.groups, 1);
        count(&self.counters.commits, u64::from(transactions));
        sent
    }

    /// Tells all that waited for the batch.
    fn acknowledge(&self, batch: &mut OpenBatch, sent: &Sent) {
        // Before an outcome is told: whoever hears of it may submit again at once.
        self.weights.give_back(batch.done.iter().map(|(request, _)| request.weight).sum());
        let mut callers = 0;
        for (request, outcome) in batch.done.drain(..) {
            let Request { transaction, work, is_awaited, .. } = *request;
            callers += usize::from(is_awaited);
            drop(work);
            finish(transaction, outcome.and_then(|version| sent.outcome(version)));
        }
        self.crowd.note(callers);
        wake_waiting();
    }

    /// Queues a prepared transaction; gives it back when the queue is full.
    pub(crate) fn enqueue(&self, request: Box<Request>) -> Result<(), Box<Request>> {
        match self.queue.push(request) {
            Ok(()) => Ok(()),
            Err(Refused::Full(request)) => Err(request),
            Err(Refused::Closed(request)) => {
                self.weights.give_back(request.weight);
                finish(request.transaction, Err(Error::Closed));
                wake_waiting();
                Ok(())
            }
        }
    }

    /// Prepares, commits and waits.
    pub(crate) fn commit(
        &self,
        change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send),
    ) -> Result<Commit, Error> {
        let mut work = Work::new(self.options.transaction_bound());
        self.prepare(&mut work, change)?;
        if let Some(outcome) = self.commit_inline(&mut work, change) {
            return outcome;
        }
        Waiting::run(change, &self.crowd, |waiting| {
            let request = Request { transaction: waiting, work, weight: 0, is_awaited: true };
            self.enqueue(Box::new(request)).map_err(|_refused| Error::Busy)
        })
    }

    /// Commits on the calling thread when nothing is queued and no batch is on its way.
    fn commit_inline(
        &self,
        work: &mut Work,
        change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send),
    ) -> Option<Result<Commit, Error>> {
        if self.queue.depth() > 0 || self.is_closing.load(std::sync::atomic::Ordering::Acquire) {
            return None;
        }
        let mut writer = self.writer.try_lock().ok()?;
        // Small commits of one caller hardly outrun a merge; megabytes do.
        self.slow_down(&mut writer);
        let turn = self.try_turn()?;
        if self.is_poisoned() {
            return Some(Err(Error::Poisoned));
        }
        self.refresh(&mut writer);
        let mut batch = lock(&self.batches).pop().unwrap_or_else(|| OpenBatch::new(&self.options));
        let placed = self.place(&mut writer, &mut batch, work, change);
        let outcome = match placed {
            Placed::Done(version) => Some(self.send(writer, turn, &mut batch).outcome(version)),
            Placed::Refused(error) => Some(Err(error)),
            Placed::SendFirst => None,
        };
        count(&self.counters.inline, 1);
        lock(&self.batches).push(batch);
        outcome
    }
}

/// A panic in a caller's code must not take a committer with it.
pub(crate) fn finish(transaction: Box<dyn Transaction>, outcome: Result<Commit, Error>) {
    if catch_unwind(AssertUnwindSafe(|| transaction.finish(outcome))).is_err() {
        tracing::error!("a transaction's finish panicked; its commit stands");
    }
}
