//! The spilled data of an execution.

use super::runs::Runs;
use crate::sql::values::SortBuffer;

/// Runs and rows that were spilled to disk.
#[derive(Debug, Default)]
pub(in crate::sql) struct Spilled {
    pub(in crate::sql) sorted: Runs,
    pub(in crate::sql) grouped: Runs,
    /// Rows that may be new to DISTINCT, decided later.
    pub(in crate::sql) late: SortBuffer,
    pub(in crate::sql) late_runs: Runs,
    /// The memory for known rows is full: no more rows are added to them.
    pub(in crate::sql) is_late: bool,
    pub(in crate::sql) arrivals: u64,
}

impl Spilled {
    /// Neither sorted nor grouped rows were spilled.
    pub(in crate::sql) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.grouped.is_empty()
    }

    /// Takes the sorted and grouped runs; what follows is written to the same files.
    pub(in crate::sql) fn take(&mut self) -> Spilled {
        Spilled { sorted: self.sorted.take(), grouped: self.grouped.take(), ..Spilled::default() }
    }

    /// Appends another's runs to its own.
    pub(in crate::sql) fn append(&mut self, other: Spilled) {
        self.sorted.append(other.sorted);
        self.grouped.append(other.grouped);
    }
}

/// Whether DISTINCT has seen a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sql) enum Distinct {
    New,
    Known,
    /// Not known yet: the row is kept, and decided at the end.
    Late,
}
