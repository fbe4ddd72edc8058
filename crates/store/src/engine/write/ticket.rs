//! A caller that waits for its own commit.
//!
//! The closure of [`crate::Store::commit`] is borrowed, but a queued transaction is owned. This module bridges the two,
//! and is the only place where a lifetime is erased.

#![allow(unsafe_code)] // See `Waiting`.

use std::cell::RefCell;
use std::sync::Arc;

use super::transaction::{Abort, Commit, RetriableTransaction, Tx};
use crate::base::error::StoreError;
use crate::base::fail_stop::lock;
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::thread::Thread;
use crate::base::sync::{Mutex, thread, thread_local};

/// Threads woken through one leader. A wake-up costs the waking thread microseconds: a committer that woke 32 waiters
/// itself would be late for the next batch, so it wakes every eighth one, and those wake the others.
const SHARD: usize = 8;

/// Callers in a group from which on the next callers yield before they sleep. With so many threads a core has another one to run: a
/// yield costs one thread switch, a sleep costs that, a wake-up, and often the wake-up of an idle core. With 64 threads on 4 cores
/// this gave a quarter more commits at about the same CPU time for each; with 16 threads each took about a fifth more CPU.
const CALLERS_MANY: usize = 20;
/// Maximum number of yields: with no other thread to run they take a few microseconds.
const YIELDS_MAX: u32 = 16;

/// Number of callers in the last group, as a forecast for the next.
#[derive(Default)]
pub(crate) struct Crowd {
    callers: AtomicUsize,
}

impl Crowd {
    /// Records the number of callers in an acknowledged group.
    pub(crate) fn note(&self, callers: usize) {
        // Not written if unchanged, so that the line stays in all caches.
        if self.callers.load(Ordering::Relaxed) != callers {
            self.callers.store(callers, Ordering::Relaxed);
        }
    }

    fn yields(&self) -> u32 {
        if self.callers.load(Ordering::Relaxed) >= CALLERS_MANY { YIELDS_MAX } else { 0 }
    }
}

/// The slot for a caller's outcome.
pub(crate) struct Ticket {
    outcome: Mutex<Option<Settled>>,
    /// Set after the outcome, so that a yielding thread can check it without a lock.
    is_settled: AtomicBool,
    thread: Thread,
}

/// An outcome, with the threads that its receiver has to wake.
struct Settled {
    outcome: Result<Commit, StoreError>,
    to_wake: Vec<Thread>,
}

impl Ticket {
    /// A ticket for the calling thread.
    fn new() -> Arc<Ticket> {
        Arc::new(Ticket { outcome: Mutex::new(None), is_settled: false.into(), thread: thread::current() })
    }

    fn put(&self, outcome: Result<Commit, StoreError>, to_wake: Vec<Thread>) {
        *lock(&self.outcome) = Some(Settled { outcome, to_wake });
        self.is_settled.store(true, Ordering::Release);
    }

    /// Yields at most this often, then sleeps.
    fn wait(&self, yields: u32) -> Result<Commit, StoreError> {
        for _ in 0..yields {
            if self.is_settled.load(Ordering::Acquire) {
                break;
            }
            thread::yield_now();
        }
        loop {
            if let Some(settled) = lock(&self.outcome).take() {
                settled.to_wake.iter().for_each(Thread::unpark);
                return settled.outcome;
            }
            thread::park();
        }
    }
}

/// The shard that is gathered while a batch is acknowledged. Its leader gets its outcome last, after all the threads that it wakes.
struct Shard {
    leader: Arc<Ticket>,
    outcome: Result<Commit, StoreError>,
    others: Vec<Thread>,
}

impl Shard {
    fn close(self) {
        self.leader.put(self.outcome, self.others);
        self.leader.thread.unpark();
    }
}

thread_local! {
    static SHARD_NOW: RefCell<Option<Shard>> = const { RefCell::new(None) };
}

/// Sets a ticket's outcome; its thread is woken at the latest by [`wake_waiting`], which must follow on this thread.
fn settle(ticket: Arc<Ticket>, outcome: Result<Commit, StoreError>) {
    let full = SHARD_NOW.with(|now| {
        let mut now = now.borrow_mut();
        match &mut *now {
            None => *now = Some(Shard { leader: ticket, outcome, others: Vec::with_capacity(SHARD - 1) }),
            Some(shard) => {
                ticket.put(outcome, Vec::new());
                shard.others.push(ticket.thread.clone());
            }
        }
        now.take_if(|shard| shard.others.len() == SHARD - 1)
    });
    if let Some(shard) = full {
        shard.close();
    }
}

/// Wakes the threads whose tickets were settled on this thread and that are not yet woken.
pub(crate) fn wake_waiting() {
    if let Some(shard) = SHARD_NOW.with(RefCell::take) {
        shard.close();
    }
}

type Change<'c> = dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send + 'c;

/// A borrowed change in the form of a transaction.
pub(crate) struct Waiting {
    /// Valid until the ticket is settled: [`Waiting::run`] does not return before.
    change: *mut Change<'static>,
    ticket: Arc<Ticket>,
    is_settled: bool,
}

// SAFETY: the pointer is to a `Send` closure that its owner, blocked in `run`, does not touch meanwhile.
unsafe impl Send for Waiting {}

impl Waiting {
    /// Passes `change` as a transaction to `hand_over` and waits for its outcome. If `hand_over` returns an error, it
    /// must have dropped the transaction.
    pub(crate) fn run(
        change: &mut Change<'_>,
        crowd: &Crowd,
        hand_over: impl FnOnce(Box<Waiting>) -> Result<(), StoreError>,
    ) -> Result<Commit, StoreError> {
        let ticket = Ticket::new();
        let change: *mut Change<'_> = change;
        // SAFETY: only the lifetime in the type changes. Only `prepare` follows the pointer, and it needs the
        // `Waiting`. This function does not return or unwind before the `Waiting` is dropped or has settled its ticket
        // (in `finish` or `drop`, after which nothing follows the pointer).
        let change = unsafe { std::mem::transmute::<*mut Change<'_>, *mut Change<'static>>(change) };
        let waiting = Box::new(Waiting { change, ticket: Arc::clone(&ticket), is_settled: false });
        hand_over(waiting)?;
        ticket.wait(crowd.yields())
    }
}

impl RetriableTransaction for Waiting {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        // SAFETY: see `run`: its caller is blocked there and lends the closure exclusively; `&mut self` excludes a second call.
        unsafe { (*self.change)(tx) }
    }

    fn finish(mut self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.is_settled = true;
        settle(Arc::clone(&self.ticket), outcome);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_settled {
            settle(Arc::clone(&self.ticket), Err(StoreError::Closed));
            wake_waiting();
        }
    }
}
