//! A transaction on its way to the log.

use super::ticket::wake_waiting;
use super::transaction::{Abort, RetriableTransaction, Tx, Work, finish};
use crate::base::fail_stop::panicked;

/// A queued transaction. Its `finish` is always called; if a panic drops the request, the outcome is unknown.
pub(crate) struct Request {
    /// `Some` until `finish` is called.
    transaction: Option<Box<dyn RetriableTransaction>>,
    pub(crate) work: Work,
    /// The share of [`super::weight::Weights`] that is returned when it is finished. An awaited request has none: its
    /// caller is blocked and cannot submit a second one.
    pub(crate) weight: usize,
    /// The caller sleeps until it is finished.
    pub(crate) is_awaited: bool,
}

impl Request {
    pub(crate) fn new(
        transaction: Box<dyn RetriableTransaction>,
        work: Work,
        weight: usize,
        is_awaited: bool,
    ) -> Request {
        Request { transaction: Some(transaction), work, weight, is_awaited }
    }

    /// The work and a closure that prepares it again, for the writer.
    pub(super) fn parts(&mut self) -> (&mut Work, impl FnMut(&mut Tx<'_>) -> Result<(), Abort>) {
        let transaction = &mut self.transaction;
        (&mut self.work, |tx: &mut Tx<'_>| {
            transaction.as_mut().map_or(Err(Abort), |transaction| transaction.prepare(tx))
        })
    }

    /// The field itself, to be prefetched.
    pub(super) fn transaction(&self) -> &Option<Box<dyn RetriableTransaction>> {
        &self.transaction
    }

    /// Takes the transaction, to finish it.
    pub(super) fn take(mut self: Box<Self>) -> Option<Box<dyn RetriableTransaction>> {
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
