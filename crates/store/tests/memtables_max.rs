//! The number of memtables is bounded: readers of old states slow down writers, and take no more memory.

use store::{Store, StoreError, StoreOptions, TreeId};

const MEMTABLE_BYTES: usize = 256 * 1024;
/// Fills about a tenth of a memtable.
static VALUE: [u8; 24 * 1024] = [7; 24 * 1024];

fn open(directory: &tempfile::TempDir) -> (Store, TreeId) {
    let mut options = StoreOptions::default();
    options.memtable_bytes = MEMTABLE_BYTES;
    options.memtables_max = 4;
    options.map_bytes = 1 << 32;
    let (store, _) = Store::open(directory.path(), options).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree)
}

fn put(store: &Store, tree: TreeId, number: u32) -> Result<(), StoreError> {
    let change = &mut |tx: &mut store::Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &VALUE);
        Ok(())
    };
    store.commit(change).map(drop)
}

#[test]
fn writers_hear_of_too_many_old_states_and_go_on_when_one_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = open(&directory);
    let mut number = 0;
    let mut fill = |memtables: u32| {
        for _ in 0..10 * memtables {
            number += 1;
            put(&store, tree, number)?;
        }
        Ok::<_, StoreError>(())
    };
    fill(2).unwrap();
    let first = store.reader().unwrap();
    let first = first.snapshot();
    // One state holds at most two memtables, so there is always another for the writers.
    fill(8).unwrap();
    let (second, third) = (store.reader().unwrap(), store.reader().unwrap());
    let second = second.snapshot();
    // The third snapshot sees other memtables; together the snapshots hold the maximum. The bound is met whatever the
    // checkpointer does.
    let mut refused = fill(8);
    let third = refused.is_ok().then(|| third.snapshot());
    if third.is_some() {
        refused = fill(8);
    }
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    assert!(matches!(store.checkpoint(), Ok(()) | Err(StoreError::Busy)));
    drop((second, third));
    fill(4).unwrap();
    drop(first);
    fill(4).unwrap();
    store.checkpoint().unwrap();
    let stats = store.stats();
    assert_eq!(stats.checkpoint_failures, 0, "{stats:?}");
}

#[test]
fn fewer_than_a_store_needs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.memtables_max = 2;
    let refused = Store::open(directory.path(), options).map(drop);
    assert!(matches!(refused, Err(StoreError::Limit { what, .. }) if what.starts_with("memtables_max")), "{refused:?}");
}
