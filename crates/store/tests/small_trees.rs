//! A store of little data, changed steadily: its memtables are merged long before they are full.

use std::time::{Duration, Instant};

use store::{Store, StoreOptions, Tx};

/// Maximum wait; a checkpoint because of its age alone would come later.
const PATIENCE: Duration = Duration::from_secs(30);
const KEYS: u32 = 1_000;

#[test]
fn a_memtable_is_merged_when_it_holds_much_beside_the_trees_though_it_is_not_full() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions::default();
    let (store, _) = Store::open(directory.path(), options.clone()).unwrap();
    let tree = store.tree("t").unwrap();
    let (mut round, began) = (0, Instant::now());
    // The same keys again and again: the trees stay small, the memtable does not.
    let largest = loop {
        let change = &mut |tx: &mut Tx<'_>| {
            (0..KEYS).for_each(|key| tx.put(tree, &key.to_be_bytes(), format!("{round:0>900}").as_bytes()));
            Ok(())
        };
        let before = store.stats();
        if before.checkpoints > 0 {
            break before.memtable_bytes;
        }
        if before.memtable_bytes < 12 << 20 {
            store.commit(change).unwrap();
            round += 1;
        }
        assert!(began.elapsed() < PATIENCE, "no checkpoint, with {} bytes", before.memtable_bytes);
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(largest < options.memtable_bytes as u64 / 4, "{largest}");
    let reader = store.reader().unwrap();
    let found = reader.snapshot().get(tree, &7u32.to_be_bytes()).unwrap().unwrap().into_owned();
    assert_eq!(found, format!("{:0>900}", round - 1).as_bytes());
}
