//! Backup of an open store, restore, compaction: the result is complete or absent, and contains everything acknowledged.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{Disk, DiskFile, SystemDisk};
use store::{CopyProgress, Direction, KeyRange, Store, StoreError, StoreOptions, TreeId, Tx, Version};

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 512 << 10;
    options.map_bytes = 1 << 32;
    options
}

fn open(directory: &Path) -> Store {
    Store::open(directory, options()).unwrap().0
}

fn go_on(_: CopyProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn rows(store: &Store, tree: TreeId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let reader = store.reader().unwrap();
    let mut rows = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    reader.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, visit).unwrap();
    rows
}

fn put(store: &Store, tree: TreeId, number: u32, value: &[u8]) {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), value);
        Ok(())
    };
    store.commit(change).unwrap();
}

/// Some thousand rows in two trees, some with overflow values, some in the tree file and some only in the log.
fn filled(directory: &Path) -> (Store, [TreeId; 2]) {
    let store = open(directory);
    let trees = [store.tree("short").unwrap(), store.tree("long").unwrap()];
    let mut build = store.bulk().unwrap();
    for number in 0..5000u32 {
        build.push(&number.to_be_bytes(), &number.to_le_bytes().repeat(30)).unwrap();
    }
    store.attach(vec![(trees[0], build)], &[]).unwrap();
    for number in 0..40 {
        put(&store, trees[1], number, &vec![number as u8; 3000 * number as usize]);
    }
    store.checkpoint().unwrap();
    for number in 0..100 {
        put(&store, trees[0], number * 7, b"changed");
    }
    (store, trees)
}

#[track_caller]
fn check_same(store: &Store, other: &Path) {
    let other = open(other);
    let report = other.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    for name in ["short", "long"] {
        let (tree, copy) = (store.existing_tree(name).unwrap().unwrap(), other.existing_tree(name).unwrap().unwrap());
        assert_eq!(tree, copy);
        assert!(rows(store, tree) == rows(&other, copy), "{name}");
    }
}

#[test]
fn a_backup_is_a_store_with_all_that_was_acknowledged() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, trees) = filled(source.path());
    let to = target.path().join("new");
    let copied = store.backup(&to, &mut go_on).unwrap();
    assert_eq!(copied.version.0, store.stats().version);
    check_same(&store, &to);
    // Writes continue in both stores independently, numbered from the same version on.
    let copy = open(&to);
    put(&copy, trees[0], 1, b"of the copy");
    assert_eq!(copy.stats().version, copied.version.0 + 1);
    drop(copy);
    let copy = open(&to);
    assert_eq!(rows(&copy, trees[0])[1].1, b"of the copy");
    assert_ne!(rows(&store, trees[0])[1].1, b"of the copy");
}

#[test]
fn an_empty_store_is_copied_too() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    open(source.path()).backup(target.path(), &mut go_on).unwrap();
    assert_eq!(open(target.path()).stats().version, 0);
}

/// Every transaction moves one from an account to another, in two trees, and counts: the sums stay, the counts agree.
fn transfer(store: &Store, trees: [TreeId; 2], seed: u64) -> Result<u64, StoreError> {
    let count = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
    let mut number = 0;
    let change = &mut |tx: &mut Tx<'_>| {
        for (tree, amount) in [(trees[0], 1), (trees[1], -1)] {
            let key = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_be_bytes();
            let old = count(tx.get(tree, &key).map_err(|_| store::Abort)?.as_deref());
            tx.put(tree, &key, &(old + amount).to_le_bytes());
            let done = count(tx.get(tree, b"count").map_err(|_| store::Abort)?.as_deref()) + 1;
            tx.put(tree, b"count", &done.to_le_bytes());
            number = done as u64;
        }
        Ok(())
    };
    store.commit(change).map(|_| number)
}

