//! Two bounded lines of jobs in front of an executor of any model with a queue.
//!
//! For each job in a line the executor has one task, a turn. A turn does not belong to a certain job: it runs the oldest job of the line
//! that is next, and the lines alternate if jobs wait in both. So the order of the lines does not depend on the executor's model.

use crate::back_pressure::Refused;
use crate::containment::drop_contained;
use crate::coroutine::{Job, once};
use crate::executor::{Drained, Executor, ExecutorStartError};
use crate::metrics::ExecutorMetrics;
use crate::model_name::Model;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The line in which a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The usual line.
    First,
    /// The line for jobs that may be numerous.
    Second,
}

/// An executor behind two lines.
///
/// Jobs of one line start in the order of submission. A job waits for no more jobs of the other line than its own position in its
/// line. The guarantees of [`Executor`] hold for jobs too.
pub struct TwoLines {
    executor: Box<dyn Executor>,
    waiting: Arc<Waiting>,
}

struct Waiting {
    /// Largest number of waiting jobs, by line.
    limits: [usize; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Indexed by line.
    jobs: [VecDeque<Job>; 2],
    /// The line that is next.
    next: usize,
    /// Jobs refused because their line was full.
    refused: u64,
}

impl Waiting {
    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job whose turn it is: the oldest of the line that is next, unless that line is empty.
    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        let line = if state.jobs[state.next].is_empty() { 1 - state.next } else { state.next };
        state.next = 1 - line;
        state.jobs[line].pop_front()
    }

    /// Drops all waiting jobs. A turn that begins after this finds no job, and ends.
    fn drop_all(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        jobs.into_iter().flatten().for_each(drop_contained);
    }
}

impl TwoLines {
    /// Starts an executor of this model behind two lines, each with its largest number of waiting jobs. The name is the executor's in
    /// the log and in the names of its threads. The model must have a queue; [`Model::Inline`] would run a turn before its job is there.
    pub fn start(model: Model, name: &str, limits: [usize; 2]) -> Result<TwoLines, ExecutorStartError> {
        debug_assert!(model != Model::Inline, "the submitter would wait for itself");
        let executor = model.start(name, limits[0].saturating_add(limits[1]))?;
        Ok(TwoLines { executor, waiting: Arc::new(Waiting { limits, state: Mutex::default() }) })
    }

    /// Queues a job in a line, or returns it at once.
    pub fn try_submit(&self, line: Line, job: Job) -> Result<(), Refused<Job>> {
        let line = line as usize;
        let waiting = Arc::clone(&self.waiting);
        let turn = once(move || {
            // None: a drain's deadline has passed, and the jobs are dropped.
            if let Some(job) = waiting.take() {
                job();
            }
        });
        let mut state = self.waiting.lock();
        if state.jobs[line].len() >= self.waiting.limits[line] {
            state.refused += 1;
            return Err(Refused::Full(job));
        }
        // The turn may begin at once, and then waits for the lock.
        match self.executor.try_submit(turn) {
            Ok(()) => {
                state.jobs[line].push_back(job);
                Ok(())
            }
            Err(Refused::Full(_)) => Err(Refused::Full(job)),
            Err(Refused::Draining(_)) => Err(Refused::Draining(job)),
        }
    }

    /// Takes no more jobs and waits for those taken ([`Executor::drain`]). At `deadline`, jobs that have not begun are dropped.
    pub fn drain(&self, deadline: Instant) -> Drained {
        let drained = self.executor.drain(deadline);
        self.waiting.drop_all();
        drained
    }

    /// The current counters.
    pub fn metrics(&self) -> ExecutorMetrics {
        let refused = self.waiting.lock().refused;
        let metrics = self.executor.metrics();
        ExecutorMetrics { refused: metrics.refused + refused, ..metrics }
    }
}

impl Drop for TwoLines {
    /// Drops the waiting jobs; the executor is dropped next, and waits for the running ones.
    fn drop(&mut self) {
        self.waiting.drop_all();
    }
}
