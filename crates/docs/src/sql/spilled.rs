//! What of an execution is on disk.

use super::runs::Runs;
use super::sort::SortBuffer;

/// What is on disk.
#[derive(Debug, Default)]
pub(super) struct Spilled {
    pub(super) sorted: Runs,
    pub(super) grouped: Runs,
    /// Rows that may be new to DISTINCT.
    pub(super) late: SortBuffer,
    pub(super) late_runs: Runs,
    /// No row is added to those known.
    pub(super) is_late: bool,
    pub(super) arrivals: u64,
}

impl Spilled {
    /// Nothing that was sorted or grouped.
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.grouped.is_empty()
    }

    /// What was sorted and grouped; what follows goes into the same files.
    pub(super) fn take(&mut self) -> Spilled {
        Spilled { sorted: self.sorted.take(), grouped: self.grouped.take(), ..Spilled::default() }
    }

    /// Puts what another holds behind its own.
    pub(super) fn append(&mut self, other: Spilled) {
        self.sorted.append(other.sorted);
        self.grouped.append(other.grouped);
    }
}

/// What DISTINCT knows of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distinct {
    New,
    Known,
    /// Nobody knows yet: it is to be kept.
    Late,
}
