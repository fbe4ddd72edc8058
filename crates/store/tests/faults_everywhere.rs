//! The disk fails, is full or stutters at one operation after the other of a store's life; `simulation/faults.rs`
//! defines what must hold. This runs a random part of the operations; `cargo xtask campaign faults` runs them all.

use crate::simulation::disk::Fault;
use crate::simulation::faults::Start;
use crate::simulation::sweep::{FAULTS, Lives, SYNC_FAULTS, sweep};

/// One of this many operations is taken.
const STEP: usize = 23;

/// Operations that create a store, and some more.
const MAKING: u64 = 45;

/// The same for a busy store, which has more of them.
const BUSY_STEP: usize = 101;

/// One of this many syncs of other threads' writes is taken.
const SYNC_STEP: usize = 2;

#[track_caller]
fn check(start: impl Fn(u64) -> Start, step: usize) {
    for seed in 0..2 {
        let first = rand::random_range(0..step as u64);
        let tried = sweep(&start(seed), FAULTS, first, step).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        // How much the other threads do before the writer is done depends on the machine.
        assert!(tried >= FAULTS.len() as u64, "{tried}");
    }
}

#[test]
fn a_fault_at_any_operation_of_a_new_store_loses_nothing() {
    check(Start::empty, STEP);
}

/// A failed sync of names is reported only once: half-made files are created again.
#[test]
fn a_store_whose_making_failed_at_any_operation_is_made_by_the_next_start() {
    for seed in 0..2 {
        let start = Start::empty(seed);
        for (at, count) in (0..MAKING).flat_map(|at| [(at, 1), (at, u64::MAX)]) {
            start.check(Fault::Broken, count, at).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
    }
}

#[test]
fn a_fault_at_any_operation_of_a_store_that_was_killed_loses_nothing() {
    check(Start::killed, STEP);
}

#[test]
fn a_fault_at_any_operation_beside_builds_checkpoints_and_backups_loses_nothing() {
    check(Start::busy, BUSY_STEP);
}

/// Threads that build, write checkpoints and reserve room sync one file, and any of them may get the error.
#[test]
fn an_error_that_any_threads_sync_is_told_of_loses_nothing() {
    let mut tried = 0;
    for seed in 0..3 {
        let first = rand::random_range(0..SYNC_STEP as u64);
        let swept = sweep(&Start::busy(seed), SYNC_FAULTS, first, SYNC_STEP);
        tried += swept.unwrap_or_else(|wrong| panic!("seed {seed}, behind {tried} faults: {wrong}"));
    }
    assert!(tried > 0);
}
