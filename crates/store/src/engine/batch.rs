//! Transactions on their way to the log, alone and gathered.

use super::commit::finish;
use super::ticket::wake_waiting;
use crate::error::Error;
use crate::fail_stop::panicked;
use crate::log::BatchBuilder;
use crate::options::Options;
use crate::transaction::{Abort, Transaction, Tx, Work};

/// A prepared transaction on its way. Whatever becomes of it, its transaction is told an outcome: one that is dropped by a
/// panic hears that nobody knows.
pub(crate) struct Request {
    /// There until it is told.
    transaction: Option<Box<dyn Transaction>>,
    pub(crate) work: Work,
    /// What of [`super::weight::Weights`] is given back when it is finished. One that is awaited has none: its caller can
    /// have no second one.
    pub(crate) weight: usize,
    /// Its caller sleeps until it is finished.
    pub(crate) is_awaited: bool,
}

impl Request {
    pub(crate) fn new(transaction: Box<dyn Transaction>, work: Work, weight: usize, is_awaited: bool) -> Request {
        Request { transaction: Some(transaction), work, weight, is_awaited }
    }

    /// Its two parts, for the writer.
    pub(super) fn parts(&mut self) -> (&mut Work, impl FnMut(&mut Tx<'_>) -> Result<(), Abort>) {
        let transaction = &mut self.transaction;
        (&mut self.work, |tx: &mut Tx<'_>| {
            transaction.as_mut().map_or(Err(Abort), |transaction| transaction.prepare(tx))
        })
    }

    /// Where it is kept.
    pub(super) fn transaction(&self) -> &Option<Box<dyn Transaction>> {
        &self.transaction
    }

    /// The transaction, for one who tells it the outcome.
    pub(super) fn take(mut self: Box<Self>) -> Option<Box<dyn Transaction>> {
        self.transaction.take()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            finish(transaction, Err(panicked()));
            wake_waiting();
        }
    }
}

/// A batch being gathered, with those who wait for it.
pub(crate) struct OpenBatch {
    pub(crate) builder: BatchBuilder,
    pub(super) done: Vec<(Box<Request>, Result<u64, Error>)>,
}

impl OpenBatch {
    pub(super) fn new(options: &Options) -> OpenBatch {
        OpenBatch { builder: BatchBuilder::new(options.batch_bytes_max() / 4), done: Vec::new() }
    }
}
