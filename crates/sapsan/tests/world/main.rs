//! The world: one data folder under everything that may happen to it at once, and a model that says what is right.
//!
//! Clients write, read and run statements over masses of documents, while the file is read again with other rules, backups are made
//! and restored, documents expire, imports come and the server is killed. What must hold:
//!
//! - **One serial order.** The feed of changes gives all transactions in their order. Each carries the number of its operation,
//!   and is carried out on the model ([`replay`]): at its place the operation must do exactly what the feed shows and its reply said. So
//!   what it read was what there was at that place. The order agrees with real time: what was answered before another was
//!   sent stands before it. Without a reply an operation is there as a whole or not at all.
//! - **What leaves no transaction** (queries, refusals, statements that change nothing) is right at some place between its
//!   request and its reply.
//! - **At each check** ([`check`]) all documents, by every access path, are those of the model: indexes, unique values, joins
//!   through references, rows of views. A rule in force has no faults, and one that was refused had some.
//! - A backup is what there was at one place of the order, and serves as such.
//!
//! After a round comes one of the situations that random clients hardly ever meet ([`life`], `life/rare.rs`), in turn.
//!
//! The model knows which rules hold only where the server has said so ([`history`]): while a file is read again, a write that a new
//! rule would refuse may be refused or not.
//!
//! `cargo xtask campaign world --seconds 3600 --seed S`; the test is its short form. A failure prints the seed and the operations,
//! and keeps the folder. Threads decide who comes first, so a seed gives the same clients, not the same order.

mod check;
mod client;
mod draft;
mod effect;
mod feed;
mod history;
mod http;
mod life;
mod model;
mod operation;
mod reloads;
mod replay;
mod server;
mod settings;

use life::{Size, World};
use replay::Counts;
use std::time::{Duration, Instant};

/// One world until `goes_on` says no after a round; returns what was done.
#[track_caller]
fn check(seed: u64, size: Size, mut goes_on: impl FnMut(u32) -> bool) -> Counts {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let began = Instant::now();
    let mut world = World::new(folder.path(), seed, size);
    let mut outcome = world.begin();
    while outcome.is_ok() && goes_on(world.totals.rounds) {
        outcome = world.round();
    }
    let outcome = outcome.and_then(|()| world.end());
    println!("seed {seed}, {:?}: {:?}\n{:?}", began.elapsed(), world.totals, world.counts);
    if let Err(error) = outcome {
        let kept = folder.keep();
        drop(world);
        panic!("seed {seed}, folder {}: {error}", kept.display());
    }
    world.counts
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

#[test]
fn every_operation_of_a_short_life_has_its_place_in_one_serial_order() {
    let counts =
        check(1, Size { writers: 3, readers: 1, operations: 150, reloads: 3, has_long: false }, |rounds| rounds < 4);
    assert!(counts.transactions > 0 && counts.reads > 0, "{counts:?}");
}

#[test]
#[ignore = "long: cargo xtask campaign world --seconds 3600"]
fn every_operation_of_a_long_life_has_its_place_in_one_serial_order() {
    let limit = Duration::from_secs(number("SAPSAN_WORLD_SECONDS").unwrap_or(3_600));
    let first = number("SAPSAN_WORLD_SEED").unwrap_or(1);
    let size = Size { writers: 4, readers: 2, operations: 600, reloads: 6, has_long: true };
    let began = Instant::now();
    // New worlds now and then: a folder grows old, and the first file is the same.
    for seed in first.. {
        if began.elapsed() >= limit {
            break;
        }
        let counts = check(seed, size, |rounds| rounds < 40 && began.elapsed() < limit);
        assert!(counts.transactions > 0 && counts.reads > 0 && counts.large > 0, "{counts:?}");
    }
}