#[test]
fn a_backup_beside_writers_is_one_version_with_whole_transactions() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(source.path());
    let trees = [store.tree("debit").unwrap(), store.tree("credit").unwrap()];
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&is_over);
        for writer in 0..2u64 {
            let (store, acknowledged, is_over) = (&store, &acknowledged, &is_over);
            scope.spawn(move || {
                for seed in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let number = transfer(store, trees, seed * 2 + writer).unwrap();
                    acknowledged.fetch_max(number, Ordering::SeqCst);
                }
            });
        }
        while acknowledged.load(Ordering::SeqCst) < 500 {
            std::thread::yield_now();
        }
        for round in 0..5 {
            let to = target.path().join(round.to_string());
            let before = acknowledged.load(Ordering::SeqCst);
            let checkpoints = store.stats().checkpoints;
            // Checkpoints run beside the copy, and must not overwrite the pages that it reads.
            let copied = store.backup(&to, &mut |_| {
                store.checkpoint().unwrap();
                ControlFlow::Continue(())
            });
            let copied = copied.unwrap();
            assert!(store.stats().checkpoints > checkpoints);
            let copy = open(&to);
            assert!(copy.verify().is_clean());
            let (debit, credit) = (rows(&copy, trees[0]), rows(&copy, trees[1]));
            let amount = |row: &(Vec<u8>, Vec<u8>)| i64::from_le_bytes(row.1.as_slice().try_into().unwrap());
            let number = amount(debit.last().unwrap()) as u64;
            assert!(number >= before, "{number} transactions, {before} acknowledged before");
            assert_eq!(debit.last(), credit.last());
            assert_eq!(debit.len(), credit.len());
            let accounts = &debit[..debit.len() - 1];
            assert_eq!(accounts.iter().map(amount).sum::<i64>() as u64, number);
            assert!(debit.iter().zip(&credit).rev().skip(1).all(|(one, other)| amount(one) == -amount(other)));
            assert!(copied.version.0 >= number);
        }
    });
}

/// Stops the writers even if an assertion fails.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    std::fs::write(target.path().join("letter.txt"), "mine").unwrap();
    for refused in [
        store.backup(target.path(), &mut go_on).map(drop),
        store.backup(source.path(), &mut go_on).map(drop),
        Store::restore(source.path(), target.path(), &mut |_| ControlFlow::Continue(())).map(drop),
    ] {
        assert!(
            matches!(&refused, Err(StoreError::Io { source, .. } ) if source.kind() == io::ErrorKind::DirectoryNotEmpty)
                || matches!(&refused, Err(StoreError::Locked)),
            "{refused:?}"
        );
    }
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 1);
    store.backup(&target.path().join("b"), &mut go_on).unwrap();
    let again = store.backup(&target.path().join("b"), &mut go_on);
    assert!(matches!(&again, Err(StoreError::Io { .. })), "{again:?}");
    check_same(&store, &target.path().join("b"));
}

#[test]
fn a_backup_that_is_given_up_leaves_nothing() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    for at in 0..3 {
        let mut calls = 0;
        let given_up = store.backup(target.path(), &mut |_| {
            calls += 1;
            if calls > at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Ok(copied) = given_up {
            assert!(copied.entries > 5000 && at > 1);
            break;
        }
        assert!(!Store::is_in(target.path()));
        let names: Vec<_> = std::fs::read_dir(target.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["lock"]);
    }
    assert_eq!(store.stats().pinned_states, 0);
}

/// The target disk panics; the source store must be unharmed.
struct PanicsInWrite {
    left: AtomicU64,
}

impl Hooks for PanicsInWrite {
    fn write_at(&self, _name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert!(self.left.fetch_sub(1, Ordering::Relaxed) > 0, "as a test wants it");
        file.write_at(bytes, offset)
    }
}

#[test]
fn a_backup_that_panics_leaves_nothing_and_the_store_goes_on() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, trees) = filled(source.path());
    let mut panicked = 0;
    for writes in 0.. {
        let hooks = Arc::new(PanicsInWrite { left: AtomicU64::new(writes) });
        let disk = HookedDisk::new(target.path(), &hooks);
        let copied = catch_unwind(AssertUnwindSafe(|| store.backup_on(&disk, &mut go_on)));
        // A panic of the thread that writes beside the copying one is reported as an error.
        if matches!(copied, Ok(Ok(_))) {
            break;
        }
        panicked += 1;
        assert!(!Store::is_in(target.path()));
        let names: Vec<_> = std::fs::read_dir(target.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["lock"]);
        assert!(!store.stats().is_poisoned, "{:?}", store.stats());
        put(&store, trees[0], 1, b"after");
        store.checkpoint().unwrap();
    }
    assert!(panicked > 3, "{panicked}");
    assert!(store.stats().pinned_states <= 1, "{:?}", store.stats());
    check_same(&store, target.path());
}

