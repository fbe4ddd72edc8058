//! A reader that never ends: it shows in the stats, keeps its state, and the file grows only by what has changed since.

use store::{Store, StoreOptions, TreeId, Tx};

const ROWS: u32 = 8000;
const VALUE_BYTES: usize = 400;

fn open(directory: &tempfile::TempDir) -> (Store, TreeId) {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 2 << 20;
    options.map_bytes = 1 << 32;
    let (store, _) = Store::open(directory.path(), options).unwrap();
    let tree = store.tree("t").unwrap();
    let mut build = store.bulk().unwrap();
    for row in 0..ROWS {
        build.push(&row.to_be_bytes(), &[0; VALUE_BYTES]).unwrap();
    }
    store.attach(vec![(tree, build)], &[]).unwrap();
    (store, tree)
}

/// Changes a tenth of the rows, the same ones each time, all over the tree; then writes a checkpoint.
fn change(store: &Store, tree: TreeId, round: u8) {
    let change = &mut |tx: &mut Tx<'_>| {
        (0..ROWS).step_by(10).for_each(|row| tx.put(tree, &row.to_be_bytes(), &[round; VALUE_BYTES]));
        Ok(())
    };
    store.commit(change).unwrap();
    store.checkpoint().unwrap();
}

#[test]
fn a_reader_that_stays_costs_what_has_changed_since_and_not_each_change() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = open(&directory);
    for round in 1..=4 {
        change(&store, tree, round);
    }
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let (live, pages) = (store.stat().space.live, store.stats().tree_pages);
    for round in 5..=40 {
        change(&store, tree, round);
        // What the reader sees does not change, in any page.
        for row in [0, 5000, ROWS - 10] {
            assert_eq!(snapshot.get(tree, &row.to_be_bytes()).unwrap().as_deref(), Some(&[4; VALUE_BYTES][..]));
        }
    }
    let stats = store.stats();
    // The whole tree was replaced once (a tenth of the rows is in all of its leaves), and no other page is held.
    assert!(stats.tree_pages <= pages + live + live / 4, "{live} live and {pages} in all became {}", stats.tree_pages);
    assert!(stats.pinned_states >= 36, "{stats:?}");
    // The next checkpoint decides which pages freed by the last one are still held.
    assert!(stats.pinned_pages > live / 2 && stats.pinned_pages <= 2 * live, "{live} live, {stats:?}");
    let told = format!("oldest reader: {} states behind", stats.pinned_states);
    assert!(store.stat().to_string().contains(&told), "{}", store.stat());
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    for row in 0..ROWS {
        let expected = [if row % 10 == 0 { 4 } else { 0 }; VALUE_BYTES];
        assert_eq!(snapshot.get(tree, &row.to_be_bytes()).unwrap().as_deref(), Some(&expected[..]), "row {row}");
    }
    drop(snapshot);
    change(&store, tree, 41);
    change(&store, tree, 42);
    let stats = store.stats();
    assert!(stats.pinned_pages == 0 && stats.pinned_states <= 1, "{stats:?}");
    assert_eq!(stats.tree_pages, store.stat().space.pages);
}

#[test]
fn readers_of_several_states_each_keep_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = open(&directory);
    let readers: Vec<_> = (0..4).map(|_| store.reader().unwrap()).collect();
    let mut snapshots = Vec::new();
    for round in 1..=60u8 {
        change(&store, tree, round);
        if round % 10 == 3 && snapshots.len() < readers.len() {
            snapshots.push((round, readers[snapshots.len()].snapshot()));
        }
        if round == 45 {
            // Drops one from the middle: pages that only it reached are free.
            let held = store.stats().pinned_pages;
            snapshots.remove(1);
            change(&store, tree, round);
            assert!(store.stats().pinned_pages < held, "{held} pages were held before");
        }
        for (seen, snapshot) in &snapshots {
            for row in (0..ROWS).step_by(70) {
                assert_eq!(snapshot.get(tree, &row.to_be_bytes()).unwrap().as_deref(), Some(&[*seen; VALUE_BYTES][..]));
            }
        }
    }
    assert!(store.verify().is_clean());
}
