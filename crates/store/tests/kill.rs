//! `kill -9` at random moments: everything acknowledged to a client exists whole, and nothing exists in part.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use store::{Abort, Store, StoreOptions, TreeId, Tx};

const WRITERS: u8 = 4;
const ROUNDS: u32 = 12;
/// No more rounds are started after this.
const TIME: Duration = Duration::from_secs(10);
const DIRECTORY: &str = "STORE_KILL_TEST_DIRECTORY";

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    // Small, so that most kills hit a checkpoint or a change of segments.
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 128 * 1024;
    options.map_bytes = 1 << 32;
    options
}

fn row_key(writer: u8, number: u64) -> Vec<u8> {
    [&[b'r', writer], &number.to_be_bytes()[..]].concat()
}

fn count(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// One transaction: the writer's next row, and its count of rows.
fn add_row(tx: &mut Tx<'_>, tree: TreeId, writer: u8) -> Result<u64, Abort> {
    let next = count(tx.get(tree, &[b'n', writer]).map_err(|_| Abort)?.as_deref()) + 1;
    tx.put(tree, &row_key(writer, next), &next.to_le_bytes().repeat(40));
    tx.put(tree, &[b'n', writer], &next.to_le_bytes());
    Ok(next)
}

/// Not a test of its own but the killed process. Without the variable it does nothing.
#[test]
fn the_process_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let (store, _) = Store::open(Path::new(&directory), options()).unwrap();
    let tree = store.tree("t").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                loop {
                    let mut number = 0;
                    let change = &mut |tx: &mut Tx<'_>| {
                        number = add_row(tx, tree, writer)?;
                        Ok(())
                    };
                    store.commit(change).unwrap();
                    // One write, so that a kill does not cut a line.
                    let line = format!("acknowledged {writer} {number}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

/// Runs the process for a while and kills it; returns the last row acknowledged to each writer.
fn run_and_kill(directory: &Path, life: Duration) -> [u64; WRITERS as usize] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["the_process_that_is_killed", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut told = [0; WRITERS as usize];
        for line in BufReader::new(output).lines() {
            let line = line.unwrap();
            if let Some(("acknowledged", rest)) = line.split_once(' ')
                && let Some((writer, number)) = rest.split_once(' ')
            {
                told[writer.parse::<usize>().unwrap()] = number.parse().unwrap();
            }
        }
        told
    });
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn every_acknowledged_commit_survives_a_kill_and_none_is_there_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let mut acknowledged = [0; WRITERS as usize];
    for round in 0..ROUNDS {
        if began.elapsed() > TIME {
            break;
        }
        let told = run_and_kill(directory.path(), Duration::from_millis(u64::from(120 + rand::random::<u16>() % 400)));
        let opened = Instant::now();
        let (store, recovery) = Store::open(directory.path(), options()).unwrap();
        assert!(opened.elapsed() < Duration::from_secs(5), "recovery hangs: {recovery:?}");
        let report = store.verify();
        assert!(report.is_clean(), "{:?}", report.faults);
        let tree = store.existing_tree("t").unwrap();
        let reader = store.reader().unwrap();
        let snapshot = reader.snapshot();
        for writer in 0..WRITERS {
            let last = &mut acknowledged[usize::from(writer)];
            *last = told[usize::from(writer)].max(*last);
            let Some(tree) = tree else {
                assert_eq!(*last, 0);
                continue;
            };
            let rows = count(snapshot.get(tree, &[b'n', writer]).unwrap().as_deref());
            assert!(rows == *last || rows == *last + 1, "round {round}: {rows} rows, {last} acknowledged");
            for number in 1..=rows {
                let row = snapshot.get(tree, &row_key(writer, number)).unwrap();
                assert_eq!(row.as_deref(), Some(&number.to_le_bytes().repeat(40)[..]), "row {number}");
            }
            assert!(snapshot.get(tree, &row_key(writer, rows + 1)).unwrap().is_none());
            *last = rows;
        }
    }
    assert!(acknowledged.iter().sum::<u64>() > 500, "hardly anything was written: {acknowledged:?}");
}
