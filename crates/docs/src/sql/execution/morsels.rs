//! The scheduler of scans by several threads: the outermost range is cut into parts (morsels), and each thread scans one part at
//! a time.
//!
//! The query's own thread is the consumer: it takes what is found in the order of the parts (`ordered.rs`) and reduces it, while
//! helpers scan on. If nothing is ready, it scans a part itself. So a reduction sees the rows in the order of one thread:
//! groups and sorts (`gathered.rs`), plain lists and DISTINCT (`lists.rs`).

use std::cell::RefCell;

use super::cut::{Common, Cuts};
use super::ordered::{ConsumerStep, End as PartEnd, Next, Ordered, Waits};
use super::part::{Part, Shared};
use super::run::{End, Flow, Run, RunMemory};
use super::workers::Taken;
use crate::engine::ReadView;
use crate::sql::expressions::Fixed;
use crate::sql::limits::{Budget, Meter, QueryError};
use crate::sql::planning::Plan;
use crate::sql::rows::RowSink;

/// Parts that each thread may be ahead of the consumer, if the consumer may end the scan or what is found takes much memory.
pub(super) const AHEAD_PER_THREAD: usize = 2;

/// Called by the consumer while it scans a part: takes what is ready. Returns false if nothing more is wanted.
pub(super) type Turn<'t> = &'t dyn Fn() -> bool;

/// What the threads of one execution share. `F` is what they find.
pub(super) struct Morsels<'j, F> {
    pub(super) plan: &'j Plan,
    pub(super) fixed: Common<'j>,
    pub(super) view: &'j (dyn ReadView + Sync),
    pub(super) budget: &'j Budget<'j>,
    pub(super) cuts: &'j Cuts,
    /// Rows that are wanted of each part, including those that OFFSET skips.
    pub(super) keep: Option<usize>,
    /// [`RowSink::takes_infinite`] of the execution's sink.
    pub(super) takes_infinite: bool,
    pub(super) shared: Shared,
    pub(super) ordered: Ordered<F>,
    /// Scans a part, puts what it finds into `ordered`, in pieces of any number, and ends the part.
    pub(super) scan: fn(&Morsels<'_, F>, PartScan<'_>),
    /// The consumer takes what is ready while it scans, not only between parts.
    pub(super) takes_meanwhile: bool,
}

/// The scan of a part by one thread.
pub(super) struct PartScan<'p> {
    pub(super) number: usize,
    pub(super) fixed: &'p Fixed<'p>,
    pub(super) memory: &'p mut RunMemory,
    /// Present on the consumer's thread if it takes what is ready meanwhile.
    pub(super) turn: Option<Turn<'p>>,
}

/// The consumer: reduces what it takes until its end.
struct Consumer<'c, F> {
    reduce: &'c mut dyn FnMut(Next<F>) -> Flow,
    end: Option<End>,
}

impl<F: Waits> Consumer<'_, F> {
    /// Takes what is ready. Returns false at the end.
    fn turn(&mut self, ordered: &Ordered<F>) -> bool {
        while self.end.is_none() {
            match ordered.next() {
                Next::Nothing => return true,
                next => self.end = (self.reduce)(next).err(),
            }
        }
        false
    }
}

/// Stops the other threads when the consumer ends in any way, or when a helper panics.
struct Stops<'o, F: Waits> {
    ordered: &'o Ordered<F>,
    is_helper: bool,
}

impl<F: Waits> Drop for Stops<'_, F> {
    fn drop(&mut self) {
        if !self.is_helper || std::thread::panicking() {
            self.ordered.stop();
        }
    }
}

impl<F: Waits + Send> Morsels<'_, F> {
    /// Scans all parts; `reduce` gets what is found, in the order of the parts. `first_alone`: helpers start after the first
    /// part.
    pub(super) fn run(&self, taken: &Taken<'_>, first_alone: bool, reduce: &mut dyn FnMut(Next<F>) -> Flow) -> Flow {
        std::thread::scope(|scope| {
            let _stops = Stops { ordered: &self.ordered, is_helper: false };
            self.consume(first_alone, reduce, || taken.spawn(scope, self.cuts.parts() - 1, move || self.help()))
        })
    }

    /// Scans parts until none is left.
    fn help(&self) {
        let _stops = Stops { ordered: &self.ordered, is_helper: true };
        let mut memory = RunMemory::default();
        while let Some(number) = self.ordered.claim() {
            self.part(number, &mut memory, None);
        }
    }

    fn part(&self, number: usize, memory: &mut RunMemory, turn: Option<Turn<'_>>) {
        let (caches, meter) = (self.fixed.caches(), Meter::new(self.budget));
        (self.scan)(self, PartScan { number, fixed: &self.fixed.fixed(&caches, &meter), memory, turn });
    }

    fn consume(&self, first_alone: bool, reduce: &mut dyn FnMut(Next<F>) -> Flow, help: impl FnOnce()) -> Flow {
        let consumer = RefCell::new(Consumer { reduce, end: None });
        let turn = || consumer.borrow_mut().turn(&self.ordered);
        let (mut memory, mut help) = (RunMemory::default(), Some(help));
        loop {
            if !turn() {
                return consumer.into_inner().end.map_or(Ok(()), Err);
            }
            if !first_alone || self.ordered.given() > 0 {
                help.take().into_iter().for_each(|help| help());
            }
            match self.ordered.consumer_step() {
                ConsumerStep::Read(number) => {
                    let turn: Option<Turn<'_>> = if self.takes_meanwhile { Some(&turn) } else { None };
                    self.part(number, &mut memory, turn);
                }
                ConsumerStep::Retry if self.budget.deadline.is_some_and(|over| over()) => {
                    return Err(QueryError::Deadline.into());
                }
                ConsumerStep::Retry => {}
                ConsumerStep::Done => return Ok(()),
            }
        }
    }

    /// The run of a part.
    pub(super) fn run_of<'r>(
        &'r self,
        (number, turn): (usize, Option<Turn<'r>>),
        fixed: &'r Fixed<'r>,
        memory: &'r mut RunMemory,
        sink: &'r mut (dyn RowSink + 'r),
    ) -> Run<'r, dyn RowSink + 'r> {
        let part = Part { turn, ..self.cuts.part(number, &self.shared) };
        Run::of_part(self.plan, (fixed, self.view, self.budget), memory, sink, (part, self.keep))
    }

    /// Records the end of a part, in which `read` rows were read.
    pub(super) fn end(&self, number: usize, read: u64, found: Result<(), QueryError>) {
        let end = match found {
            Ok(()) => PartEnd::Complete(read),
            Err(error) => {
                self.shared.want_only_before(number);
                PartEnd::Failed(read, error)
            }
        };
        self.ordered.end(number, end);
    }
}
