//! A parallel scan into groups or a sort: each part is collected by itself, and the results are combined in the order of the
//! parts.
//!
//! One thread would give the same result, bit for bit. Groups are in the order in which they were first seen, each
//! with the fields of its first row; equal rows of a sort keep their order; sums are exact. If a part ends with an error, one
//! thread repeats the whole scan and ends where it would have ended alone.
//!
//! All parts count their rows and bytes against one budget.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cut::{Common, Cuts};
use super::morsels::{AHEAD_PER_THREAD, Morsels, PartScan};
use super::ordered::{Next, Ordered, Waits};
use super::part::Shared;
use super::run::{End, GROUP_OVERHEAD_BYTES, Groups, Run};
use super::spilling::share;
use super::workers::Taken;
use crate::engine::ReadView;
use crate::sql::expressions::aggregate::AggregateState;
use crate::sql::limits::{Meter, QueryError, ROW_UNITS, ROWS_READ, Tally};
use crate::sql::planning::Plan;
use crate::sql::rows::{NoRows, RowSink, Runs, Sorter};

/// The share of the memory for finished parts that wait, and for the combined result.
const WAITING: (usize, usize) = (1, 4);

/// The rows and groups of one part, or of all combined parts.
#[derive(Default)]
struct Gathered {
    groups: Groups,
    states: Vec<AggregateState>,
    sort: Sorter,
    /// Spilled groups.
    group_runs: Runs,
    /// Memory of the rows and groups in bytes; the counter that all threads share contains it.
    counted: usize,
}

/// Whether a plan's rows are collected into groups or a sort that can be computed in independent parts.
pub(super) fn is_gathered(plan: &Plan) -> bool {
    let gathers = plan.grouped || (!plan.order.is_empty() && !plan.distinct);
    let joins = plan.aggregates.iter().any(|call| call.kind.joins_texts());
    gathers && !joins
}

impl<S: RowSink + ?Sized> Run<'_, S> {
    /// Scans with several threads and collects the groups, or the rows of the sort. Returns false if it did nothing.
    pub(super) fn gather_parts(
        &mut self,
        cuts: &Cuts,
        taken: &Taken<'_>,
        view: &(dyn ReadView + Sync),
    ) -> Result<bool, End> {
        let (plan, budget, keep) = (self.plan, self.budget, self.keep());
        let Some(fixed) = Common::of(plan, self.fixed) else { return Ok(false) };
        let shared = Shared::after(self.tally.map_or(0, Tally::rows));
        // The consumer waits for nobody, so helpers wait for it: few parts are held at a time.
        let ahead_max = (taken.count() + 1) * AHEAD_PER_THREAD;
        let ordered = Ordered::new(cuts.parts(), ahead_max, usize::MAX, Duration::MAX);
        let morsels = Morsels {
            plan,
            fixed,
            view,
            budget,
            cuts,
            keep,
            takes_infinite: false,
            shared,
            ordered,
            scan: Gathered::scan,
            takes_meanwhile: false,
        };
        let (mut whole, mut rows_read, mut failed) = (Gathered::default(), 0, None);
        let flow = morsels.run(taken, false, &mut |next| {
            match next {
                Next::Found(part) => failed = whole.combine(part, &morsels).err(),
                Next::Ended(read) => rows_read += read,
                Next::Failed(_, error) => failed = Some(error),
                Next::Nothing => {}
            }
            if failed.is_some() { Err(End::Enough) } else { Ok(()) }
        });
        // After a failure, one thread starts again and ends where it would have ended alone. Several threads hold more memory
        // at once than one, and only a thread that reads row by row finds the limit or error that comes first. If rows cannot
        // fail, exceeding the row limit is the first error in any case.
        match failed {
            Some(error @ QueryError::Deadline) => return Err(error.into()),
            Some(error @ QueryError::Limit { what: ROWS_READ, .. }) if !plan.rows_may_fail() => {
                return Err(error.into());
            }
            Some(_) => return Ok(false),
            None => flow?,
        }
        self.outcome.rows_read += rows_read;
        self.groups = whole.groups;
        if plan.grouped {
            *self.states = whole.states;
        }
        (*self.sort, *self.group_runs) = (whole.sort, whole.group_runs);
        Ok(true)
    }
}

impl Waits for Gathered {
    /// Parts that wait are bounded by their number and by spilling, not by the bytes in the window.
    fn bytes(&self) -> usize {
        0
    }
}

impl Gathered {
    /// Collects a part.
    fn scan(morsels: &Morsels<'_, Gathered>, part: PartScan<'_>) {
        let PartScan { number, fixed, memory, turn } = part;
        // The rows are collected in the memory, and none is passed on.
        let mut sink = NoRows;
        let mut run = morsels.run_of((number, turn), fixed, memory, &mut sink);
        let scanned = run.gather_part();
        let (groups, read, counted) = (std::mem::take(&mut run.groups), run.outcome.rows_read, run.counted.1.get());
        let (states, sort) = (std::mem::take(&mut memory.states), std::mem::take(&mut memory.sort));
        let mut part = Gathered { groups, states, sort, group_runs: std::mem::take(&mut memory.group_runs), counted };
        let scanned = scanned.and_then(|()| part.complete(morsels, fixed.meter));
        let found = part.take();
        if scanned.is_ok() {
            morsels.ordered.put(number, found);
        }
        // The next part spills into the same files.
        (memory.sort, memory.group_runs) = (part.sort, part.group_runs);
        morsels.end(number, read, scanned);
    }

