//! Loads beside commits that fill one memtable after the other: acknowledged changes stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::disk::{Disk, MemoryDisk};
use store::{Store, StoreOptions, TreeId, Tx};

const LOADS: u32 = 40;
const ROWS: u32 = 50;
/// So large that some dozens fill a memtable.
const VALUE_BYTES: usize = 4000;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 512 << 10;
    options.map_bytes = 1 << 30;
    options
}

fn put(store: &Store, tree: TreeId, number: u32) {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &vec![number as u8; VALUE_BYTES]);
        Ok(())
    };
    store.commit(change).unwrap();
}

#[track_caller]
fn check(store: &Store, trees: &[(TreeId, u32)]) {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    for &(tree, rows) in trees {
        let lost = (0..rows).filter(|row| snapshot.get(tree, &row.to_be_bytes()).unwrap().is_none()).count();
        assert_eq!(lost, 0, "of {rows} rows of {tree:?}");
    }
}

#[test]
fn what_is_acknowledged_while_trees_are_loaded_is_there_afterwards() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(256 << 20));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let committed = ["one", "other"].map(|name| store.tree(name).unwrap());
    let is_over = AtomicBool::new(false);
    let (counts, loaded) = std::thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        let writers = committed.map(|tree| {
            scope.spawn(move || {
                let mut count = 0;
                while !is_over.load(Ordering::Acquire) && count < 20_000 {
                    put(store, tree, count);
                    count += 1;
                }
                (tree, count)
            })
        });
        let load = |number: u32| {
            let tree = store.tree(&format!("loaded {number}")).unwrap();
            let mut build = store.bulk().unwrap();
            (0..ROWS).for_each(|row| build.push(&row.to_be_bytes(), b"loaded").unwrap());
            store.attach(vec![(tree, build)], &[]).unwrap();
            (tree, ROWS)
        };
        let loaded: Vec<_> = (0..LOADS).map(load).collect();
        is_over.store(true, Ordering::Release);
        (writers.map(|writer| writer.join().unwrap()), loaded)
    });
    check(&store, &counts);
    check(&store, &loaded);
    drop(store);
    let (store, _) = Store::open_on(disk, options()).unwrap();
    check(&store, &counts);
    check(&store, &loaded);
    assert!(store.verify().is_clean());
}
