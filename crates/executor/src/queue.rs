//! The queue between submitters of jobs and the threads that run them.
//!
//! Invariants: at most `limit` jobs wait; `running` jobs were taken and not reported as ended; once closed, no job
//! is accepted, and a thread that finds it empty ends.
//!
//! Each signal of a condition variable is a system call, and a woken thread needs microseconds to run. So a thread is signalled
//! only once for each time that it waits: `summoned` idle threads have been signalled and do not run yet, and a submitter whose
//! flag was cleared has been signalled. Signals follow the release of the lock, which a woken thread needs first.
//!
//! The queue also counts the ended jobs and their times ([`Tally`]): under its lock that needs no further atomic operation.

use crate::back_pressure::{Refused, low_water};
use crate::metrics::{Ended, Tally};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A waiting job, and the moment of its submission.
type Entry<J> = (J, Instant);

struct State<J> {
    waiting: VecDeque<Entry<J>>,
    running: usize,
    closed: bool,
    /// Threads that wait for a job.
    idle: usize,
    /// Idle threads that were signalled and do not run yet.
    summoned: usize,
    /// Whether submitters wait for room and were not signalled.
    is_room_awaited: bool,
    /// Threads that wait until all jobs have ended.
    waiting_for_end: usize,
    tally: Tally,
}

pub(crate) struct Queue<J> {
    limit: usize,
    state: Mutex<State<J>>,
    /// Signalled for each job that arrives, and to all when the queue closes.
    job_came: Condvar,
    /// Signalled when the queue has fallen to three quarters of its limit, and when the queue closes.
    room: Condvar,
    /// Signalled when no job waits or runs.
    all_ended: Condvar,
}

impl<J> Queue<J> {
    pub(crate) fn new(limit: usize) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            running: 0,
            closed: false,
            idle: 0,
            summoned: 0,
            is_room_awaited: false,
            waiting_for_end: 0,
            tally: Tally::default(),
        };
        let (job_came, room, all_ended) = (Condvar::new(), Condvar::new(), Condvar::new());
        Self { limit, state: Mutex::new(state), job_came, room, all_ended }
    }

    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `form(value)`, or returns the value.
    pub(crate) fn push<T>(&self, value: T, form: impl FnOnce(T) -> J) -> Result<(), Refused<T>> {
        let now = Instant::now();
        let state = self.lock();
        if state.closed {
            return Err(Refused::Draining(value));
        }
        if self.is_full(&state) {
            return Err(Refused::Full(value));
        }
        self.put(state, (form(value), now));
        Ok(())
    }

    /// The same, after waiting for room.
    pub(crate) fn push_waiting<T>(&self, value: T, form: impl FnOnce(T) -> J) -> Result<(), Refused<T>> {
        let mut now = Instant::now();
        let mut state = self.lock();
        while !state.closed && self.is_full(&state) {
            state.is_room_awaited = true;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            now = Instant::now();
        }
        if state.closed {
            return Err(Refused::Draining(value));
        }
        self.put(state, (form(value), now));
        Ok(())
    }

    fn is_full(&self, state: &State<J>) -> bool {
        state.waiting.len() >= self.limit
    }

    fn put(&self, mut state: MutexGuard<'_, State<J>>, entry: Entry<J>) {
        state.waiting.push_back(entry);
        let summons = state.idle > state.summoned;
        state.summoned += usize::from(summons);
        drop(state);
        if summons {
            self.job_came.notify_one();
        }
    }

    /// Reports the end of the last job, if there was one, and takes the next: the job, which counts as running until its end is reported,
    /// and the moment of its begin. `None`: closed and empty.
    ///
    /// A job that follows another without a wait begins at the other's end: the clock is read once for both.
    pub(crate) fn take(&self, ended: Option<Ended>) -> Option<(J, Instant)> {
        let mut now = ended.as_ref().map(Ended::at);
        let mut state = self.lock();
        if let Some(ended) = ended {
            state.tally.count_ended(&ended);
            state.running -= 1;
            self.signal_if_all_ended(&state);
        }
        loop {
            if let Some((job, submitted)) = state.waiting.pop_front() {
                let began = now.unwrap_or_else(Instant::now);
                state.tally.count_waited(submitted, began);
                state.running += 1;
                let is_room_awaited = state.is_room_awaited && self.has_room_again(&state);
                if is_room_awaited {
                    state.is_room_awaited = false;
                }
                drop(state);
                if is_room_awaited {
                    self.room.notify_all();
                }
                return Some((job, began));
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.job_came.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            // A spurious wake-up counts as summoned: at worst one more thread is signalled in vain.
            state.summoned = state.summoned.saturating_sub(1);
            now = None;
        }
    }

    /// Whether the queue has fallen so far that submitters are woken.
    fn has_room_again(&self, state: &State<J>) -> bool {
        state.waiting.len() <= low_water(self.limit)
    }

    fn signal_if_all_ended(&self, state: &State<J>) {
        if state.running == 0 && state.waiting_for_end > 0 && state.waiting.is_empty() {
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
        while state.running > 0 || !state.waiting.is_empty() {
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
    pub(crate) fn take_waiting(&self) -> VecDeque<Entry<J>> {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        self.signal_if_all_ended(&state);
        waiting
    }

    /// Number of running jobs.
    pub(crate) fn running(&self) -> usize {
        self.lock().running
    }

    /// Number of waiting jobs, number of running ones, and the counts of the ended ones.
    pub(crate) fn counts(&self) -> (usize, usize, Tally) {
        let state = self.lock();
        (state.waiting.len(), state.running, state.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_again_at_three_quarters() {
        let queue = Queue::new(8);
        for number in 0..8 {
            queue.push(number, |number| number).unwrap();
        }
        let has_room = || queue.has_room_again(&queue.lock());
        let is_awaited = || queue.lock().is_room_awaited;
        let take = || queue.take(None).map(|(number, _)| number);
        queue.lock().is_room_awaited = true;
        assert_eq!((take(), has_room(), is_awaited()), (Some(0), false, true));
        assert_eq!((take(), has_room(), is_awaited()), (Some(1), true, false), "the submitters were signalled");
    }

    #[test]
    fn no_more_threads_are_signalled_than_wait() {
        let queue = Queue::new(8);
        queue.lock().idle = 2;
        let summoned = [(); 3].map(|()| {
            queue.push((), |()| ()).unwrap();
            queue.lock().summoned
        });
        assert_eq!(summoned, [1, 2, 2]);
    }
}
