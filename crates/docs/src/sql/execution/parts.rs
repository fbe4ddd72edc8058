//! A parallel scan into groups or a sort: the range is cut into parts, each is processed by itself, and the results are
//! combined in the order of the parts.
//!
//! The result is identical to that of one thread, to the last bit. Groups are in the order in which they were first seen, each
//! with the fields of its first row; equal rows of a sort keep their order; sums are exact. If a part ends with an error, one
//! thread repeats the whole scan and ends where it would have ended alone.
//!
//! Parts are taken in order. Each is combined as soon as all parts before it are, so few of them wait. All parts count their
//! rows and bytes against one budget.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cut::{Common, Cuts};
use super::lists;
use super::part::{OfPart, Shared};
use super::run::{End, GROUP_OVERHEAD_BYTES, Groups, LevelKeys, Run, Scratch};
use super::spilling::{share, write_groups};
use super::workers::{Taken, Workers};
use crate::engine::View;
use crate::sql::expressions::Fixed;
use crate::sql::expressions::aggregate::State;
use crate::sql::limits::{Budget, Meter, QueryError, ROW_UNITS, ROWS_READ, Tally};
use crate::sql::planning::Plan;
use crate::sql::rows::{RowSink, Spilled};
use crate::sql::values::SortBuffer;

/// The share of the memory for finished parts that wait, and for the combined result.
const WAITING: (usize, usize) = (1, 4);

/// The rows and groups of one part, or of all combined parts.
#[derive(Default)]
struct Gathered {
    groups: Groups,
    states: Vec<State>,
    sort: SortBuffer,
    /// Spilled runs of earlier rows.
    spilled: Spilled,
    rows_read: u64,
    /// The bytes of these rows and groups that the shared counter includes.
    counted: usize,
}

/// The combined parts, and those that wait for an earlier one.
#[derive(Default)]
struct Together {
    next: usize,
    whole: Gathered,
    waiting: BTreeMap<usize, Gathered>,
    failed: Option<(usize, QueryError)>,
    /// Spill files into which the combined result is written.
    lent: Spilled,
}

/// What the threads of one execution share.
struct Job<'j> {
    plan: &'j Plan,
    fixed: Common<'j>,
    view: &'j (dyn View + Sync),
    budget: &'j Budget<'j>,
    cuts: &'j Cuts,
    /// Sorted rows that are wanted, including those that OFFSET skips.
    keep: Option<usize>,
    shared: Shared,
    next: AtomicUsize,
    together: Mutex<Together>,
}

/// Whether a plan's rows are collected into groups or a sort that can be computed in independent parts.
fn is_gathered(plan: &Plan) -> bool {
    let gathers = plan.grouped || (!plan.order.is_empty() && !plan.distinct);
    let joins = plan.aggregates.iter().any(|call| call.kind.joins_texts());
    gathers && !joins
}

/// Whether a plan's rows, of which `keep` are wanted, are scanned in parts if there are enough.
pub(in crate::sql) fn is_partible(plan: &Plan, keep: Option<usize>, workers: &Workers) -> bool {
    // If the wanted rows come first, rows scanned by other threads would be unused.
    let comes_first = keep.is_some() && plan.sorted_by > 0;
    plan.is_ranged() && !comes_first && (is_gathered(plan) || lists::is_listed(plan, keep, workers))
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// Scans with several threads. Returns false if it did nothing; then one thread must scan.
    pub(super) fn rows_in_parts(&mut self, workers: &Workers) -> Result<bool, End> {
        if !is_partible(self.plan, self.keep(), workers) {
            return Ok(false);
        }
        let view = self.view;
        let Some(across) = view.across() else { return Ok(false) };
        let mut keys = self.levels.first_mut().map(std::mem::take).unwrap_or_default();
        let cut = self.cut(workers, &mut keys);
        if let Some(place) = self.levels.first_mut() {
            *place = keys;
        }
        let Some(cuts) = cut? else { return Ok(false) };
        let taken = workers.take();
        if taken.count() == 0 {
            return Ok(false);
        }
        if is_gathered(self.plan) {
            self.gather_parts(&cuts, &taken, &*across)
        } else {
            self.list(&cuts, &taken, &*across)
        }
    }

    fn gather_parts(&mut self, cuts: &Cuts, taken: &Taken<'_>, view: &(dyn View + Sync)) -> Result<bool, End> {
        let Some(fixed) = Common::of(self.plan, self.fixed) else { return Ok(false) };
        let job = Job {
            plan: self.plan,
            fixed,
            view,
            budget: self.budget,
            cuts,
            keep: self.keep(),
            shared: Shared::after(self.tally.map_or(0, Tally::rows)),
            next: AtomicUsize::new(0),
            together: Mutex::default(),
        };
        std::thread::scope(|scope| {
            let job = &job;
            taken.spawn(scope, cuts.parts() - 1, move || job.work());
            job.work();
        });
        let together = job.together.into_inner().unwrap_or_else(PoisonError::into_inner);
        // After a failure, one thread starts again and ends where it would have ended alone. Several threads hold more memory
        // at once than one, and only a thread that reads row by row finds the limit or error that comes first. If rows cannot
        // fail, exceeding the row limit is the first error in any case.
        match together.failed {
            Some((_, error @ QueryError::Deadline)) => return Err(error.into()),
            Some((_, error @ QueryError::Limit { what: ROWS_READ, .. })) if !self.plan.rows_may_fail() => {
                return Err(error.into());
            }
            Some(_) => return Ok(false),
            None => {}
        }
        let whole = together.whole;
        self.outcome.rows_read += whole.rows_read;
        self.groups = whole.groups;
        if self.plan.grouped {
            *self.states = whole.states;
        }
        *self.sort = whole.sort;
        if !whole.spilled.is_empty() {
            self.spilled = Some(Box::new(whole.spilled));
        }
        Ok(true)
    }
}