#[test]
fn what_a_killed_copy_left_is_no_store_and_gives_way_to_the_next() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    for name in ["tree.part", "tree.part.new", "0000000001.log", "lock"] {
        std::fs::write(target.path().join(name), "half").unwrap();
    }
    assert!(!Store::is_in(target.path()));
    let refused = Store::open(target.path(), options()).map(drop);
    assert!(matches!(refused, Err(StoreError::Corrupt { ref file, .. }) if file == "tree.part"), "{refused:?}");
    store.backup(target.path(), &mut go_on).unwrap();
    check_same(&store, target.path());
}

/// Copies the files of a folder into a new one.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_backup_has_no_name_before_it_is_whole_and_what_a_killed_one_left_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (store, trees) = filled(&directory.path().join("store"));
    let all = rows(&store, trees[0]);
    let [to, part, killed] = ["b", ".b.part", "killed"].map(|name| directory.path().join(name));
    // Killed at any of these moments, it would leave this.
    let (mut seen, mut give_up) = (0, true);
    let mut watch = |progress: CopyProgress| {
        seen += 1;
        assert!(!to.exists() && part.exists());
        if !progress.is_verifying || killed.exists() {
            return ControlFlow::Continue(());
        }
        copy_files(&part, &killed);
        if std::mem::take(&mut give_up) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(store.backup(&to, &mut watch).is_err());
    assert!(!to.exists() && !part.exists(), "nothing is left of a backup that was given up");
    std::fs::rename(&killed, &part).unwrap();
    store.backup(&to, &mut watch).unwrap();
    assert!(seen > 2 && !part.exists());
    check_same(&store, &to);
    // Killed when it was complete, before it got its name.
    std::fs::rename(&to, &part).unwrap();
    store.backup(&to, &mut go_on).unwrap();
    check_same(&store, &to);
    // The same for a restore.
    let (restored, part) = (directory.path().join("r"), directory.path().join(".r.part"));
    copy_files(&killed, &part);
    let mut watch = |_| {
        assert!(!restored.exists() && part.exists());
        ControlFlow::Continue(())
    };
    Store::restore(&to, &restored, &mut watch).unwrap();
    assert!(!part.exists());
    assert_eq!(rows(&open(&restored), trees[0]), all);
}

#[test]
fn a_damaged_page_of_the_source_ends_the_backup_with_its_place() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    store.checkpoint().unwrap();
    let (mut damaged, mut whole) = (0, 0);
    let path = source.path().join("tree");
    let pages = std::fs::metadata(&path).unwrap().len() / 4096;
    // Every seventh page: leaves, branches, overflow values. Damage in free or older pages does not affect a copy.
    for page in (2..pages).step_by(7) {
        let at = page * 4096 + 1000;
        flip(&path, at);
        let to = target.path().join(page.to_string());
        match store.backup(&to, &mut go_on) {
            Ok(_) => {
                whole += 1;
                check_same(&store, &to);
            }
            Err(StoreError::Corrupt { file, .. }) => {
                damaged += 1;
                assert_eq!(file, "tree");
                assert!(!Store::is_in(&to));
            }
            Err(other) => panic!("{other}"),
        }
        flip(&path, at);
    }
    assert!(damaged > 20 && whole > 0, "{damaged} damaged, {whole} whole");
}

fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_restored_store_is_the_one_that_was_backed_up() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    let (backup, restored) = (target.path().join("backup"), target.path().join("restored"));
    store.backup(&backup, &mut go_on).unwrap();
    std::fs::create_dir(&restored).unwrap();
    let mut last = None;
    let done = Store::restore(&backup, &restored, &mut |progress| {
        last = Some(progress);
        ControlFlow::Continue(())
    });
    let done = done.unwrap();
    let last = last.unwrap();
    assert!(last.is_verifying && last.bytes == last.bytes_total && last.bytes == done.bytes, "{last:?}");
    assert_eq!(done.version.0, store.stats().version);
    check_same(&store, &restored);
}

