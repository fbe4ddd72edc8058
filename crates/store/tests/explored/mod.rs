//! Whole engines under the scheduler under test, on the simulated disk, compared with a model.
//!
//! A seed gives a life: clients that commit and submit, a reader, a reader of changes, checkpoints, a backup, a large transaction,
//! faults of the disk, a power failure, and the schedule of all threads. The tests run some thousands of them; `examples/schedules.rs`
//! (`cargo xtask campaign schedules`) runs as many as requested.

#![allow(dead_code, clippy::unwrap_used)] // Each driver uses a part of it; a failed step is a failed test.

pub(crate) mod ledger;
pub(crate) mod life;
pub(crate) mod state;

use std::ops::Range;
use std::sync::Once;

use schedules::{Explored, FailedSchedule, explore};

/// Lives the lives of these seeds, until one fails.
pub(crate) fn run(seeds: Range<u64>) -> (Explored, Result<(), FailedSchedule>) {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let (_, begun) = explore(0..1, |_| life::begin());
        begun.expect("the beginnings of lives");
    });
    explore(seeds, life::live)
}
