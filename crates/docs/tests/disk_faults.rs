//! The disk fails, is full or stutters at one operation of a database's life: `faulty_lives` states the invariants. This test
//! takes some random operations; `cargo xtask campaign docs-faults` tests all.

use std::time::{Duration, Instant};

use crate::faulty_lives::Start;
use crate::simulation::sweep::{FAULTS, Lives, sweep};
use rand::RngExt;

/// Seconds of the short run. Seconds within which a busy machine must have reached at least one fault. The faults hit
/// operations below the third number.
const SECONDS: u64 = 4;
const SECONDS_MAX: u64 = 120;
const OPERATIONS: u64 = 1000;
/// Lives of the long run, unless DOCS_FAULTS_COUNT says otherwise.
const LONG_COUNT: u64 = 4;

#[track_caller]
fn check(start: &Start) {
    let (began, mut tried) = (Instant::now(), 0);
    let mut rng = rand::rng();
    let is_within = |seconds: u64| began.elapsed() < Duration::from_secs(seconds);
    while is_within(SECONDS) || tried == 0 && is_within(SECONDS_MAX) {
        let (fault, count) = FAULTS[rng.random_range(0..FAULTS.len())];
        let reached = start.check(fault, count, rng.random_range(0..OPERATIONS));
        tried += u32::from(reached.unwrap_or_else(|wrong| panic!("{wrong}")));
    }
    println!("{tried} faults");
    assert!(tried > 0);
}

#[test]
fn a_fault_at_any_operation_of_a_new_database_loses_nothing() {
    check(&Start::empty(rand::random_range(0..1000)));
}

#[test]
fn a_fault_at_any_operation_of_a_database_that_was_killed_loses_nothing() {
    check(&Start::killed(rand::random_range(0..1000)));
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "hours: `cargo xtask campaign docs-faults`"]
fn faults_at_all_operations() {
    let seed = setting("DOCS_FAULTS_SEED").unwrap_or(1);
    let mut failures = 0;
    for seed in seed..seed + setting("DOCS_FAULTS_COUNT").unwrap_or(LONG_COUNT) {
        for (name, start) in [("empty", Start::empty(seed)), ("killed", Start::killed(seed))] {
            let began = Instant::now();
            let step = setting("DOCS_FAULTS_STEP").unwrap_or(1).max(1);
            match sweep(&start, FAULTS, rand::random_range(0..step), step as usize) {
                Ok(tried) => println!("seed {seed}, {name}: {tried} faults, {:.0} s", began.elapsed().as_secs_f64()),
                Err(wrong) => {
                    println!("FAILURE, seed {seed}, {name}: {wrong}");
                    failures += 1;
                }
            }
        }
    }
    assert_eq!(failures, 0);
}