#[test]
fn a_restored_store_gives_no_version_of_its_source_again() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, trees) = filled(source.path());
    let backup = target.path().join("backup");
    store.backup(&backup, &mut go_on).unwrap();
    // Changes that the backup lacks, and whose versions clients know.
    (0..9).for_each(|number| put(&store, trees[0], number, b"lost"));
    let mut last = store.stats().version;
    for name in ["first", "second"] {
        let to = target.path().join(name);
        Store::restore(&backup, &to, &mut |_| ControlFlow::Continue(())).unwrap();
        let restored = open(&to);
        let since = |version| restored.changes_since(Version(version)).map(drop);
        assert!(
            matches!(since(last), Err(StoreError::Gone { .. })),
            "a reader of the source's changes must begin anew"
        );
        let begins = restored.stats().version;
        assert!(begins > last);
        put(&restored, trees[0], 1, b"of the copy");
        last = restored.stats().version;
        assert_eq!(last, begins + 1);
        since(begins).unwrap();
        drop(restored);
        // One of the two meta pages may be lost.
        flip(&to.join("tree"), 90 + if name == "first" { 0 } else { 4096 });
        let restored = open(&to);
        assert_eq!((restored.stats().version, rows(&restored, trees[0])[1].1.as_slice()), (last, &b"of the copy"[..]));
    }
}

#[test]
fn a_store_that_was_not_checkpointed_is_restored_with_its_log() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    let version = store.stats().version;
    let refused = Store::restore(source.path(), target.path(), &mut |_| ControlFlow::Continue(())).map(drop);
    assert!(matches!(refused, Err(StoreError::Locked)), "{refused:?}");
    drop(store);
    let done = Store::restore(source.path(), target.path(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(done.version.0, version);
    check_same(&open(source.path()), target.path());
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    let (backup, restored) = (target.path().join("backup"), target.path().join("restored"));
    store.backup(&backup, &mut go_on).unwrap();
    let pages = std::fs::metadata(backup.join("tree")).unwrap().len() / 4096;
    let mut refused = 0;
    for page in (0..pages).step_by(11) {
        flip(&backup.join("tree"), page * 4096 + 100);
        match Store::restore(&backup, &restored, &mut |_| ControlFlow::Continue(())) {
            // One of the meta pages, or a free page.
            Ok(_) => {
                check_same(&store, &restored);
                std::fs::remove_dir_all(&restored).unwrap();
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
                assert!(!Store::is_in(&restored));
            }
        }
        flip(&backup.join("tree"), page * 4096 + 100);
    }
    assert!(refused > 20);
    flip(&backup.join("0000000001.log"), 20);
    let error = Store::restore(&backup, &restored, &mut |_| ControlFlow::Continue(())).map(drop);
    assert!(matches!(error, Err(StoreError::Corrupt { .. })), "{error:?}");
}

#[test]
fn a_backup_with_a_damaged_meta_page_is_never_an_empty_store() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    store.backup(target.path(), &mut go_on).unwrap();
    for page in 0..2u64 {
        flip(&target.path().join("tree"), page * 4096 + 90);
        check_same(&store, target.path());
        std::fs::remove_dir_all(target.path()).unwrap();
        store.backup(target.path(), &mut go_on).unwrap();
    }
}

fn file_bytes(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("tree")).unwrap().len()
}

