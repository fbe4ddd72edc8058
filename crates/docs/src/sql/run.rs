//! An execution in progress: its memory, how it ends, and its budget.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use binjson::FieldCache;
use bumpalo::Bump;
use hashbrown::{HashMap, HashSet};

use super::aggregate::State;
use super::batch::Batch;
use super::budget::{Budget, Outcome, ROW_UNITS, Tally};
use super::constants::Remembered;
use super::error::{Fault, QueryError, ROWS_READ};
use super::expr::Expr;
use super::part::Part;
use super::plan::Plan;
use super::plan_space::NearPlans;
use super::point_keys::PointKeys;
use super::relation::Relations;
use super::row::{Fixed, Frame, Scope};
use super::sink::RowSink;
use super::sort::SortBuffer;
use super::spilled::Spilled;
use super::workers::{Helpers, Workers};
use crate::engine::{KeyRange, View};

/// Rows that are counted as work together.
pub(super) const TICK_ROWS: u64 = 64;
/// What each buffer of a scratch keeps between executions, but for the sort of the outermost query.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// The same of the rows of an inner query: there may be dozens of them, one inside the other.
const INNER_KEPT_BYTES_MAX: usize = 8 << 10;
/// Bytes that a group or distinct row costs beside its own.
pub(super) const GROUP_OVERHEAD_BYTES: usize = 64;

/// Memory that executions reuse. One for each thread.
#[derive(Default)]
pub struct Scratch {
    pub(super) arena: Bump,
    pub(super) constants: Bump,
    pub(super) remembered: Remembered,
    pub(super) caches: Vec<Vec<Cell<FieldCache>>>,
    pub(super) levels: Vec<LevelKeys>,
    pub(super) batch: Batch,
    pub(super) sort: SortBuffer,
    pub(super) states: Vec<State>,
    pub(super) key: Vec<u8>,
    pub(super) workers: Helpers,
    pub(super) near: NearPlans,
    /// That of inner queries.
    inner: Option<Box<Scratch>>,
}

#[derive(Default)]
pub(super) struct LevelKeys {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// Where the rows of `json_each` end.
    pub(super) ends: Vec<usize>,
    /// The values of points.
    pub(super) points: PointKeys,
}

#[inline]
fn shrink(bytes: &mut Vec<u8>) {
    if bytes.capacity() > KEPT_BYTES_MAX {
        *bytes = Vec::new();
    }
}

impl LevelKeys {
    /// Gives long keys back.
    #[inline]
    pub(super) fn shrink(&mut self) {
        [&mut self.from, &mut self.to, &mut self.key].into_iter().for_each(shrink);
        if self.ends.capacity() * size_of::<usize>() > KEPT_BYTES_MAX {
            self.ends = Vec::new();
        }
    }

    /// The range of an index between the bounds; an empty one is none.
    pub(super) fn index_range(&self) -> KeyRange<'_> {
        KeyRange {
            from: if self.from.is_empty() { Bound::Unbounded } else { Bound::Included(&self.from) },
            to: if self.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(&self.to) },
        }
    }

    /// Makes the bounds those of the combination at which the walk over the points stands.
    pub(super) fn set_point(&mut self) {
        let (points, from, to) = (&self.points, &mut self.from, &mut self.to);
        from.clear();
        points.append(from);
        to.clear();
        to.extend_from_slice(from);
        from.extend_from_slice(&points.low);
        to.extend_from_slice(&points.high);
    }

    /// The range of documents between the bounds that there are.
    pub(super) fn document_range(&self, low: bool, high: bool) -> KeyRange<'_> {
        KeyRange {
            from: if low { Bound::Included(&self.from[..]) } else { Bound::Unbounded },
            to: if high { Bound::Included(&self.to[..]) } else { Bound::Unbounded },
        }
    }
}

impl Scratch {
    /// Empty; it grows to what the queries need and stays so.
    pub fn new() -> Self {
        Scratch::default()
    }

    /// The same with threads that help where much is read.
    pub fn with_workers(self, workers: Arc<Workers>) -> Self {
        Scratch { workers: Some(workers), ..self }
    }

    /// Gives long keys back.
    pub(super) fn shrink_keys(&mut self) {
        self.levels.iter_mut().for_each(LevelKeys::shrink);
        shrink(&mut self.key);
    }

    /// Gives back what an inner query sorted and grouped in: each query of a statement has a scratch of its own.
    pub(super) fn shrink_rows(&mut self) {
        self.sort.shrink(INNER_KEPT_BYTES_MAX);
        if self.states.capacity() * size_of::<State>() > INNER_KEPT_BYTES_MAX {
            self.states = Vec::new();
        }
    }

    pub(super) fn take_inner(&mut self) -> Option<Box<Scratch>> {
        let mut inner = self.inner.take().unwrap_or_default();
        inner.workers.clone_from(&self.workers);
        Some(inner)
    }

    pub(super) fn keep_inner(&mut self, inner: Option<Box<Scratch>>) {
        self.inner = inner;
    }
}

/// Why the loops end before their ranges do. One word, so that it is handed outwards in registers.
pub(super) enum End {
    /// As many rows as are wanted.
    Enough,
    Error(Box<QueryError>),
}

