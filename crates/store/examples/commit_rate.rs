//! How many durable commits a second: one thread, 64 threads that each wait for theirs, 1,024 in flight by `submit`.
//!
//! `cargo run --release -p store --example commit_rate [DIR]`. Each commit puts one document of 400 bytes under an
//! 8-byte key in random order. The numbers say nothing about reads, nor about a disk other than DIR's.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use store::{Abort, Commit, Error, Options, Store, Submit, Transaction, TreeId, Tx};

const RUN: Duration = Duration::from_secs(3);
const DOCUMENT: [u8; 400] = [b'x'; 400];

fn main() -> Result<(), Error> {
    let directory = std::env::args().nth(1).map_or_else(|| PathBuf::from("/tmp/sapsan-commit-rate"), PathBuf::from);
    let _ = std::fs::remove_dir_all(&directory);
    let (store, _) = Store::open(&directory, Options::default())?;
    let tree = store.tree("documents")?;
    for threads in [1, 4, 16, 64, 256] {
        report(&format!("{threads} threads waiting"), &store, || waiting(&store, tree, threads));
    }
    for in_flight in [64, 1024] {
        report(&format!("{in_flight} in flight"), &store, || submitting(&store, tree, in_flight));
    }
    println!("{:?}", store.stats());
    drop(store);
    let began = Instant::now();
    let (_store, recovery) = Store::open(&directory, Options::default())?;
    println!("open again: {:?}, {} batches replayed", began.elapsed(), recovery.batches);
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}

fn report(what: &str, store: &Store, run: impl FnOnce() -> u64) {
    let before = store.stats();
    let began = Instant::now();
    let commits = run();
    let elapsed = began.elapsed().as_secs_f64();
    let after = store.stats();
    let groups = (after.groups - before.groups).max(1);
    println!(
        "{what:>20}: {:>8.0} commits/s, {:.1} per group, {:.0} µs per group, {} inline, {} checkpoints",
        commits as f64 / elapsed,
        commits as f64 / groups as f64,
        elapsed * 1e6 / groups as f64,
        after.inline_commits - before.inline_commits,
        after.checkpoints - before.checkpoints,
    );
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn waiting(store: &Store, tree: TreeId, threads: u64) -> u64 {
    let stop = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, total) = (&stop, &total);
            scope.spawn(move || {
                let mut number = thread << 40;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let put = &mut |tx: &mut Tx<'_>| {
                        tx.put(tree, &key(number), &DOCUMENT);
                        Ok(())
                    };
                    store.commit(put).expect("commit");
                    total.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
    });
    total.into_inner()
}

/// Transactions that came back, counted for the thread that submits.
#[derive(Default)]
struct Returned {
    count: Mutex<u64>,
    more: Condvar,
}

struct Put {
    tree: TreeId,
    number: u64,
    returned: Arc<Returned>,
}

impl Transaction for Put {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        tx.put(self.tree, &key(self.number), &DOCUMENT);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, Error>) {
        outcome.expect("commit");
        let mut count = self.returned.count.lock().expect("count");
        *count += 1;
        if (*count).is_multiple_of(32) {
            self.returned.more.notify_one();
        }
    }
}

fn submitting(store: &Store, tree: TreeId, in_flight: u64) -> u64 {
    let reader = store.reader().expect("reader");
    let returned = Arc::new(Returned::default());
    let mut sent = 0;
    let began = Instant::now();
    while began.elapsed() < RUN {
        let mut count = returned.count.lock().expect("count");
        while sent - *count > in_flight - 32 {
            count = returned.more.wait(count).expect("count");
        }
        drop(count);
        for _ in 0..32 {
            sent += 1;
            let put = Put { tree, number: sent | 1 << 60, returned: Arc::clone(&returned) };
            assert!(matches!(store.submit(&reader, Box::new(put)), Submit::Queued));
        }
    }
    sent
}