#[test]
fn compaction_after_deletes_leaves_about_the_live_data() {
    let directory = tempfile::tempdir().unwrap();
    // Segments so small that the first ones are released long before: the new file must have the old one's log start.
    let mut options = options();
    options.log_segment_bytes = 64 << 10;
    options.memtable_bytes = 256 << 10;
    let open = |directory: &Path| Store::open(directory, options.clone()).unwrap().0;
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let mut build = store.bulk().unwrap();
    for number in 0..30_000u32 {
        build.push(&number.to_be_bytes(), &number.to_le_bytes().repeat(100)).unwrap();
    }
    store.attach(vec![(tree, build)], &[]).unwrap();
    for start in (0..30_000u32).step_by(100) {
        let change = &mut |tx: &mut Tx<'_>| {
            (start..start + 100).filter(|number| number % 10 != 0).for_each(|n| tx.delete(tree, &n.to_be_bytes()));
            Ok(())
        };
        store.commit(change).unwrap();
    }
    assert!(!directory.path().join("0000000001.log").exists());
    let before = (rows(&store, tree), store.stats().version);
    assert_eq!(before.0.len(), 3000);
    drop(store);
    let full = file_bytes(directory.path());
    let copied = Store::compact(directory.path(), options.clone(), &mut go_on).unwrap();
    let small = file_bytes(directory.path());
    // 400 bytes, and 16 of key, slot and head, in full leaves; meta pages, catalog, space map, and one growth step.
    assert!(small < 3000 * 440 + 300_000 && small < full / 5, "{full} bytes became {small}");
    assert_eq!((copied.is_replaced, copied.bytes_before, copied.bytes_anew), (true, full, small));
    let store = open(directory.path());
    assert!(store.verify().is_clean());
    assert_eq!((rows(&store, tree), store.stats().version), before);
    put(&store, tree, 7, b"after");
    drop(store);
    assert_eq!(rows(&open(directory.path()), tree).len(), 3001);
    assert!(matches!(
        Store::compact(&directory.path().join("none"), options.clone(), &mut go_on),
        Err(StoreError::Io { .. })
    ));
}

#[test]
fn a_compaction_makes_no_file_larger() {
    // So few changes that the tree file stays small; merging the log's changes would make it grow.
    for rounds in [0, 1, 8] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let tree = store.tree("t").unwrap();
        for round in 0..rounds {
            let change = &mut |tx: &mut Tx<'_>| {
                (0..200u32).for_each(|number| tx.put(tree, &(round * 200 + number).to_be_bytes(), &[7; 100]));
                Ok(())
            };
            store.commit(change).unwrap();
        }
        let before = rows(&store, tree);
        drop(store);
        for _ in 0..2 {
            let bytes = file_bytes(directory.path());
            let copied = Store::compact(directory.path(), options(), &mut go_on).unwrap();
            assert_eq!(file_bytes(directory.path()), bytes, "{rounds} {copied:?}");
            assert!(!copied.is_replaced && copied.bytes_before == bytes && copied.bytes_anew >= bytes, "{copied:?}");
            assert!(!directory.path().join("tree.part").exists());
            let store = open(directory.path());
            assert!(rows(&store, tree) == before && store.verify().is_clean());
        }
    }
}

#[test]
fn a_compaction_that_was_given_up_or_killed_leaves_the_store_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (store, trees) = filled(directory.path());
    let before = rows(&store, trees[0]);
    drop(store);
    let given_up = Store::compact(directory.path(), options(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(given_up, Err(StoreError::Io { .. })), "{given_up:?}");
    assert!(!directory.path().join("tree.part").exists());
    std::fs::write(directory.path().join("tree.part"), "half").unwrap();
    let store = open(directory.path());
    assert!(!directory.path().join("tree.part").exists());
    assert_eq!(rows(&store, trees[0]), before);
    let busy = Store::compact(directory.path(), options(), &mut go_on);
    assert!(matches!(busy, Err(StoreError::Locked)), "{busy:?}");
}

#[test]
fn the_backup_of_a_store_holds_no_reader_back_and_no_view_afterwards() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, trees) = filled(source.path());
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new(target.path()).unwrap());
    let mut most = 0;
    let copied = store.backup_on(&*disk, &mut |_| {
        for _ in 0..10 {
            put(&store, trees[0], 1, b"beside");
            store.checkpoint().unwrap();
        }
        most = most.max(store.stats().retired_generations);
        ControlFlow::Continue(())
    });
    copied.unwrap();
    // The memtable that was just replaced is freed a moment later.
    assert!(most <= 2, "{most} memtables are kept");
    put(&store, trees[0], 1, b"after");
    store.checkpoint().unwrap();
    // The writer holds the state before the last checkpoint until it has something to write.
    assert!(store.stats().pinned_states <= 1, "{:?}", store.stats());
}

#[test]
fn a_backup_whose_tree_file_is_gone_is_refused_and_not_begun_anew() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = filled(source.path());
    store.backup(target.path(), &mut go_on).unwrap();
    std::fs::remove_file(target.path().join("tree")).unwrap();
    let refused = Store::open(target.path(), options()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("the tree file is gone"), "{refused}");
}