/// Whether the loops go on.
pub(super) type Flow = Result<(), End>;

impl From<QueryError> for End {
    #[cold]
    fn from(error: QueryError) -> Self {
        End::Error(Box::new(error))
    }
}

impl From<Fault> for End {
    #[cold]
    fn from(fault: Fault) -> Self {
        End::from(QueryError::from(fault))
    }
}

impl From<store::Error> for End {
    #[cold]
    fn from(error: store::Error) -> Self {
        End::from(QueryError::from(error))
    }
}

/// The groups seen: each one's place among the states, and its key's fields.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) places: HashMap<Box<[u8]>, usize>,
    pub(super) fields: Vec<Box<[u8]>>,
    /// The numbers of the groups in the order in which they were first seen, also among those that are on disk.
    pub(super) arrivals: Vec<u64>,
    pub(super) next_arrival: u64,
    /// The same for values that aggregates keep.
    pub(super) next_value: u64,
    pub(super) bytes: usize,
}

/// Rows that were collected for a sort, and the first terms of the last one's sort key.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) rows: u64,
    pub(super) first_terms: Vec<u8>,
}

/// An execution in progress.
pub(super) struct Run<'e, S: RowSink + ?Sized> {
    pub(super) plan: &'e Plan,
    pub(super) fixed: &'e Fixed<'e>,
    pub(super) view: &'e dyn View,
    pub(super) budget: &'e Budget<'e>,
    pub(super) arena: &'e mut Bump,
    pub(super) levels: &'e mut [LevelKeys],
    pub(super) batch: &'e mut Batch,
    pub(super) sort: &'e mut SortBuffer,
    pub(super) states: &'e mut Vec<State>,
    pub(super) key: &'e mut Vec<u8>,
    pub(super) groups: Groups,
    pub(super) distinct: HashSet<Box<[u8]>>,
    pub(super) distinct_bytes: usize,
    /// What is on disk, if anything is.
    pub(super) spilled: Option<Box<Spilled>>,
    /// The groups are to go to disk before the next row.
    pub(super) is_full: bool,
    pub(super) skip: u64,
    pub(super) wanted: u64,
    pub(super) outcome: Outcome,
    /// The row at which the budget is looked at again.
    pub(super) check_at: u64,
    /// The part of the outermost range that is read, where several threads read it.
    pub(super) part: Option<Part<'e>>,
    /// Where the rows of all queries of the execution are counted, if there are inner ones.
    pub(super) tally: Option<&'e Tally>,
    /// What was collected for a sort whose rows come in the order of its first terms.
    pub(super) collected: Collected,
    /// Rows and bytes that have been counted with those of other parts or queries.
    pub(super) counted: (u64, Cell<usize>),
    pub(super) sink: &'e mut S,
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    #[inline]
    pub(super) fn scope<'s>(&'s self, frame: Option<&'s Frame<'s>>) -> Scope<'s> {
        Scope { frame, fixed: self.fixed, arena: self.arena }
    }

    #[inline]
    pub(super) fn passes(&self, conditions: &[Expr], frame: &Frame<'_>) -> Result<bool, Fault> {
        if conditions.is_empty() {
            return Ok(true);
        }
        let scope = self.scope(Some(frame));
        for condition in conditions {
            if !condition.passes(&scope)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline]
    pub(super) fn count_row(&mut self) -> Flow {
        self.outcome.rows_read += 1;
        if self.outcome.rows_read >= self.check_at {
            self.check_budget()?;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn check_budget(&mut self) -> Flow {
        let mut rows_read = self.outcome.rows_read;
        if let Some(part) = self.part {
            if part.is_unwanted() {
                return Err(End::Enough);
            }
            rows_read = part.add_rows(rows_read - self.counted.0, rows_read);
            self.counted.0 = self.outcome.rows_read;
        } else if let Some(tally) = self.tally {
            rows_read = tally.add(rows_read - self.counted.0);
            self.counted.0 = self.outcome.rows_read;
        }
        if rows_read > self.budget.rows_max {
            return Err(QueryError::Limit { what: ROWS_READ, limit: self.budget.rows_max }.into());
        }
        if self.outcome.rows_read.is_multiple_of(TICK_ROWS) {
            self.fixed.meter.tick(TICK_ROWS * ROW_UNITS)?;
        }
        self.check_at = self.next_check(rows_read);
        Ok(())
    }

    /// The next row at which work is counted, or one too many where so many were read in all. An inner query that is
    /// asked next reads rows beside these: then each row is counted at once.
    pub(super) fn next_check(&self, all: u64) -> u64 {
        let own = self.outcome.rows_read;
        if self.fixed.relations.is_some_and(Relations::may_read) {
            return own + 1;
        }
        let ticked = (own / TICK_ROWS + 1) * TICK_ROWS;
        let left = self.budget.rows_max.saturating_sub(all);
        ticked.min(own.saturating_add(left).saturating_add(1))
    }
}

/// The loops' end as the caller sees it.
pub(super) fn ended(flow: Flow) -> Result<(), QueryError> {
    match flow {
        Ok(()) | Err(End::Enough) => Ok(()),
        Err(End::Error(error)) => Err(*error),
    }
}
