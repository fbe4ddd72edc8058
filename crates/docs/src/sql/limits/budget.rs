//! Limits of an execution, its counts, and the meter that measures both.
//!
//! **Work.** One [`Meter`] counts the work of each thread: rows, evaluation steps, bytes that functions read, compare or write,
//! parts of patterns, rows of subqueries, comparisons of a sort. After each [`QUESTION_UNITS`], some ten microseconds of
//! work, the meter calls [`Budget::deadline`]. If the time is over, the execution ends with [`super::QueryError::Deadline`]. So
//! a deadline of a millisecond is kept for any expression, even within one row. Only one pass over one text or stored value
//! cannot be interrupted: about a millisecond for each MiB.
//!
//! **Memory.** Values that expressions compute for a row are allocated in arenas (`values/workspace.rs`). The meter counts
//! their chunks before they are allocated, over all queries of an execution. More than [`Budget::memory_bytes_max`] is the
//! error [`COMPUTED`](crate::sql::COMPUTED). Each helper thread has the same limit for its current row, so a row meets the same
//! limit on every thread. A row that is kept or returned is counted field by field before it is copied (`values/row_room.rs`),
//! and so is a lookup key. Data that queries gather from many rows (groups, sorts, kept rows of subqueries) is counted
//! separately. A subquery may use the part of that memory that its enclosing queries leave free.

use std::cell::Cell;
use std::sync::Arc;

use super::error::Fault;
use super::spill::SpillSpace;

/// Most bytes of its thread's stack that a statement uses while it is prepared and run. The deepest statement of each kind was
/// measured (`tests/sql_stack.rs`) with the optimisation of tests. The maximum, 1040 KiB (1048 in a release build), is that of
/// queries nested 23 deep in FROM. Other nesting is parsed in regions (`syntax/nesting.rs`).
pub const STACK_BYTES_MAX: usize = 1056 << 10;

/// Limits of an execution.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    /// Maximum number of index entries and documents that the query scans, its subqueries included; more is an error. Each thread
    /// that scans a part of a range reports 64 rows at a time, and may scan that many more before the error. Rows that parallel
    /// threads scan beyond a LIMIT do not count.
    pub rows_max: u64,
    /// Bytes of the result.
    pub output_bytes_max: usize,
    /// Bytes kept for sorting, grouping and DISTINCT. The same limit, but at least [`COMPUTED_BYTES_LEAST`], holds for the
    /// values that expressions compute for a row.
    pub memory_bytes_max: usize,
    /// Where sorts, groups and DISTINCT spill if they exceed this memory. Without it, exceeding the memory is an error.
    pub spill: Option<&'b Arc<SpillSpace>>,
    /// Returns whether the time is over. Called after every ten microseconds or so of work, also within a row, on the threads
    /// that do the work. Once true, it should stay true.
    pub deadline: Option<&'b (dyn Fn() -> bool + Sync)>,
    /// The Unix time in milliseconds that `now` means in date functions.
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

/// The counts of an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionCounts {
    /// Rows passed to the sink.
    pub rows: u64,
    /// Index entries and documents scanned.
    pub rows_read: u64,
    /// Its plan scans a whole collection.
    pub scans: bool,
}

/// Rows read so far by an execution, including all its subqueries.
#[derive(Default)]
pub(in crate::sql) struct Tally(Cell<u64>);

impl Tally {
    /// Counts rows; returns the total.
    pub(in crate::sql) fn add(&self, rows: u64) -> u64 {
        self.0.set(self.0.get() + rows);
        self.0.get()
    }

    pub(in crate::sql) fn rows(&self) -> u64 {
        self.0.get()
    }
}

/// Work between two calls of [`Budget::deadline`]: some ten microseconds. A unit is one step of an expression.
pub(crate) const QUESTION_UNITS: u64 = 1024;
/// Units of one scanned row: a row of a kilobyte costs some tenth of a microsecond.
pub(crate) const ROW_UNITS: u64 = 16;
/// Units of starting a subquery.
pub(crate) const RUN_UNITS: u64 = 64;
/// Bytes read, compared or written for one unit.
const UNIT_BYTES: usize = 32;
/// Bytes that expressions may compute for a row, however small the budget: text functions need at least this.
pub const COMPUTED_BYTES_LEAST: usize = 128 << 10;
/// Bytes of an arena that its thread keeps between rows and executions. They count as the thread's, not as the execution's.
pub(crate) const ARENA_BYTES_KEPT: usize = 16 << 10;

