//! Memory that the writer will need soon, asked for while it places what comes before.
//!
//! What a transaction holds was written by the core that prepared it, and its keys lie anywhere in the memtable: one after
//! the other, each of these is a miss that takes longer than all the rest of placing it. Each step below asks for what
//! the step before has brought.

use std::slice::from_ref;

use super::batch::Request;
use super::writer::Writer;
use crate::tree::prefetch;

/// Places of the backlog at which each step is taken: a miss takes about as long as one or two placings.
const REQUEST_AT: usize = 8;
const CHANGES_AT: usize = 6;
const PLACES_AT: usize = 4;
const KEYS_AT: usize = 2;
/// Keys of a transaction: those of one that has more come one after the other.
const KEYS_MAX: usize = 4;

impl Writer {
    /// Before the backlog's first is placed.
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
    /// Its own lines: these fields lie in all of them.
    fn foresee(&self) {
        prefetch(from_ref(self.transaction()));
        prefetch(from_ref(&self.work.reads));
        prefetch(from_ref(&self.work.snapshot));
        self.work.changes.foresee_self();
    }
}