impl Job<'_> {
    /// Processes parts until none is left.
    fn work(&self) {
        let (mut scratch, mut spilled) = (Scratch::default(), Spilled::default());
        scratch.levels.resize_with(self.plan.levels.len(), LevelKeys::default);
        let (caches, meter) = (self.fixed.caches(), Meter::new(self.budget));
        let fixed = self.fixed.fixed(&caches, &meter);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.cuts.parts() || self.shared.is_unwanted(number) {
                return;
            }
            let gathered = self.part(number, &fixed, &mut scratch, &mut spilled);
            if let Err(error) = gathered.and_then(|gathered| self.put(number, gathered)) {
                self.fail(number, error);
            }
        }
    }

    /// Processes one part. `spilled` has the spill files of this thread.
    fn part(
        &self,
        number: usize,
        fixed: &Fixed<'_>,
        scratch: &mut Scratch,
        spilled: &mut Spilled,
    ) -> Result<Gathered, QueryError> {
        let part = self.cuts.part(number, &self.shared);
        let sink = &mut OfPart;
        let mut run = Run::of_part(self.plan, fixed, self.view, self.budget, scratch, sink, (part, self.keep));
        run.spilled = self.budget.spill.map(|_| Box::new(std::mem::take(spilled)));
        run.gather_part()?;
        let (groups, rows_read, counted) =
            (std::mem::take(&mut run.groups), run.outcome.rows_read, run.counted.1.get());
        *spilled = run.spilled.take().map_or_else(Spilled::default, |spilled| *spilled);
        let (states, sort) = (std::mem::take(&mut scratch.states), std::mem::take(&mut scratch.sort));
        let mut gathered = Gathered { groups, states, sort, spilled: spilled.take(), rows_read, counted };
        // It may have to wait for earlier parts.
        if self.shared.bytes.load(Ordering::Relaxed) > share(self.budget, WAITING) {
            self.spill(&mut gathered, spilled)?;
        }
        gathered.sort.sort(fixed.meter)?;
        Ok(gathered)
    }

    /// Spills the rows and groups, if allowed, into the files of `lent`.
    fn spill(&self, gathered: &mut Gathered, lent: &mut Spilled) -> Result<(), QueryError> {
        if self.budget.spill.is_none() {
            return Ok(());
        }
        lent.sorted.write(&mut gathered.sort, self.keep, self.budget)?;
        if self.plan.grouped {
            write_groups(self.plan, &mut gathered.groups, &mut gathered.states, &mut lent.grouped, self.budget)?;
        }
        gathered.spilled.append(lent.take());
        self.shared.count_bytes(gathered.counted, 0);
        gathered.counted = 0;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Together> {
        // A panic while parts are combined is propagated to the caller, which discards the combined parts.
        self.together.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, number: usize, error: QueryError) {
        let mut together = self.lock();
        self.shared.want_only_before(number);
        if together.failed.as_ref().is_none_or(|(first, _)| number < *first) {
            together.failed = Some((number, error));
        }
    }

    fn put(&self, number: usize, gathered: Gathered) -> Result<(), QueryError> {
        let mut guard = self.lock();
        let Together { next, whole, waiting, lent, .. } = &mut *guard;
        waiting.insert(number, gathered);
        while let Some(part) = waiting.remove(next) {
            *next += 1;
            if !part.spilled.is_empty() {
                // The combined rows precede those of the part, so they must precede them on disk too.
                self.spill(whole, lent)?;
            }
            let counted = whole.counted + part.counted;
            whole.add(part, self.plan, self.keep, &Meter::new(self.budget))?;
            whole.counted = whole.groups.bytes + whole.sort.size();
            self.shared.count_bytes(counted, whole.counted);
            if whole.counted > share(self.budget, WAITING) {
                self.spill(whole, lent)?;
            }
        }
        Ok(())
    }
}

impl Gathered {
    /// Appends a part.
    fn add(&mut self, part: Gathered, plan: &Plan, keep: Option<usize>, meter: &Meter<'_>) -> Result<(), QueryError> {
        self.rows_read += part.rows_read;
        self.spilled.append(part.spilled);
        self.sort.append(part.sort, keep, meter)?;
        let width = plan.aggregates.len();
        if plan.group.is_empty() {
            self.states.resize_with(width.max(self.states.len()), State::default);
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
        let apiece = plan.aggregates.iter().map(|call| State::bytes(call.kind)).sum::<usize>() + GROUP_OVERHEAD_BYTES;
        for (key, (fields, arrival)) in keys.into_iter().zip(arrived) {
            meter.tick(ROW_UNITS)?;
            let own: Vec<State> = states.by_ref().take(width).collect();
            match self.groups.places.get(&key) {
                Some(&place) => {
                    let grown = add_states(&mut self.states[place * width..(place + 1) * width], own, plan, meter)?;
                    self.groups.bytes += grown;
                }
                None => {
                    self.groups.bytes += key.len() + fields.len() + apiece;
                    self.groups.bytes += own.iter().map(State::rare_bytes).sum::<usize>();
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
fn add_states(into: &mut [State], states: Vec<State>, plan: &Plan, meter: &Meter<'_>) -> Result<usize, QueryError> {
    let all = into.iter_mut().zip(states).zip(&plan.aggregates);
    let grown: Result<usize, _> = all.map(|((into, state), call)| into.add_part(state, call, meter)).sum();
    Ok(grown?)
}
