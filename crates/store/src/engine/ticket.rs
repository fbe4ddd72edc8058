//! A caller that waits for its own commit.
//!
//! The closure of [`crate::Store::commit`] is borrowed, and a queued transaction is not: this module bridges the two, and
//! is the only place where a lifetime is put aside.

#![allow(unsafe_code)] // See `Waiting`.

use std::sync::{Arc, Mutex};
use std::thread::Thread;

use crate::engine::lock;
use crate::error::Error;
use crate::transaction::{Abort, Commit, Transaction, Tx};

/// Where the outcome is put.
pub(crate) struct Ticket {
    outcome: Mutex<Option<Result<Commit, Error>>>,
    thread: Thread,
}

impl Ticket {
    /// For the calling thread.
    pub(crate) fn new() -> Arc<Ticket> {
        Arc::new(Ticket { outcome: Mutex::new(None), thread: std::thread::current() })
    }

    fn settle(&self, outcome: Result<Commit, Error>) {
        *lock(&self.outcome) = Some(outcome);
        self.thread.unpark();
    }

    fn wait(&self) -> Result<Commit, Error> {
        loop {
            if let Some(outcome) = lock(&self.outcome).take() {
                return outcome;
            }
            std::thread::park();
        }
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
    /// Gives `change` as a transaction to `hand_over` and waits for its outcome. When `hand_over` refuses, it has dropped
    /// the transaction.
    pub(crate) fn run(
        change: &mut Change<'_>,
        hand_over: impl FnOnce(Box<Waiting>) -> Result<(), Error>,
    ) -> Result<Commit, Error> {
        let ticket = Ticket::new();
        let change: *mut Change<'_> = change;
        // SAFETY: only the lifetime in the type changes. The pointer is followed by `prepare` alone, which needs the
        // `Waiting`; and this function does not return, nor unwind, before the `Waiting` is gone or has settled its
        // ticket (in `finish` or `drop`, after which nothing follows the pointer).
        let change = unsafe { std::mem::transmute::<*mut Change<'_>, *mut Change<'static>>(change) };
        let waiting = Box::new(Waiting { change, ticket: Arc::clone(&ticket), is_settled: false });
        hand_over(waiting)?;
        ticket.wait()
    }
}

impl Transaction for Waiting {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        // SAFETY: see `run`: its caller is blocked there and lends the closure to us alone; `&mut self` makes us one.
        unsafe { (*self.change)(tx) }
    }

    fn finish(mut self: Box<Self>, outcome: Result<Commit, Error>) {
        self.is_settled = true;
        self.ticket.settle(outcome);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_settled {
            self.ticket.settle(Err(Error::Closed));
        }
    }
}
