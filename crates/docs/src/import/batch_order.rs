//! The queue that puts batches, encoded by several threads, back into the order in which they were read.
//!
//! A batch whose keys ascend, all above every earlier key of the collection, goes to the thread that builds the collection's
//! tree (`ascending.rs`). So it is written once, while a sorter would write and read it before it is written to the tree. Exports
//! are usually in order of their keys. Any other batch is returned to a thread, which sorts it.
//!
//! So if one of several records with the same key arrived in order, it is the first of them, because later ones are not above
//! it.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::QUEUE_BATCHES;
use super::encoded::Encoded;

/// See the module's text.
pub(super) struct BatchOrder {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    /// The number of the next batch.
    next: u64,
    /// Later batches that are already encoded: fewer than [`QUEUE_BATCHES`].
    waiting: BTreeMap<u64, Encoded>,
    /// By collection: the highest key so far. `None`: all its batches must be sorted.
    highest: Vec<Option<Vec<u8>>>,
    /// The channel to the building thread. `None`: nothing is to be built any more.
    ascending: Option<SyncSender<Encoded>>,
}

impl BatchOrder {
    /// A queue for collections; `empty` marks those whose trees can be built.
    pub(super) fn new(empty: &[bool], ascending: SyncSender<Encoded>) -> BatchOrder {
        let highest = empty.iter().map(|is_empty| is_empty.then(Vec::new)).collect();
        let state = State { next: 0, waiting: BTreeMap::new(), highest, ascending: Some(ascending) };
        BatchOrder { state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Enters a batch, and returns the batches whose turn has come and which must be sorted.
    pub(super) fn pass(&self, number: u64, batch: Encoded) -> Vec<Encoded> {
        let mut state = self.lock();
        // The thread with the next batch never waits here. Without this limit the others could encode all later batches while
        // that thread is not scheduled.
        while number >= state.next + QUEUE_BATCHES as u64 && state.ascending.is_some() {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.insert(number, batch);
        let mut to_sort = Vec::new();
        loop {
            let next = state.next;
            let Some(batch) = state.waiting.remove(&next) else { break };
            state.next += 1;
            // Sent under the lock, to keep the order; a thread that waits for the lock would have to wait for the builder
            // anyway.
            to_sort.extend(state.judge(batch));
        }
        self.moved.notify_all();
        to_sort
    }

    /// Releases all waiting threads, and signals the builder that nothing follows.
    pub(super) fn close(&self) {
        self.lock().ascending = None;
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends a batch whose keys ascend; returns any other.
    fn judge(&mut self, batch: Encoded) -> Option<Encoded> {
        let (Some(Some(highest)), Some(ascending)) = (self.highest.get_mut(batch.collection), &self.ascending) else {
            return Some(batch);
        };
        let ascends = batch.ascends_above(highest);
        if let Some(key) = batch.highest()
            && key > highest.as_slice()
        {
            highest.clear();
            highest.extend_from_slice(key);
        }
        if ascends {
            // If the builder has failed, it has reported its error, and the whole import stops.
            ascending.send(batch).err().map(|unsent| unsent.0)
        } else {
            Some(batch)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn batch(collection: usize, keys: &[u8]) -> Encoded {
        let mut batch = Encoded::default();
        batch.restart(collection);
        for key in keys {
            batch.end_record(&[*key]);
        }
        batch
    }

    fn keys(batch: &Encoded) -> Vec<u8> {
        batch.iter().map(|record| record.key[0]).collect()
    }

    /// Passes batches in this order of numbers; compares the keys of the batches that were built and those to be sorted.
    #[track_caller]
    fn check(order: &[u64], batches: &[(usize, &[u8])], ascending: &[&[u8]], sorted: &[&[u8]]) {
        let (sender, receiver) = sync_channel(batches.len());
        let queue = BatchOrder::new(&[true, false, true], sender);
        let mut to_sort = Vec::new();
        for &number in order {
            let (collection, keys) = batches[number as usize];
            to_sort.extend(queue.pass(number, batch(collection, keys)));
        }
        queue.close();
        assert_eq!(receiver.iter().map(|batch| keys(&batch)).collect::<Vec<_>>(), ascending);
        assert_eq!(to_sort.iter().map(keys).collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn batches_ascend_in_the_order_in_which_they_were_read() {
        let batches: &[(usize, &[u8])] = &[(0, &[1, 2]), (0, &[3]), (0, &[4, 6])];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            check(&order, batches, &[&[1, 2], &[3], &[4, 6]], &[]);
        }
    }

    #[test]
    fn what_is_not_above_all_keys_before_it_is_sorted() {
        check(&[0, 1, 2], &[(0, &[5]), (0, &[4, 6]), (0, &[7])], &[&[5], &[7]], &[&[4, 6]]);
        check(&[0, 1, 2], &[(0, &[5, 4, 9]), (0, &[8]), (0, &[9])], &[], &[&[5, 4, 9], &[8], &[9]]);
    }

    #[test]
    fn each_collection_has_its_own_order_and_one_that_has_documents_none() {
        check(&[0, 1, 2], &[(0, &[5]), (2, &[1]), (1, &[9])], &[&[5], &[1]], &[&[9]]);
    }
}
