//! Measures a memtable alone: inserts, updates, hits, misses and scans, on one thread with warm caches.
//!
//! The numbers do not cover the log, the tree file or contention. Run:
//! `cargo run --release -p store --example memtable_rate`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use store::memtable::{Lookup, Memtable};
use store::readers::Published;
use store::{Direction, KeyRange, TreeId, Version};

const TREE: TreeId = TreeId(1);
const PROBES: u64 = 1_000_000;

/// Scatters numbers; a bijection.
fn scatter(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn nanoseconds(elapsed: Duration, count: u64) -> f64 {
    elapsed.as_nanos() as f64 / count as f64
}

/// Keys in one buffer, so that reading them costs little.
struct Keys {
    bytes: Vec<u8>,
    length: usize,
}

impl Keys {
    fn new(numbers: impl Iterator<Item = u64>, key: &dyn Fn(u64) -> Vec<u8>) -> Keys {
        let length = key(0).len();
        Keys { bytes: numbers.flat_map(key).collect(), length }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.length)
    }
}

/// Measures one shape of content.
fn measure(what: &str, count: u64, value_bytes: usize, key: &dyn Fn(u64) -> Vec<u8>) {
    let keys = Keys::new(0..count, key);
    let misses = Keys::new(count..count + PROBES, key);
    let hits = Keys::new((0..PROBES).map(|at| scatter(at) % count), key);
    let value = vec![7u8; value_bytes];
    let (table, mut writer) = Memtable::new(4 << 30).expect("address space");
    let start = Instant::now();
    for (at, key) in keys.iter().enumerate() {
        writer.insert(Version(at as u64 + 1), TREE, key, Some(&value)).expect("room");
    }
    let insert = nanoseconds(start.elapsed(), count);
    let bytes_per_key = table.used_bytes() as u64 / count;
    let start = Instant::now();
    let mut found = 0;
    for key in hits.iter() {
        found += u64::from(matches!(black_box(table.get(Version(u64::MAX), TREE, key)), Lookup::Value(_)));
    }
    let hit = nanoseconds(start.elapsed(), PROBES);
    let start = Instant::now();
    for key in misses.iter() {
        found += u64::from(black_box(table.get(Version(u64::MAX), TREE, key)) != Lookup::Absent);
    }
    let miss = nanoseconds(start.elapsed(), PROBES);
    assert_eq!(found, PROBES);
    let scan = scan(&table, count);
    let start = Instant::now();
    for key in hits.iter() {
        writer.insert(Version(count + 1), TREE, key, Some(&value)).expect("room");
    }
    let update = nanoseconds(start.elapsed(), PROBES);
    println!(
        "{what:<18} {count:>8} x {value_bytes:>3} B: insert {insert:>5.0} ns, update {update:>5.0} ns, hit {hit:>5.1} ns, \
         miss {miss:>5.1} ns, scan {:>5.1} M rows/s, {bytes_per_key} B each",
        1e3 / scan
    );
}

/// Nanoseconds for each row of a whole scan.
fn scan(table: &Memtable, count: u64) -> f64 {
    let start = Instant::now();
    let (mut rows, mut first_bytes) = (0u64, 0u64);
    for row in table.scan(Version(u64::MAX), TREE, KeyRange::ALL, Direction::Forward) {
        rows += 1;
        first_bytes += u64::from(row.key[0]) + u64::from(row.value.map_or(0, |value| value[0]));
    }
    black_box(first_bytes);
    assert_eq!(rows, count);
    nanoseconds(start.elapsed(), rows)
}

fn measure_pins() {
    let published = Published::new(1u64, 256);
    let slot = published.register().expect("a free slot");
    let start = Instant::now();
    let mut sum = 0;
    for _ in 0..10 * PROBES {
        sum += *black_box(slot.load());
    }
    assert_eq!(sum, 10 * PROBES);
    println!("pin and load: {:.1} ns", nanoseconds(start.elapsed(), 10 * PROBES));
    let (table, _writer) = Memtable::new(1 << 20).expect("address space");
    let start = Instant::now();
    for at in 0..10 * PROBES {
        black_box(table.get(Version(at), TREE, black_box(&at.to_le_bytes())));
    }
    println!("miss, memtable empty: {:.1} ns", nanoseconds(start.elapsed(), 10 * PROBES));
}

fn main() {
    measure_pins();
    for (count, value_bytes) in [(100_000, 120), (100_000, 400), (1_000_000, 120), (1_000_000, 400)] {
        measure("8-byte scattered", count, value_bytes, &|at| scatter(at).to_be_bytes().to_vec());
    }
    measure("8-byte rising", 100_000, 400, &|at| at.to_be_bytes().to_vec());
    for count in [100_000, 1_000_000] {
        measure("64-byte, 44 shared", count, 120, &|at| {
            format!("{:0>44}{:020}", "tenant/collection/documents/", scatter(at)).into_bytes()
        });
    }
}
