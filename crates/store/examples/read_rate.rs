//! Measures reads and writes of an open store: random point reads, full scans, commits by many threads.
//!
//! `cargo run --release -p store --example read_rate -- FOLDER [RECORDS]`. It loads `RECORDS` (one million) documents
//! of 400 bytes under 8-byte random keys into the empty `FOLDER`, prints `ready`, and measures once for each line on
//! standard input. Each answer is one line: point reads, scanned rows, and commits, all per second. So two builds can
//! be measured in turn (`cargo xtask bench change`).
//!
//! A point read reads the first and the last byte of a value, a scan the first byte of each key and value. One thread
//! reads; 64 reads share a snapshot. 64 threads commit. The first scan after the start reads pages for the first time,
//! so the first answer is the cold one.

use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

use store::{Direction, KeyRange, Store, StoreError, StoreOptions, TreeId, Tx};

const DOCUMENT: [u8; 400] = [b'x'; 400];
const RECORDS: u64 = 1_000_000;
const READS_PER_SNAPSHOT: u64 = 64;
const RUN: Duration = Duration::from_millis(400);
const COMMITTERS: u64 = 64;

/// The finaliser of splitmix64: a bijection, so keys are distinct.
fn scramble(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder");
    let records = arguments.next().map_or(RECORDS, |text| text.parse().expect("a number of records"));
    let (store, _) = Store::open(Path::new(&folder), StoreOptions::default())?;
    let tree = store.tree("records")?;
    load(&store, tree, records)?;
    println!("ready");
    let mut seed = 0;
    for _ in std::io::stdin().lock().lines() {
        let scans = scan_rate(&store, tree)?;
        let reads = read_rate(&store, tree, records, &mut seed)?;
        let commits = commit_rate(&store, tree, records, &mut seed)?;
        println!("{reads:.0} {scans:.0} {commits:.0}");
    }
    Ok(())
}

fn load(store: &Store, tree: TreeId, records: u64) -> Result<(), StoreError> {
    let mut keys: Vec<u64> = (0..records).map(scramble).collect();
    keys.sort_unstable();
    let mut build = store.bulk()?;
    for key in keys {
        build.push(&key.to_be_bytes(), &DOCUMENT)?;
    }
    store.attach(vec![(tree, build)], &[])?;
    Ok(())
}

fn read_rate(store: &Store, tree: TreeId, records: u64, seed: &mut u64) -> Result<f64, StoreError> {
    let reader = store.reader()?;
    let (mut reads, mut sum) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < RUN {
        let snapshot = reader.snapshot();
        for _ in 0..READS_PER_SNAPSHOT {
            *seed += 1;
            let key = scramble(scramble(*seed) % records).to_be_bytes();
            let value = snapshot.get(tree, &key)?.expect("a loaded record");
            sum += u64::from(value[0]) + u64::from(value[DOCUMENT.len() - 1]);
        }
        reads += READS_PER_SNAPSHOT;
    }
    std::hint::black_box(sum);
    Ok(reads as f64 / started.elapsed().as_secs_f64())
}

fn scan_rate(store: &Store, tree: TreeId) -> Result<f64, StoreError> {
    let reader = store.reader()?;
    let (mut rows, mut sum) = (0_u64, 0);
    let started = Instant::now();
    reader.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
        sum += u64::from(key[0]) + u64::from(value[0]);
        rows += 1;
        std::ops::ControlFlow::Continue(())
    })?;
    std::hint::black_box(sum);
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// Threads that commit one record each and wait until it is durable.
fn commit_rate(store: &Store, tree: TreeId, records: u64, seed: &mut u64) -> Result<f64, StoreError> {
    let started = Instant::now();
    let counts = std::thread::scope(|scope| {
        let committers: Vec<_> = (0..COMMITTERS)
            .map(|thread| {
                let mut seed = *seed + (thread << 40);
                scope.spawn(move || -> Result<u64, StoreError> {
                    let mut count = 0;
                    while started.elapsed() < RUN {
                        seed += 1;
                        let key = scramble(scramble(seed) % records).to_be_bytes();
                        store.commit(&mut |tx: &mut Tx<'_>| {
                            tx.put(tree, &key, &DOCUMENT);
                            Ok(())
                        })?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        committers.into_iter().map(|committer| committer.join().expect("a committer")).sum::<Result<u64, StoreError>>()
    })?;
    *seed += counts;
    Ok(counts as f64 / started.elapsed().as_secs_f64())
}
