//! Whole engines under the scheduler under test: `cargo test -p store --features schedules --test schedules`.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

mod explored;
mod simulation;

/// A few seconds of `cargo xtask campaign schedules`.
const LIVES: u64 = 500;

#[test]
fn every_life_is_one_serial_order_whatever_its_schedule() {
    let (explored, outcome) = explored::run(1..1 + LIVES);
    if let Err(failure) = outcome {
        panic!("seed {}: {}", failure.seed, failure.what);
    }
    assert_eq!(explored.executions, LIVES);
}
