//! What an execution may use, what it used, and the meter that both are measured with.
//!
//! **Work.** All that takes time ticks one [`Meter`]: rows, steps of evaluation, bytes that functions read, compare or write,
//! pieces of patterns, rows of inner queries, comparisons of a sort. After each [`QUESTION_UNITS`], some ten microseconds of work, the
//! meter asks [`Budget::deadline`], and from there the execution ends with [`QueryError::Deadline`](super::QueryError::Deadline). So a
//! deadline of a millisecond is kept, whatever the expression, and also inside one row. What cannot be interrupted is one pass
//! over one text or stored value: a millisecond or so for each MiB.
//!
//! **Memory.** What expressions compute for a row lies in arenas ([`super::workspace`]). The meter counts their chunks before they
//! are allocated, over all queries of an execution: up to [`Budget::memory_bytes_max`], more is [`COMPUTED`](super::COMPUTED). Each
//! thread that helps has as much for the row that it is at, so that a row meets the limit whoever reads it. A row that is kept, or
//! given out, is counted field by field before it is copied ([`RowRoom`]), and so is a key that a row is looked up by. What is kept of
//! all rows (groups, sorts, inner queries) counts by itself; an inner query has what the queries around it leave of it.

use std::cell::Cell;
use std::sync::Arc;

use super::error::Fault;
use super::spill::SpillSpace;
use super::value::{Field, Value};

/// What a statement touches of its thread's stack at most, while it is prepared and run. Measured for the deepest of each kind
/// (`tests/sql_stack.rs`), optimised as for tests: most where queries nest in FROM, 23 deep, 1040 KiB (1048 as released). What else
/// nests is parsed in regions (`nesting.rs`).
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
    /// Bytes kept for sorting, grouping and DISTINCT; and as many, [`COMPUTED_BYTES_LEAST`] at least, that expressions
    /// compute for a row.
    pub memory_bytes_max: usize,
    /// Where what exceeds that goes; without it, it is an error.
    pub spill: Option<&'b Arc<SpillSpace>>,
    /// Asked after each few ten microseconds of work, also inside a row: whether the time is over. Asked on the threads that
    /// do the work. Once it was over, it should stay so.
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

/// Work between two questions to [`Budget::deadline`]: some ten microseconds. A unit is a step of an expression.
pub(crate) const QUESTION_UNITS: u64 = 1024;
/// Units of a row that is read: a row of a kilobyte costs some tenth of a microsecond.
pub(crate) const ROW_UNITS: u64 = 16;
/// Units of beginning an inner query.
pub(crate) const RUN_UNITS: u64 = 64;
/// Bytes that are read, compared or written for one unit.
const UNIT_BYTES: usize = 32;
/// Bytes that expressions may compute for a row whatever the budget: less than this no text function goes without.
pub const COMPUTED_BYTES_LEAST: usize = 128 << 10;
/// Texts up to here are not looked through for what their escapes take.
const SHORT_BYTES: usize = 64;
/// Bytes that the escape of a control character takes beside it.
const CONTROL_BYTES: usize = 5;
/// Of an arena, what its thread keeps between rows and executions: counted with the thread.
pub(crate) const ARENA_BYTES_KEPT: usize = 16 << 10;

/// Measures the work of one thread of an execution, and the memory of what it computes. See the module's text.
pub(crate) struct Meter<'b> {
    /// Units until the deadline is asked for.
    left: Cell<u64>,
    deadline: Option<&'b (dyn Fn() -> bool + Sync)>,
    /// Bytes of arenas, beyond what threads keep.
    held: Cell<usize>,
    held_max: usize,
    /// Bytes of a row that is kept.
    row_max: usize,
    /// Bytes of groups, sorts and rows that the queries of this thread hold, a query that asks an inner one included.
    gathered: Cell<usize>,
    /// Bytes of keys and of rows of `json_each` that the levels of loops hold while those inside run.
    levels: Cell<usize>,
}

impl<'b> Meter<'b> {
    /// That of an execution.
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

    /// For what is bounded by itself: a value of a row that is kept.
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

