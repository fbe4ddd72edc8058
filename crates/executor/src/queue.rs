//! The queue between submitters of jobs and the threads that run them.
//!
//! Invariants: at most `limits` jobs wait in each line; `running` jobs were taken and not reported as ended; once closed, no job
//! is accepted, and a thread that finds it empty ends. A condition variable is signalled only while a thread waits for it,
//! because each signal is a system call.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A job was rejected; it is returned to the caller.
pub enum Refused<J> {
    /// The queue is full: try later, or answer "busy".
    Full(J),
    /// The pool is draining and takes no more jobs.
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

/// The line in which a job waits. The lines alternate if jobs wait in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The usual line.
    First,
    /// The line for jobs that may be numerous.
    Second,
}

struct State<J> {
    /// Indexed by line.
    waiting: [VecDeque<J>; 2],
    /// The line that is next.
    turn: usize,
    running: usize,
    closed: bool,
    /// Threads that wait for a job.
    idle: usize,
    /// Submitters that wait for room, by line.
    waiting_for_room: [usize; 2],
    /// Threads that wait until all jobs have ended.
    waiting_for_end: usize,
}

impl<J> State<J> {
    /// The next job and its line: the line that is next, unless it is empty.
    fn next(&mut self) -> Option<(J, usize)> {
        let line = if self.waiting[self.turn].is_empty() { 1 - self.turn } else { self.turn };
        let job = self.waiting[line].pop_front()?;
        self.turn = 1 - line;
        Some((job, line))
    }

    fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }
}

pub(crate) struct Queue<J> {
    limits: [usize; 2],
    state: Mutex<State<J>>,
    /// Signalled for each job that arrives, and to all when the queue closes.
    job_came: Condvar,
    /// Signalled when a line has fallen to three quarters of its limit, and when the queue closes.
    room: Condvar,
    /// Signalled when no job waits or runs.
    all_ended: Condvar,
}

impl<J> Queue<J> {
    pub(crate) fn new(limits: [usize; 2]) -> Self {
        let state = State {
            waiting: [VecDeque::new(), VecDeque::new()],
            turn: 0,
            running: 0,
            closed: false,
            idle: 0,
            waiting_for_room: [0, 0],
            waiting_for_end: 0,
        };
        let (job_came, room, all_ended) = (Condvar::new(), Condvar::new(), Condvar::new());
        Self { limits, state: Mutex::new(state), job_came, room, all_ended }
    }

    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `form(value)`, or returns the value.
    pub(crate) fn push<T>(&self, line: Line, value: T, form: impl FnOnce(T) -> J) -> Result<(), Refused<T>> {
        let state = self.lock();
        if state.closed {
            return Err(Refused::Draining(value));
        }
        if self.is_full(&state, line) {
            return Err(Refused::Full(value));
        }
        self.put(state, line, form(value));
        Ok(())
    }

    /// The same, after waiting for room.
    pub(crate) fn push_waiting<T>(&self, line: Line, value: T, form: impl FnOnce(T) -> J) -> Result<(), Refused<T>> {
        let mut state = self.lock();
        while !state.closed && self.is_full(&state, line) {
            state.waiting_for_room[line as usize] += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_room[line as usize] -= 1;
        }
        if state.closed {
            return Err(Refused::Draining(value));
        }
        self.put(state, line, form(value));
        Ok(())
    }

    fn is_full(&self, state: &State<J>, line: Line) -> bool {
        state.waiting[line as usize].len() >= self.limits[line as usize]
    }

    fn put(&self, mut state: MutexGuard<'_, State<J>>, line: Line, job: J) {
        state.waiting[line as usize].push_back(job);
        let is_awaited = state.idle > 0;
        drop(state);
        if is_awaited {
            self.job_came.notify_one();
        }
    }

    /// The next job, which counts as running until its thread calls again with `has_ended`. `None`: closed and empty.
    pub(crate) fn take(&self, has_ended: bool) -> Option<J> {
        let mut state = self.lock();
        if has_ended {
            self.count_ended(&mut state);
        }
        loop {
            if let Some((job, line)) = state.next() {
                state.running += 1;
                if state.waiting_for_room[line] > 0 && self.has_room_again(&state, line) {
                    self.room.notify_all();
                }
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.job_came.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Whether a line has fallen so far that submitters are woken: waking one for each job would cost two context switches for
    /// each.
    fn has_room_again(&self, state: &State<J>, line: usize) -> bool {
        state.waiting[line].len() <= low_water(self.limits[line])
    }

    fn count_ended(&self, state: &mut State<J>) {
        state.running -= 1;
        self.tell_if_all_ended(state);
    }

    fn tell_if_all_ended(&self, state: &State<J>) {
        if state.running == 0 && state.waiting_for_end > 0 && state.is_empty() {
            self.all_ended.notify_all();
        }
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.job_came.notify_all();
        self.room.notify_all();
    }

    /// Waits until no job waits or runs, or for `deadline`; returns whether none is left.
    pub(crate) fn wait_idle(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while state.running > 0 || !state.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.waiting_for_end += 1;
            state = self.all_ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting_for_end -= 1;
        }
        true
    }

    /// Removes all waiting jobs. The caller drops them outside the lock, because their drop is foreign code.
    pub(crate) fn take_waiting(&self) -> [VecDeque<J>; 2] {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        self.tell_if_all_ended(&state);
        waiting
    }

    /// Number of waiting jobs, and number of running ones.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.iter().map(VecDeque::len).sum(), state.running)
    }
}

/// Three quarters of a limit.
pub(crate) fn low_water(limit: usize) -> usize {
    limit - limit.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_room_again_at_its_own_three_quarters() {
        let queue = Queue::new([8, 0]);
        for number in 0..8 {
            queue.push(Line::First, number, |number| number).unwrap();
        }
        let has_room = || queue.has_room_again(&queue.lock(), Line::First as usize);
        assert_eq!((queue.take(false), has_room()), (Some(0), false));
        assert_eq!((queue.take(true), has_room()), (Some(1), true));
    }
}
