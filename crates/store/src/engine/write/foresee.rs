//! Prefetching for the writer: memory that it will need soon is prefetched while it places earlier transactions.
//!
//! A transaction's memory was written by the core that prepared it, and its keys lie anywhere in the memtable. Each access is a
//! cache miss, which takes longer than the rest of placing the transaction. Each step below prefetches what the previous step
//! has made readable.

use std::slice::from_ref;

use super::request::Request;
use super::writer::Writer;
use crate::base::prefetch::prefetch;

/// Positions in the backlog at which each step runs: a miss takes about as long as placing one or two transactions.
const REQUEST_AT: usize = 8;
const CHANGES_AT: usize = 6;
const PLACES_AT: usize = 4;
const KEYS_AT: usize = 2;
/// Maximum number of keys that are prefetched for a transaction.
const KEYS_MAX: usize = 4;

impl Writer {
    /// Called before the first transaction of the backlog is placed.
    pub(super) fn foresee(&self) {
        let table = self.table.table();
        if let Some(request) = self.backlog.get(REQUEST_AT) {
            request.foresee();
        }
        if let Some(request) = self.backlog.get(CHANGES_AT) {
            request.work.changes.foresee();
        }
        if let Some(request) = self.backlog.get(PLACES_AT) {
            request.work.changes.first_keys(KEYS_MAX).for_each(|(tree, key)| table.foresee(tree, key));
        }
        if let Some(request) = self.backlog.get(KEYS_AT) {
            request.work.changes.first_keys(KEYS_MAX).for_each(|(tree, key)| table.foresee_key(tree, key));
        }
    }
}

impl Request {
    /// Prefetches the request's own cache lines: these fields cover all of them.
    fn foresee(&self) {
        prefetch(from_ref(self.transaction()));
        prefetch(from_ref(&self.work.reads));
        prefetch(from_ref(&self.work.snapshot));
        self.work.changes.foresee_self();
    }
}
