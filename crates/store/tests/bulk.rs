//! Bulk builds: all or none, beside ordinary commits.

use store::{Store, StoreError, StoreOptions, TreeId};

fn open(directory: &tempfile::TempDir) -> Store {
    let mut options = StoreOptions::default();
    options.map_bytes = 1 << 32;
    Store::open(directory.path(), options).unwrap().0
}

fn build(store: &Store, rows: u32) -> store::BulkTree {
    let mut build = store.bulk().unwrap();
    for row in 0..rows {
        build.push(&row.to_be_bytes(), &row.to_le_bytes()).unwrap();
    }
    build
}

fn get(store: &Store, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    snapshot.get(tree, key).unwrap().map(|value| value.into_owned())
}

#[test]
fn a_build_whose_meta_page_is_damaged_is_missed_and_not_silently_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let tree = store.tree("one").unwrap();
    store.attach(vec![(tree, build(&store, 100))], &[]).unwrap();
    drop(store);
    let path = directory.path().join("tree");
    let mut bytes = std::fs::read(&path).unwrap();
    let sequence = |page: usize| u64::from_le_bytes(bytes[page * 4096 + 16..page * 4096 + 24].try_into().unwrap());
    let newest = if sequence(0) > sequence(1) { 0 } else { 4096 };
    bytes[newest + 40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut options = StoreOptions::default();
    options.map_bytes = 1 << 32;
    let refused = Store::open(directory.path(), options).map(drop).unwrap_err().to_string();
    assert!(refused.contains("lacks a bulk build"), "{refused}");
}

#[test]
fn attached_builds_are_there_with_their_rows_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let (one, two, other) = (store.tree("one").unwrap(), store.tree("two").unwrap(), store.tree("other").unwrap());
    store
        .commit(&mut |tx| {
            tx.put(other, b"before", b"1");
            Ok(())
        })
        .unwrap();
    let builds = vec![(one, build(&store, 50_000)), (two, build(&store, 3))];
    let before = store.stats().version;
    let commit = store.attach(builds, &[(other, b"loaded".to_vec(), b"yes".to_vec())]).unwrap();
    assert_eq!(commit.version.0, before + 1);
    store
        .commit(&mut |tx| {
            tx.put(one, &7u32.to_be_bytes(), b"changed");
            Ok(())
        })
        .unwrap();
    let check = |store: &Store| {
        assert_eq!(get(store, one, &49_999u32.to_be_bytes()).as_deref(), Some(&49_999u32.to_le_bytes()[..]));
        assert_eq!(get(store, one, &7u32.to_be_bytes()).as_deref(), Some(&b"changed"[..]));
        assert_eq!(get(store, two, &2u32.to_be_bytes()).as_deref(), Some(&2u32.to_le_bytes()[..]));
        assert_eq!(get(store, other, b"before").as_deref(), Some(&b"1"[..]));
        assert_eq!(get(store, other, b"loaded").as_deref(), Some(&b"yes"[..]));
    };
    check(&store);
    drop(store);
    check(&open(&directory));
}

#[test]
fn one_tree_that_is_not_empty_refuses_them_all() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let (empty, taken) = (store.tree("empty").unwrap(), store.tree("taken").unwrap());
    store
        .commit(&mut |tx| {
            tx.put(taken, b"k", b"v");
            Ok(())
        })
        .unwrap();
    let refused = store.attach(vec![(empty, build(&store, 10)), (taken, build(&store, 10))], &[]);
    assert!(matches!(refused, Err(StoreError::Limit { .. })), "{refused:?}");
    assert_eq!(get(&store, empty, &1u32.to_be_bytes()), None);
    store.attach(vec![(empty, build(&store, 10))], &[]).unwrap();
    assert!(get(&store, empty, &1u32.to_be_bytes()).is_some());
}

#[test]
fn keys_out_of_order_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let mut build = store.bulk().unwrap();
    build.push(b"b", b"").unwrap();
    assert!(build.push(b"a", b"").is_err());
    assert!(build.push(b"b", b"").is_err());
}

#[test]
fn commits_go_on_while_a_build_is_attached() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let (tree, counter) = (store.tree("built").unwrap(), store.tree("counter").unwrap());
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| {
            for number in 0..2000u32 {
                store
                    .commit(&mut |tx| {
                        tx.put(counter, &number.to_be_bytes(), b"x");
                        Ok(())
                    })
                    .unwrap();
            }
        });
        store.attach(vec![(tree, build(&store, 20_000))], &[]).unwrap();
        committer.join().unwrap();
    });
    drop(store);
    let store = open(&directory);
    assert!((0..2000u32).all(|number| get(&store, counter, &number.to_be_bytes()).is_some()));
    assert!(get(&store, tree, &19_999u32.to_be_bytes()).is_some());
}

#[test]
fn as_many_rows_as_are_allowed_go_with_an_attachment_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let (one, two, other) = (store.tree("one").unwrap(), store.tree("two").unwrap(), store.tree("other").unwrap());
    let rows: Vec<_> = (0..4097u32).map(|row| (other, row.to_be_bytes().to_vec(), b"row".to_vec())).collect();
    let refused = store.attach(vec![(one, build(&store, 3))], &rows);
    assert!(matches!(refused, Err(StoreError::Limit { limit: 4096, .. })), "{refused:?}");
    store.attach(vec![(two, build(&store, 3))], &rows[1..]).unwrap();
    assert_eq!((get(&store, one, &[0; 4]), get(&store, two, &[0; 4]).is_some()), (None, true));
    assert_eq!(
        (get(&store, other, &[0; 4]), get(&store, other, &4096u32.to_be_bytes())),
        (None, Some(b"row".to_vec()))
    );
}

#[test]
fn a_build_that_is_read_again_gives_its_entries_and_then_its_pages_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let large = vec![7u8; 100_000];
    let bytes = || std::fs::metadata(directory.path().join("tree")).unwrap().len();
    let mut least = u64::MAX;
    for round in 0..4 {
        let mut build = build(&store, 50_000);
        build.push(b"\xff", &large).unwrap();
        let entries = build.into_entries().unwrap();
        let mut cursor = entries.read().unwrap();
        for row in 0..50_000u32 {
            assert!(cursor.advance().unwrap());
            assert_eq!((cursor.key(), cursor.value().unwrap()), (&row.to_be_bytes()[..], &row.to_le_bytes()[..]));
        }
        assert!(cursor.advance().unwrap());
        assert_eq!((cursor.key(), cursor.value().unwrap()), (&b"\xff"[..], &large[..]));
        assert!(!cursor.advance().unwrap());
        if round == 1 {
            least = bytes();
        }
    }
    assert_eq!(bytes(), least, "the pages of the builds before are used again");
    assert!(!store.bulk().unwrap().into_entries().unwrap().read().unwrap().advance().unwrap());
}
