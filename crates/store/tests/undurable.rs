//! A transaction that the writer decides by changes of others that are not durable yet: if they never become durable, nobody is
//! refused because of them.

use std::sync::{Arc, mpsc};

use crate::hooked_disk::{BatchWrites, HookedDisk};
use store::{Abort, Commit, RetriableTransaction, Store, StoreError, StoreOptions, Submit, TreeId, Tx};

type Outcome = Result<Commit, StoreError>;

/// Inserts the key, unless somebody has done so.
struct InsertOnce {
    tree: TreeId,
    key: &'static [u8],
    outcome: mpsc::Sender<Outcome>,
}

impl RetriableTransaction for InsertOnce {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        if tx.get(self.tree, self.key).map_err(|_| Abort)?.is_some() {
            return Err(Abort);
        }
        tx.put(self.tree, self.key, b"mine");
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Outcome) {
        self.outcome.send(outcome).unwrap();
    }
}

/// Three transactions, of which the first one's batch waits in the disk while the others are decided. The keys of those that
/// conflict are equal; the write with this number after the start fails, not before so many were prepared again.
fn outcomes(keys: [&'static [u8]; 3], fails: Option<u64>, redone: u64) -> Vec<Outcome> {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(BatchWrites::default());
    let mut options = StoreOptions::default();
    options.map_bytes = 1 << 30;
    let (store, _) = Store::open_on(Arc::new(HookedDisk::new(directory.path(), &hooks)), options.clone()).unwrap();
    let tree = store.tree("t").unwrap();
    let reader = store.reader().unwrap();
    hooks.hold(fails);
    let receivers: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let (outcome, receiver) = mpsc::channel();
            assert!(matches!(store.submit(&reader, Box::new(InsertOnce { tree, key, outcome })), Submit::Queued));
            hooks.wait_until_held();
            receiver
        })
        .collect();
    while store.stats().redone < redone {
        std::thread::yield_now();
    }
    hooks.release();
    let outcomes: Vec<Outcome> = receivers.iter().map(|receiver| receiver.recv().unwrap()).collect();
    drop((reader, store));
    let (store, _) = Store::open(directory.path(), options).unwrap();
    let reader = store.reader().unwrap();
    for (key, outcome) in keys.iter().zip(&outcomes) {
        let is_there = reader.snapshot().get(tree, key).unwrap().is_some();
        assert!(is_there || !matches!(outcome, Ok(_) | Err(StoreError::Aborted)), "{key:?} is not there: {outcome:?}");
    }
    outcomes
}

#[test]
fn a_refusal_because_of_a_change_that_becomes_durable_stands() {
    let outcomes = outcomes([b"a", b"b", b"b"], None, 0);
    assert!(matches!(outcomes[..], [Ok(_), Ok(_), Err(StoreError::Aborted)]), "{outcomes:?}");
}

#[test]
fn nobody_is_refused_because_of_a_transaction_of_the_same_batch_that_never_was_durable() {
    let outcomes = outcomes([b"a", b"b", b"b"], Some(1), 0);
    assert!(matches!(outcomes[..], [Ok(_), Err(StoreError::Unknown(_)), Err(StoreError::Unknown(_))]), "{outcomes:?}");
}

#[test]
fn nobody_is_refused_because_of_a_transaction_in_flight_that_never_was_durable() {
    let outcomes = outcomes([b"a", b"a", b"a"], Some(0), 1);
    assert!(matches!(
        outcomes[..],
        [Err(StoreError::Unknown(_)), Err(StoreError::Poisoned), Err(StoreError::Poisoned)]
    ));
}
