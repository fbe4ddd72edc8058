//! Measures readers of changes: `cargo run --release -p store --example change_rate [COMMITS [READERS [DIR]]]`.
//!
//! One thread commits one document of 400 bytes at a time while the readers follow; then it reads all changes from the
//! start. In the output of `valgrind --tool=callgrind --separate-threads=yes` the first thread shows the cost of a
//! commit beside readers. The times depend on the disk.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use store::{ChangeReader, Store, StoreError, StoreOptions, Version};

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (commits, readers) = (number(20_000), number(1));
    let directory = arguments.next().map_or_else(|| PathBuf::from("/tmp/sapsan-change-rate"), PathBuf::from);
    let _ = std::fs::remove_dir_all(&directory);
    let mut options = StoreOptions::default();
    options.changes_kept_bytes = 1 << 30;
    // Valgrind cannot map more.
    options.map_bytes = 1 << 32;
    let (store, _) = Store::open(&directory, options)?;
    let tree = store.tree("documents")?;
    let last = store.stats().version + commits;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let followers: Vec<_> = (0..readers)
            .map(|_| {
                let reader = store.changes_since(Version(0));
                scope.spawn(move || reader.and_then(|mut reader| follow(&mut reader, last)))
            })
            .collect();
        for number in 0..commits {
            store.commit(&mut |tx| {
                tx.put(tree, &number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &[b'x'; 400]);
                Ok(())
            })?;
        }
        println!("{commits} commits beside {readers} readers: {:?}", began.elapsed());
        for follower in followers {
            let waits = follower.join().unwrap_or(Err(StoreError::Closed))?;
            println!("a reader had read all {waits} times");
        }
        Ok::<(), StoreError>(())
    })?;
    let began = Instant::now();
    follow(&mut store.changes_since(Version(0))?, last)?;
    println!("all of it read again: {:?}, {:?}", began.elapsed(), store.stats());
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}

/// Reads up to a version; returns how often it had to wait.
fn follow(reader: &mut ChangeReader, last: u64) -> Result<u64, StoreError> {
    let mut waits = 0;
    while reader.version().0 < last {
        while reader.next()?.is_some() {}
        waits += 1;
        if reader.version().0 < last {
            reader.wait(Duration::from_secs(10))?;
        }
    }
    Ok(waits)
}
