//! What an execution may use, and what it used.

use std::cell::Cell;
use std::sync::Arc;

use super::spill::SpillSpace;

/// What a statement touches of its thread's stack at most, while it is prepared and run. Measured for the deepest of each kind
/// (`tests/sql_stack.rs`), optimised as for tests and as released: most where queries nest in FROM, 23 deep, 1048 KiB.
pub const STACK_BYTES_MAX: usize = 1056 << 10;

/// What an execution may use.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    /// Index entries and documents looked at, those of inner queries included: with one more it is an error, and with as many
    /// it is none. Threads that read parts of a range count 64 rows at a time, so each may have looked at so many more before
    /// the error; what they read ahead of a LIMIT in vain does not count.
    pub rows_max: u64,
    /// Bytes of the result.
    pub output_bytes_max: usize,
    /// Bytes kept for sorting, grouping and DISTINCT.
    pub memory_bytes_max: usize,
    /// Where what exceeds that goes; without it, it is an error.
    pub spill: Option<&'b Arc<SpillSpace>>,
    /// Asked now and then: whether the time is over.
    pub deadline: Option<&'b (dyn Fn() -> bool + Sync)>,
    /// Unix time in milliseconds that `now` means in date functions.
    pub now_ms: i64,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget {
            rows_max: 10_000_000,
            output_bytes_max: 64 << 20,
            memory_bytes_max: 64 << 20,
            spill: None,
            deadline: None,
            now_ms: 0,
        }
    }
}

/// What an execution did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows given to the sink.
    pub rows: u64,
    /// Index entries and documents looked at.
    pub rows_read: u64,
    /// Its plan reads a collection whole.
    pub scans: bool,
}

/// Rows that an execution has read, and all inner queries in it, as they go.
#[derive(Default)]
pub(super) struct Tally(Cell<u64>);

impl Tally {
    /// Counts rows; gives all.
    pub(super) fn add(&self, rows: u64) -> u64 {
        self.0.set(self.0.get() + rows);
        self.0.get()
    }

    pub(super) fn rows(&self) -> u64 {
        self.0.get()
    }
}
