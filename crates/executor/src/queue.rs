//! The queue between those who submit jobs and the threads that run them.
//!
//! Invariants: at most `limits` jobs wait in each line; `running` jobs were taken and not given back as ended; once closed, no job is
//! taken in, and a thread that finds it empty ends.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A job was not taken; it comes back to the caller.
pub enum Refused<J> {
    /// The queue holds as many jobs as it may: try later, or answer "busy".
    Full(J),
    /// The pool is going down and takes no more.
    Draining(J),
}

impl<J> Refused<J> {
    /// The job.
    pub fn into_job(self) -> J {
        match self {
            Self::Full(job) | Self::Draining(job) => job,
        }
    }
}

impl<J> fmt::Debug for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Draining(_) => "Draining",
        })
    }
}

impl<J> fmt::Display for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the queue of blocking work is full",
            Self::Draining(_) => "the pool for blocking work is draining",
        })
    }
}

impl<J> std::error::Error for Refused<J> {}

/// Where a job waits. The lines take turns where jobs wait in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The usual one.
    First,
    /// That of jobs which may be many.
    Second,
}

struct State<J> {
    /// By line.
    waiting: [VecDeque<J>; 2],
    /// The line whose turn it is.
    turn: usize,
    running: usize,
    closed: bool,
}

impl<J> State<J> {
    /// The job that comes next: of the line whose turn it is, unless that is empty.
    fn next(&mut self) -> Option<J> {
        let line = if self.waiting[self.turn].is_empty() { 1 - self.turn } else { self.turn };
        let job = self.waiting[line].pop_front()?;
        self.turn = 1 - line;
        Some(job)
    }

    fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }
}

pub(crate) struct Queue<J> {
    limits: [usize; 2],
    state: Mutex<State<J>>,
    /// Signalled for each job that comes in, and to all when the queue closes.
    job_came: Condvar,
    /// Signalled when nothing waits and nothing runs.
    idle: Condvar,
}

impl<J> Queue<J> {
    pub(crate) fn new(limits: [usize; 2]) -> Self {
        let state = State { waiting: [VecDeque::new(), VecDeque::new()], turn: 0, running: 0, closed: false };
        Self { limits, state: Mutex::new(state), job_came: Condvar::new(), idle: Condvar::new() }
    }

    /// No foreign code runs under the lock, so a poisoned one still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, line: Line, job: J) -> Result<(), Refused<J>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Draining(job));
        }
        let line = line as usize;
        if state.waiting[line].len() >= self.limits[line] {
            return Err(Refused::Full(job));
        }
        state.waiting[line].push_back(job);
        drop(state);
        self.job_came.notify_one();
        Ok(())
    }

    /// The next job, which counts as running until [`ended`](Self::ended); `None` when closed and empty.
    pub(crate) fn take(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.next() {
                state.running += 1;
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.job_came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A job that was taken has ended.
    pub(crate) fn ended(&self) {
        let mut state = self.lock();
        state.running -= 1;
        if state.running == 0 && state.is_empty() {
            self.idle.notify_all();
        }
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.job_came.notify_all();
    }

    /// Waits until nothing waits or runs, or `deadline`; gives whether it came to that.
    pub(crate) fn wait_idle(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while state.running > 0 || !state.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.idle.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Takes out all that wait. The caller drops them outside the lock: their drop is foreign code.
    pub(crate) fn take_waiting(&self) -> [VecDeque<J>; 2] {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        if state.running == 0 {
            self.idle.notify_all();
        }
        waiting
    }

    /// How many wait, and how many run.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.iter().map(VecDeque::len).sum(), state.running)
    }
}