    /// Takes all rows and groups; later ones are spilled into the same files.
    fn take(&mut self) -> Gathered {
        let (groups, states) = (std::mem::take(&mut self.groups), std::mem::take(&mut self.states));
        let (sort, group_runs) = (self.sort.take(), self.group_runs.take());
        Gathered { groups, states, sort, group_runs, counted: self.counted }
    }

    /// Completes a part, which may have to wait for earlier ones.
    fn complete(&mut self, morsels: &Morsels<'_, Gathered>, meter: &Meter<'_>) -> Result<(), QueryError> {
        if morsels.shared.bytes.load(Ordering::Relaxed) > share(morsels.budget, WAITING) {
            self.spill(morsels)?;
        }
        Ok(self.sort.buffer().sort(meter)?)
    }

    /// Writes the rows and groups to disk, if allowed.
    fn spill(&mut self, morsels: &Morsels<'_, Gathered>) -> Result<(), QueryError> {
        let (plan, budget) = (morsels.plan, morsels.budget);
        if budget.spill.is_none() {
            return Ok(());
        }
        self.sort.spill(morsels.keep, budget)?;
        if plan.grouped {
            self.groups.spill(plan, &mut self.states, &mut self.group_runs, budget)?;
        }
        morsels.shared.count_bytes(self.counted, 0);
        self.counted = 0;
        Ok(())
    }

    /// Combines the parts so far with the next one.
    fn combine(&mut self, part: Gathered, morsels: &Morsels<'_, Gathered>) -> Result<(), QueryError> {
        if part.sort.is_spilled() || !part.group_runs.is_empty() {
            // Runs on disk are in the order of the parts: the combined rows are written before the runs of this later part.
            self.spill(morsels)?;
        }
        let counted = self.counted + part.counted;
        self.add(part, morsels.plan, morsels.keep, &Meter::new(morsels.budget))?;
        self.counted = self.groups.bytes + self.sort.size();
        morsels.shared.count_bytes(counted, self.counted);
        if self.counted > share(morsels.budget, WAITING) { self.spill(morsels) } else { Ok(()) }
    }

    /// Appends a part.
    fn add(&mut self, part: Gathered, plan: &Plan, keep: Option<usize>, meter: &Meter<'_>) -> Result<(), QueryError> {
        self.group_runs.append(part.group_runs);
        self.sort.append(part.sort, keep, meter)?;
        let width = plan.aggregates.len();
        if plan.group.is_empty() {
            self.states.resize_with(width.max(self.states.len()), AggregateState::default);
            self.groups.bytes += add_states(&mut self.states, part.states, plan, meter)?;
            return Ok(());
        }
        // Sorts the keys by their groups' positions. Each position belongs to one key.
        let mut keys = vec![Box::default(); part.groups.places.len()];
        for (key, place) in part.groups.places {
            meter.tick(1)?;
            keys[place] = key;
        }
        let mut states = part.states.into_iter();
        let arrived = part.groups.fields.into_iter().zip(part.groups.arrivals);
        let apiece =
            plan.aggregates.iter().map(|call| AggregateState::bytes(call.kind)).sum::<usize>() + GROUP_OVERHEAD_BYTES;
        for (key, (fields, arrival)) in keys.into_iter().zip(arrived) {
            meter.tick(ROW_UNITS)?;
            let own: Vec<AggregateState> = states.by_ref().take(width).collect();
            match self.groups.places.get(&key) {
                Some(&place) => {
                    let grown = add_states(&mut self.states[place * width..(place + 1) * width], own, plan, meter)?;
                    self.groups.bytes += grown;
                }
                None => {
                    self.groups.bytes += key.len() + fields.len() + apiece;
                    self.groups.bytes += own.iter().map(AggregateState::rare_bytes).sum::<usize>();
                    self.groups.places.insert(key, self.groups.fields.len());
                    self.groups.fields.push(fields);
                    self.groups.arrivals.push(arrival);
                    self.states.extend(own);
                }
            }
        }
        Ok(())
    }
}

/// Returns how many more bytes they hold.
fn add_states(
    into: &mut [AggregateState],
    states: Vec<AggregateState>,
    plan: &Plan,
    meter: &Meter<'_>,
) -> Result<usize, QueryError> {
    let all = into.iter_mut().zip(states).zip(&plan.aggregates);
    let grown: Result<usize, _> = all.map(|((into, state), call)| into.add_part(state, call, meter)).sum();
    Ok(grown?)
}
