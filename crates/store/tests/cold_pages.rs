//! Pages that are not in memory: a reader that must not wait for the disk gets an error.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use std::path::Path;
use std::process::Command;

use store::{Direction, KeyRange, Reader, Store, StoreError, StoreOptions, TreeId, Tx};

const ROWS: u32 = 20_000;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.read_ahead = Some(false);
    options
}

/// Every tenth value has overflow pages.
fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(if number.is_multiple_of(10) { 1000 } else { 150 })
}

fn fill(directory: &Path) {
    let (store, _) = Store::open(directory, options()).unwrap();
    let tree = store.tree("t").unwrap();
    for start in (0..ROWS).step_by(500) {
        let change = &mut |tx: &mut Tx<'_>| {
            (start..start + 500).for_each(|number| tx.put(tree, &number.to_be_bytes(), &value(number)));
            Ok(())
        };
        store.commit(change).unwrap();
    }
    store.checkpoint().unwrap();
}

/// Evicts a file's unmapped pages from the page cache; false if they cannot be evicted.
fn forget(path: &Path) -> bool {
    let dropped = Command::new("dd")
        .args(["if=/dev/null", "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"])
        .arg(format!("of={}", path.display()))
        .status();
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output();
    dropped.is_ok_and(|status| status.success()) && kind.is_ok_and(|kind| kind.stdout != b"tmpfs\n")
}

fn read(reader: &Reader, tree: TreeId, number: u32) -> Result<(), StoreError> {
    let snapshot = reader.snapshot();
    let found = snapshot.get(tree, &number.to_be_bytes())?;
    assert!(found.as_deref() == Some(value(number).as_slice()), "row {number}");
    Ok(())
}

/// Number of rows visited by a scan of everything, and how it ended.
fn scan(reader: &Reader, tree: TreeId) -> (u32, Result<(), StoreError>) {
    let mut rows = 0;
    let ended = reader.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
        rows += 1;
        std::ops::ControlFlow::Continue(())
    });
    (rows, ended)
}

#[test]
fn a_reader_that_asks_is_refused_what_the_disk_holds_until_another_has_read_it() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let is_cold = forget(&directory.path().join("tree"));
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let tree = store.tree("t").unwrap();
    let (asking, waiting) = (store.reader().unwrap(), store.reader().unwrap());
    asking.ask_before_waiting(true);
    // The scan's first leaf is in memory, the following ones are not.
    read(&waiting, tree, 0).unwrap();
    let shown = scan(&asking, tree);
    let mut refused = 0;
    for number in (0..ROWS).rev().step_by(7) {
        match read(&asking, tree, number) {
            Ok(()) => {}
            Err(StoreError::NotInMemory) => {
                refused += 1;
                read(&waiting, tree, number).unwrap();
                // Its branches and its leaf are in memory now, and so are its overflow pages, if it has some.
                read(&asking, tree, number).unwrap();
            }
            Err(other) => panic!("row {number}: {other:?}"),
        }
    }
    if !is_cold {
        // Bypasses libtest, which captures the output of a passing test: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: the temporary folder lies in memory, or its cache cannot be dropped\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    }
    assert!(refused > 100, "{refused} reads were refused");
    assert!(matches!(shown, (1.., Err(StoreError::NotInMemory))), "{shown:?}");
    // The refusal depended only on the pages: none is left.
    (0..ROWS).for_each(|number| read(&waiting, tree, number).unwrap());
    assert!(matches!(scan(&asking, tree), (ROWS, Ok(()))));
    (0..ROWS).for_each(|number| read(&asking, tree, number).unwrap());
}