/// Measures the work of one thread of an execution, and the memory of its computed values. See the module documentation.
pub(crate) struct Meter<'b> {
    /// Units until the next check of the deadline.
    left: Cell<u64>,
    deadline: Option<&'b (dyn Fn() -> bool + Sync)>,
    /// Bytes of arenas, beyond those that threads keep.
    held: Cell<usize>,
    held_max: usize,
    /// Most bytes of a kept row.
    row_max: usize,
    /// Bytes of groups, sorts and rows that the queries of this thread hold, enclosing queries included.
    gathered: Cell<usize>,
    /// Bytes of keys and of `json_each` rows that the outer loops hold while the inner ones run.
    levels: Cell<usize>,
}

impl<'b> Meter<'b> {
    /// The meter of an execution.
    pub(crate) fn new(budget: &Budget<'b>) -> Meter<'b> {
        Meter {
            left: Cell::new(if budget.deadline.is_some() { QUESTION_UNITS } else { u64::MAX }),
            deadline: budget.deadline,
            held: Cell::new(0),
            held_max: budget.memory_bytes_max.max(COMPUTED_BYTES_LEAST),
            row_max: budget.memory_bytes_max.max(COMPUTED_BYTES_LEAST),
            gathered: Cell::new(0),
            levels: Cell::new(0),
        }
    }

    /// A meter without limits, for values whose size is bounded elsewhere, such as the values of a kept row.
    pub(crate) fn unbounded() -> Meter<'static> {
        Meter {
            left: Cell::new(u64::MAX),
            deadline: None,
            held: Cell::new(0),
            held_max: usize::MAX,
            row_max: usize::MAX,
            gathered: Cell::new(0),
            levels: Cell::new(0),
        }
    }

    /// Counts work.
    #[inline(always)]
    pub(crate) fn tick(&self, units: u64) -> Result<(), Fault> {
        match self.left.get().checked_sub(units) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => self.ask(),
        }
    }

    /// Counts bytes that are read, compared or written.
    #[inline]
    pub(crate) fn tick_bytes(&self, bytes: usize) -> Result<(), Fault> {
        if bytes < UNIT_BYTES { Ok(()) } else { self.tick((bytes / UNIT_BYTES) as u64) }
    }

    #[cold]
    #[inline(never)]
    fn ask(&self) -> Result<(), Fault> {
        let Some(over) = self.deadline else {
            self.left.set(u64::MAX);
            return Ok(());
        };
        self.left.set(QUESTION_UNITS);
        if over() { Err(Fault::Deadline) } else { Ok(()) }
    }

    /// Reserves between `least` and `most` bytes for arenas; returns how many.
    pub(crate) fn take(&self, least: usize, most: usize) -> Result<usize, Fault> {
        let room = self.held_max.saturating_sub(self.held.get());
        if room < least {
            return Err(self.exceeded());
        }
        let taken = room.min(most);
        self.held.set(self.held.get() + taken);
        Ok(taken)
    }

    /// The error of an exhausted reservation.
    #[cold]
    pub(crate) fn exceeded(&self) -> Fault {
        Fault::Computed(self.held_max)
    }

    /// Releases reserved bytes.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.held.set(self.held.get().saturating_sub(bytes));
    }

    /// Bytes that the queries of this thread have gathered from many rows.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.get()
    }

    /// Resets the bytes when a subquery, or a part of its data, is done.
    pub(crate) fn set_gathered(&self, bytes: usize) {
        self.gathered.set(bytes);
    }

    /// A query's bytes have changed from `before` to `now`.
    pub(crate) fn note_gathered(&self, before: usize, now: usize) {
        self.gathered.set(self.gathered.get().saturating_sub(before) + now);
    }

    /// Bytes that the levels of nested loops hold.
    pub(crate) fn levels(&self) -> usize {
        self.levels.get()
    }

    /// Resets the bytes when a level is done.
    pub(crate) fn set_levels(&self, bytes: usize) {
        self.levels.set(bytes);
    }

    /// Counts the keys that a level looks up; returns the bytes held before.
    pub(crate) fn hold_keys(&self, bytes: usize) -> Result<usize, Fault> {
        let before = self.levels.get();
        if before + bytes > self.row_max {
            return Err(Fault::Row(self.row_max));
        }
        self.levels.set(before + bytes);
        Ok(before)
    }

    /// Most bytes of a kept row or of a group.
    pub(crate) fn row_bytes_max(&self) -> usize {
        self.row_max
    }
}
