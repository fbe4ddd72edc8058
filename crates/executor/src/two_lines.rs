//! Two bounded lines of jobs in front of an executor of any model with a queue.
//!
//! For each job in a line the executor has one task, a turn. A turn does not belong to a certain job: it runs the first job of the line
//! that is next, and the lines alternate if jobs wait in both. So the order of the lines does not depend on the executor's model.
//!
//! In a line the clients take turns: a client with many jobs delays another client's job by one of them.

use crate::back_pressure::Refused;
use crate::containment::drop_contained;
use crate::coroutine::{Job, once};
use crate::executor::{Drained, Executor, ExecutorStartError};
use crate::metrics::ExecutorMetrics;
use crate::model_name::Model;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
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
/// In one line each client starts one job in turn, and its own jobs in the order of submission. A job waits for no more jobs of
/// the other line than its own position in its line. The guarantees of [`Executor`] hold for jobs too.
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
    jobs: [ClientJobs; 2],
    /// The line that is next.
    next: usize,
    /// Jobs refused because their line was full.
    refused: u64,
}

/// The jobs of one line.
#[derive(Default)]
struct ClientJobs {
    /// Clients with waiting jobs.
    by_client: HashMap<IpAddr, VecDeque<Job>>,
    /// The clients with waiting jobs, in the order of their turns.
    turns: VecDeque<IpAddr>,
    count: usize,
}

impl ClientJobs {
    fn push(&mut self, client: IpAddr, job: Job) {
        let jobs = self.by_client.entry(client).or_default();
        if jobs.is_empty() {
            self.turns.push_back(client);
        }
        jobs.push_back(job);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Job> {
        let client = self.turns.pop_front()?;
        let jobs = self.by_client.get_mut(&client)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            self.by_client.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.count -= 1;
        Some(job)
    }
}

impl Waiting {
    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job whose turn it is: the first of the line that is next, unless that line is empty.
    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        let line = if state.jobs[state.next].count == 0 { 1 - state.next } else { state.next };
        state.next = 1 - line;
        state.jobs[line].pop()
    }

    /// Drops all waiting jobs. A turn that begins after this finds no job, and ends.
    fn drop_all(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        jobs.into_iter().flat_map(|line| line.by_client.into_values().flatten()).for_each(drop_contained);
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

    /// Queues a job of a client in a line, or returns it at once.
    pub fn try_submit(&self, client: IpAddr, line: Line, job: Job) -> Result<(), Refused<Job>> {
        let line = line as usize;
        let waiting = Arc::clone(&self.waiting);
        let turn = once(move || {
            // None: a drain's deadline has passed, and the jobs are dropped.
            if let Some(job) = waiting.take() {
                job();
            }
        });
        let mut state = self.waiting.lock();
        if state.jobs[line].count >= self.waiting.limits[line] {
            state.refused += 1;
            return Err(Refused::Full(job));
        }
        // The turn may begin at once, and then waits for the lock.
        match self.executor.try_submit(turn) {
            Ok(()) => {
                state.jobs[line].push(client, job);
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
