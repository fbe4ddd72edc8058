//! Measures the tree file alone: bulk build, random point reads, scans, checkpoints of random updates, and an index
//! that is sorted and built from unordered entries.
//!
//! One million entries (or the first argument) of 8-byte random keys and 400-byte values; with a second argument `long` the keys
//! have 64 bytes and share a long prefix. Values are read. The numbers do not cover the log, the memtable or durable commits.

#![allow(clippy::unwrap_used)] // A measuring program: any failure ends it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use store::disk::{Disk, DiskFile, SystemDisk};
use store::log::LogPosition;
use store::tree::{TreeFile, TreeView};
use store::{Direction, KeyRange, Sorter, TreeId, Version};

const TREE: TreeId = TreeId(1);
const VALUE_BYTES: usize = 400;
const READS: u64 = 2_000_000;
const UPDATES: usize = 36_000;

fn scramble(number: u64) -> u64 {
    // splitmix64's finaliser: a bijection, so keys are distinct.
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn key(number: u64, long: bool, key: &mut Vec<u8>) {
    key.clear();
    if long {
        key.extend_from_slice(b"documents/of/one/collection/under/a/common/prefix/");
        key.extend_from_slice(format!("{:014}", scramble(number) % 100_000_000_000_000).as_bytes());
    } else {
        key.extend_from_slice(&scramble(number).to_be_bytes());
    }
}

fn pace(file: &dyn DiskFile, start: u64, len: u64) -> std::io::Result<()> {
    file.sync_range(start, len)
}

fn random_reads(view: &TreeView, count: u64, long: bool, seed: u64) -> f64 {
    let (mut buffer, mut sum) = (Vec::new(), 0u64);
    let started = Instant::now();
    for i in 0..READS {
        key(scramble(i + seed) % count, long, &mut buffer);
        let value = view.get(TREE, &buffer).unwrap().unwrap();
        sum += u64::from(value[0]) + u64::from(value[VALUE_BYTES - 1]);
    }
    std::hint::black_box(sum);
    READS as f64 / started.elapsed().as_secs_f64()
}

fn scan(view: &TreeView) -> (u64, f64) {
    let (mut rows, mut sum) = (0, 0u64);
    let started = Instant::now();
    view.scan(TREE, KeyRange::ALL, Direction::Forward, &mut |key, value| {
        sum += u64::from(key[0]) + u64::from(value[0]);
        rows += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    std::hint::black_box(sum);
    (rows, rows as f64 / started.elapsed().as_secs_f64())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(1_000_000, |count| count.parse().unwrap());
    let long = arguments.next().as_deref() == Some("long");
    let directory = tempfile::tempdir_in(".").unwrap();
    let disk = Arc::new(SystemDisk::new(directory.path()).unwrap());
    TreeFile::create(disk.as_ref(), "trees", Version(0), LogPosition::default()).unwrap();
    let file = TreeFile::open(disk.as_ref(), "trees", 1 << 40).unwrap().choose(0).unwrap();

    let mut keys: Vec<Vec<u8>> = Vec::with_capacity(count as usize);
    for number in 0..count {
        let mut bytes = Vec::new();
        key(number, long, &mut bytes);
        keys.push(bytes);
    }
    keys.sort_unstable();
    let value = [7; VALUE_BYTES];
    let started = Instant::now();
    let mut bulk = file.bulk(Box::new(pace));
    for key in &keys {
        bulk.push(key, &value).unwrap();
    }
    let root = bulk.finish().unwrap();
    let built = started.elapsed().as_secs_f64();
    let mut writer = file.begin(Box::new(pace)).unwrap();
    writer.attach(TREE, root).unwrap();
    let view = writer.finish(Version(1), LogPosition::default()).unwrap();
    let durable = started.elapsed().as_secs_f64();
    println!("bulk build      {:>10.0} rows/s ({:.0} with the sync)", count as f64 / built, count as f64 / durable);
    report(&file, &view);
    reads(&view, count, long);
    // A view that is held keeps every page that the updates replace.
    drop(view);

    for round in 0..8u64 {
        let mut picked: Vec<&[u8]> =
            (0..UPDATES as u64).map(|i| keys[(scramble(i + round * 1_000_003) % count) as usize].as_slice()).collect();
        picked.sort_unstable();
        picked.dedup();
        let started = Instant::now();
        let mut writer = file.begin(Box::new(pace)).unwrap();
        writer.merge(TREE, picked.iter().map(|key| (*key, Some(&value[..])))).unwrap();
        let merged = started.elapsed();
        writer.finish(Version(2 + round), LogPosition::default()).unwrap();
        println!("checkpoint of {} updates: merge {merged:.0?}, with syncs {:.0?}", picked.len(), started.elapsed());
    }
    sort_and_build(disk, &file, count);
    let view = file.view();
    report(&file, &view);
    reads(&view, count, long);
}

/// An index of 24-byte keys without values, sorted in 16 MB and built.
fn sort_and_build(disk: Arc<dyn Disk>, file: &TreeFile, count: u64) {
    let started = Instant::now();
    let mut sorter = Sorter::new(disk, "index", 16 << 20);
    let mut key = [0; 24];
    for number in 0..count {
        key[..8].copy_from_slice(&(scramble(number) % 1000).to_be_bytes());
        key[8..16].copy_from_slice(&scramble(number).to_be_bytes());
        key[16..].copy_from_slice(&number.to_be_bytes());
        sorter.push(&key, &[]).unwrap();
    }
    let mut sorted = sorter.finish().unwrap();
    let mut bulk = file.bulk(Box::new(pace));
    while let Some((key, value)) = sorted.next().unwrap() {
        bulk.push(key, value).unwrap();
    }
    let root = bulk.finish().unwrap();
    let built = started.elapsed().as_secs_f64();
    println!("index           {:>10.0} entries/s sorted and built, {} entries", count as f64 / built, root.entries());
}

fn reads(view: &TreeView, count: u64, long: bool) {
    println!(
        "random reads    {:>10.0} /s, 1 thread (again {:.0})",
        random_reads(view, count, long, 1),
        random_reads(view, count, long, 7)
    );
    let both: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|i| scope.spawn(move || random_reads(view, count, long, i * 99))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("random reads    {both:>10.0} /s, 2 threads");
    let (rows, first) = scan(view);
    println!("scan            {first:>10.0} rows/s (again {:.0}), {rows} rows", scan(view).1);
}

fn report(file: &TreeFile, view: &TreeView) {
    let started = Instant::now();
    let report = view.verify();
    let space = file.space_stat();
    let tree = &report.trees[0];
    println!(
        "file {} MB, live {} MB, {} leaves {:.1} % full, {} branches, depth {}; verified in {:.0?}: {} faults",
        space.pages * 4 / 1024,
        space.live * 4 / 1024,
        tree.leaf_pages,
        100.0 * tree.fill(),
        tree.branch_pages,
        tree.info.depth,
        started.elapsed(),
        report.fault_count
    );
}
