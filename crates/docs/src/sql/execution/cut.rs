//! The cuts of a plan's outermost range into parts, and the data that threads scanning these parts share.

use std::cell::Cell;
use std::rc::Rc;

use binjson::FieldCache;

use super::part::{Part, Shared};
use super::run::{LevelKeys, Run, RunMemory, ended};
use super::workers::Workers;
use crate::engine::{Direction, KeyRange, ReadView, TreeId};
use crate::sql::expressions::Fixed;
use crate::sql::limits::{Budget, Fault, Meter, QueryError};
use crate::sql::planning::{Access, Plan};
use crate::sql::rows::{Relation, Relations, RowSink};
use crate::sql::values::{OuterValue, Value, workspace};

/// Parts per thread: with many parts, uneven ones balance out.
const PARTS_PER_THREAD: usize = 16;

/// The keys at which a range is cut, in scan direction.
pub(super) struct Cuts {
    keys: Vec<Vec<u8>>,
    direction: Direction,
}

impl Cuts {
    /// The number of parts.
    pub(super) fn parts(&self) -> usize {
        self.keys.len() + 1
    }

    /// A part by its number, in scan direction.
    pub(super) fn part<'p>(&'p self, number: usize, shared: &'p Shared) -> Part<'p> {
        let before = number.checked_sub(1).and_then(|before| self.keys.get(before)).map(Vec::as_slice);
        let behind = self.keys.get(number).map(Vec::as_slice);
        let (from, to) = if self.direction == Direction::Forward { (before, behind) } else { (behind, before) };
        Part { number, from, to, shared, turn: None }
    }
}

/// The part of [`Fixed`] that threads share.
pub(super) struct Common<'j> {
    plan: &'j Plan,
    parameters: &'j [Value<'j>],
    constants: &'j [Result<Value<'j>, Fault>],
    outer: &'j [OuterValue<'j>],
    relations: Option<Ready<'j>>,
    now_ms: i64,
}

impl<'j> Common<'j> {
    /// The shared part of an execution; `None` if a subquery fails. Then one thread scans the rows, because only the scan
    /// shows whether the rows of that query are ever requested.
    pub(super) fn of(plan: &'j Plan, fixed: &'j Fixed<'j>) -> Option<Common<'j>> {
        let relations = match fixed.relations {
            None => None,
            Some(relations) => {
                let all: Result<Vec<&Relation>, _> =
                    (0..plan.inner.len()).map(|number| relations.get(number)).collect();
                Some(Ready(all.ok()?))
            }
        };
        let Fixed { parameters, constants, outer, now_ms, .. } = *fixed;
        Some(Common { plan, parameters, constants, outer, relations, now_ms })
    }

    /// The initial field caches of a thread.
    pub(super) fn caches(&self) -> Vec<Cell<FieldCache>> {
        vec![Cell::default(); self.plan.sources.len()]
    }

    /// The complete [`Fixed`], with a thread's own field caches and meter.
    pub(super) fn fixed<'f>(&'f self, caches: &'f [Cell<FieldCache>], meter: &'f Meter<'f>) -> Fixed<'f> {
        Fixed {
            sources: &self.plan.sources,
            caches,
            parameters: self.parameters,
            constants: self.constants,
            aggregates: &[],
            group: &[],
            outer: self.outer,
            relations: self.relations.as_ref().map(|ready| ready as &dyn Relations),
            now_ms: self.now_ms,
            meter,
        }
    }
}

/// The rows of all subqueries, computed before the scan.
struct Ready<'j>(Vec<&'j Relation>);

impl Relations for Ready<'_> {
    fn get(&self, number: usize) -> Result<&Relation, Fault> {
        self.0.get(number).copied().ok_or(Fault::Plan)
    }

    fn ask(&self, _number: usize, _outer: &[OuterValue<'_>]) -> Result<Rc<Relation>, Fault> {
        Err(Fault::Plan)
    }

    fn may_read(&self) -> bool {
        false
    }
}

impl Plan {
    /// Whether the outermost rows are a range whose parts can be scanned separately. Correlated subqueries exclude this: they
    /// run on one thread.
    pub(super) fn is_ranged(&self) -> bool {
        let first = self.levels.first().filter(|level| !level.left && !self.first_only);
        let asks = self.inner.iter().any(|inner| inner.is_correlated);
        !asks && first.is_some_and(|level| matches!(level.access, Access::Scan { .. } | Access::Index { .. }))
    }
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// The cuts of the outermost range; `None` if it is too small.
    pub(super) fn cut(&self, workers: &Workers, keys: &mut LevelKeys) -> Result<Option<Cuts>, QueryError> {
        let Some((tree, range, direction)) = self.outermost(keys)? else { return Ok(None) };
        if self.view.entries_about(tree, range)?.is_none_or(|about| about < workers.entries_min()) {
            return Ok(None);
        }
        let mut keys = self.view.cuts(tree, range, (workers.threads_max() + 1) * PARTS_PER_THREAD)?;
        if direction == Direction::Backward {
            keys.reverse();
        }
        Ok(Some(Cuts { keys, direction }).filter(|cuts| cuts.parts() > 1))
    }

    fn outermost<'k>(&self, keys: &'k mut LevelKeys) -> Result<Option<(TreeId, KeyRange<'k>, Direction)>, QueryError> {
        let Some(level) = self.plan.levels.first() else { return Ok(None) };
        match &level.access {
            Access::Index { tree, equal, from, to, direction, .. } => {
                let some = self.index_bounds(equal, from.as_ref(), to.as_ref(), None, keys)?;
                Ok(some.then(|| (*tree, keys.index_range(), *direction)))
            }
            Access::Scan { from, to, direction } => {
                let low = self.scan_bound(from.as_ref(), level.key, None, &mut keys.from)?;
                let high = self.scan_bound(to.as_ref(), level.key, None, &mut keys.to)?;
                Ok(Some((level.tree, keys.document_range(low, high), *direction)))
            }
            _ => Ok(None),
        }
    }
}

impl<'e> Run<'e, dyn RowSink + 'e> {
    /// The run of one part, of which at most `keep` rows are wanted.
    pub(super) fn of_part(
        plan: &'e Plan,
        (fixed, view, budget): (&'e Fixed<'e>, &'e dyn ReadView, &'e Budget<'e>),
        memory: &'e mut RunMemory,
        sink: &'e mut (dyn RowSink + 'e),
        (part, keep): (Part<'e>, Option<usize>),
    ) -> Self {
        workspace::reset(&mut memory.arena, fixed.meter);
        let mut run = Run::new(plan, (fixed, view, budget), memory, sink);
        run.groups.next_arrival = part.first_arrival();
        run.wanted = keep.map_or(u64::MAX, |keep| keep as u64);
        run.part = Some(part);
        run.check_at = run.next_check(part.add_rows(0, 0));
        run
    }

    /// Collects the part's rows, and counts all that were read.
    pub(super) fn gather_part(&mut self) -> Result<(), QueryError> {
        ended(self.rows())?;
        ended(self.check_budget())
    }
}
