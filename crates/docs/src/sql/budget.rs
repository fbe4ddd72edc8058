//! What an execution may use, and what it used.

use std::sync::Arc;

use super::spill::SpillSpace;

/// What an execution may use.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    /// Index entries and documents looked at.
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
