//! The spilled data of an execution.

use super::runs::Runs;
use super::sort::SortBuffer;

/// Runs and rows that were spilled to disk.
#[derive(Debug, Default)]
pub(super) struct Spilled {
    pub(super) sorted: Runs,
    pub(super) grouped: Runs,
    /// Rows that may be new to DISTINCT, decided later.
    pub(super) late: SortBuffer,
    pub(super) late_runs: Runs,
    /// The memory for known rows is full: no more rows are added to them.
    pub(super) is_late: bool,
    pub(super) arrivals: u64,
}

impl Spilled {
    /// Neither sorted nor grouped rows were spilled.
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.grouped.is_empty()
    }

    /// Takes the sorted and grouped runs; what follows is written to the same files.
    pub(super) fn take(&mut self) -> Spilled {
        Spilled { sorted: self.sorted.take(), grouped: self.grouped.take(), ..Spilled::default() }
    }

    /// Appends another's runs to its own.
    pub(super) fn append(&mut self, other: Spilled) {
        self.sorted.append(other.sorted);
        self.grouped.append(other.grouped);
    }
}

/// Whether DISTINCT has seen a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distinct {
    New,
    Known,
    /// Not known yet: the row is kept, and decided at the end.
    Late,
}