    /// Counts a look at a value: a long text costs what it is long.
    #[inline]
    pub(crate) fn weigh(&self, value: Value<'_>) -> Result<(), Fault> {
        match value {
            Value::Text(text) => self.tick_bytes(text.len()),
            _ => Ok(()),
        }
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

    /// Takes up to `most` bytes for arenas, `least` at least; gives how many.
    pub(crate) fn take(&self, least: usize, most: usize) -> Result<usize, Fault> {
        let room = self.held_max.saturating_sub(self.held.get());
        if room < least {
            return Err(self.exceeded());
        }
        let taken = room.min(most);
        self.held.set(self.held.get() + taken);
        Ok(taken)
    }

    /// What is said where there is no room.
    #[cold]
    pub(crate) fn exceeded(&self) -> Fault {
        Fault::Computed(self.held_max)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.held.set(self.held.get().saturating_sub(bytes));
    }

    /// Bytes that the queries of this thread hold of all rows.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.get()
    }

    /// An inner query, or a part of what one holds, is over: what is held is what was held before.
    pub(crate) fn set_gathered(&self, bytes: usize) {
        self.gathered.set(bytes);
    }

    /// A query that held so many bytes holds so many now.
    pub(crate) fn note_gathered(&self, before: usize, now: usize) {
        self.gathered.set(self.gathered.get().saturating_sub(before) + now);
    }

    /// Bytes that the levels of loops hold.
    pub(crate) fn levels(&self) -> usize {
        self.levels.get()
    }

    /// A level is over: what they hold is what was held before.
    pub(crate) fn set_levels(&self, bytes: usize) {
        self.levels.set(bytes);
    }

    /// Counts the keys that a level looks for; gives what was held before.
    pub(crate) fn hold_keys(&self, bytes: usize) -> Result<usize, Fault> {
        let before = self.levels.get();
        if before + bytes > self.row_max {
            return Err(Fault::Row(self.row_max));
        }
        self.levels.set(before + bytes);
        Ok(before)
    }

    /// Most bytes of a row that is kept, or of a group.
    pub(crate) fn row_bytes_max(&self) -> usize {
        self.row_max
    }

    /// Room for one row that is put together: what kept rows may take, and never less than one may compute.
    pub(crate) fn row_room(&self) -> RowRoom<'_> {
        RowRoom { left: self.row_max, fault: Fault::Row(self.row_max), is_written: false, meter: self }
    }
}

/// Room for a row that is put together: more is an error before it is copied. Of one computed text a row can have hundreds of
/// copies.
pub(crate) struct RowRoom<'m> {
    left: usize,
    /// What more than that is.
    fault: Fault,
    /// As JSON.
    is_written: bool,
    meter: &'m Meter<'m>,
}

impl<'m> RowRoom<'m> {
    /// In a result that has so many bytes; `is_kept`: for the query itself, not for a client.
    pub(crate) fn of_result(budget: &Budget<'_>, (bytes, is_kept): (usize, bool), meter: &'m Meter<'m>) -> RowRoom<'m> {
        let limit = budget.output_bytes_max;
        // What is a little too long is told when the row is complete.
        let left = limit.saturating_sub(bytes).max(COMPUTED_BYTES_LEAST);
        RowRoom { left, fault: Fault::Result(limit), is_written: !is_kept, meter }
    }

    /// Counts a field that is about to be copied.
    #[inline]
    pub(crate) fn take(&mut self, field: Field<'_>) -> Result<(), Fault> {
        match field {
            Field::Json(bytes) | Field::Value(Value::Text(bytes)) => self.take_bytes(bytes.len()),
            Field::Value(_) => Ok(()),
        }
    }

    /// The same of a field that is written as JSON: escapes make a text up to six times as long.
    #[inline]
    pub(crate) fn take_written(&mut self, field: Field<'_>) -> Result<(), Fault> {
        match field {
            Field::Value(Value::Text(text)) if self.is_written && text.len() > SHORT_BYTES => {
                let controls = text.iter().filter(|&&byte| byte < 0x20).count();
                let escaped = text.iter().filter(|&&byte| matches!(byte, b'"' | b'\\')).count();
                self.take_bytes(text.len() + CONTROL_BYTES * controls + escaped)
            }
            field => self.take(field),
        }
    }

    #[inline]
    fn take_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes).ok_or(self.fault)?;
        self.meter.tick_bytes(bytes)
    }
}
