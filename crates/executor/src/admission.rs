//! Admission: bounds the number of tasks inside an executor; waiting for room, and waiting until all have ended.
//!
//! Used by models without a special queue. Invariants: at most `limit` tasks are inside; once closed, no task enters. Waiting
//! submitters are woken when at most `low_water` tasks are inside: waking one for each task that leaves would cost a context
//! switch for each.

use crate::queue::{Refused, low_water};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(crate) struct Admission {
    limit: usize,
    low_water: usize,
    state: Mutex<State>,
    /// Signalled at the low-water mark, and when closed.
    room: Condvar,
    /// Signalled when nothing is inside.
    empty: Condvar,
    /// Whether tasks that have not begun must be dropped.
    abandoned: AtomicBool,
}

#[derive(Default)]
struct State {
    inside: usize,
    closed: bool,
    waiting_for_room: usize,
    waiting_for_empty: usize,
}

thread_local! {
    /// Address of the admission whose task runs on this thread; 0: none.
    static RUNS_TASK_OF: Cell<usize> = const { Cell::new(0) };
}

impl Admission {
    /// Hands out every place that becomes free at once: for models in which a place is a thread.
    pub(crate) fn of_places(limit: usize) -> Self {
        Self::new(limit, limit.saturating_sub(1))
    }

    /// Hands out places a quarter at a time: for models in which a place is memory.
    pub(crate) fn of_memory(limit: usize) -> Self {
        Self::new(limit, low_water(limit))
    }

    fn new(limit: usize, low_water: usize) -> Self {
        let (state, room, empty) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self { limit, low_water, state, room, empty, abandoned: AtomicBool::new(false) }
    }

    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits one more task, or returns the value.
    pub(crate) fn try_enter<T>(&self, value: T) -> Result<T, Refused<T>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Draining(value));
        }
        if state.inside >= self.limit {
            return Err(Refused::Full(value));
        }
        state.inside += 1;
        Ok(value)
    }

    /// The same, after waiting for room.
    pub(crate) fn enter<T>(&self, value: T) -> Result<T, Refused<T>> {
        let mut state = self.lock();
        while !state.closed && state.inside >= self.limit {
            state.waiting_for_room += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_room -= 1;
        }
        if state.closed {
            return Err(Refused::Draining(value));
        }
        state.inside += 1;
        Ok(value)
    }

    /// A task has ended or was dropped. Returns whether it was the last one of a closed executor.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.lock();
        state.inside -= 1;
        if state.waiting_for_room > 0 && state.inside <= self.low_water {
            self.room.notify_all();
        }
        if state.inside == 0 && state.waiting_for_empty > 0 {
            self.empty.notify_all();
        }
        state.inside == 0 && state.closed
    }

    pub(crate) fn inside(&self) -> usize {
        self.lock().inside
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
    }

    /// Makes the model drop the tasks that have not begun, as it reaches them.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Waits until no task is inside, or for the deadline; returns whether none is left.
    pub(crate) fn wait_empty_until(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while state.inside > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.waiting_for_empty += 1;
            state = self.empty.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting_for_empty -= 1;
        }
        true
    }

    /// Waits until no task is inside. Returns at once on a thread that runs a task of this executor, which would wait for itself.
    pub(crate) fn wait_empty(&self) {
        if self.runs_here() {
            return;
        }
        let mut state = self.lock();
        while state.inside > 0 {
            state.waiting_for_empty += 1;
            state = self.empty.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_empty -= 1;
        }
    }

    /// Marks this thread as running a task of this executor, while `work` runs.
    pub(crate) fn mark<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = RUNS_TASK_OF.replace(self.address());
        let result = work();
        RUNS_TASK_OF.set(before);
        result
    }

    pub(crate) fn runs_here(&self) -> bool {
        RUNS_TASK_OF.get() == self.address()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_full_executor_gives_back_and_a_closed_one_too() {
        let admission = Admission::of_memory(1);
        assert!(matches!(admission.try_enter('a'), Ok('a')));
        assert!(matches!(admission.try_enter('b'), Err(Refused::Full('b'))));
        admission.close();
        assert!(matches!(admission.try_enter('c'), Err(Refused::Draining('c'))));
        assert!(matches!(admission.enter('d'), Err(Refused::Draining('d'))));
        assert!(admission.leave(), "the last one has left");
    }

    /// Fills an admission, lets a submitter wait, and returns how many tasks must leave before the submitter enters.
    fn left_before_entry(admission: Admission, limit: usize) -> usize {
        let admission = Arc::new(admission);
        (0..limit).for_each(|_| admission.try_enter(()).unwrap());
        let (say, entered) = channel();
        let submitter = {
            let admission = Arc::clone(&admission);
            std::thread::spawn(move || {
                admission.enter(()).unwrap();
                say.send(()).unwrap();
            })
        };
        while admission.lock().waiting_for_room == 0 {
            std::thread::yield_now();
        }
        let mut left = 0;
        loop {
            // Whether this departure reaches the low-water mark is decided under the lock, not by time.
            let wakes = admission.lock().inside - 1 <= admission.low_water;
            admission.leave();
            left += 1;
            if wakes {
                entered.recv_timeout(Duration::from_secs(20)).unwrap();
                submitter.join().unwrap();
                return left;
            }
            assert!(entered.try_recv().is_err());
        }
    }

    #[test]
    fn a_waiting_submitter_enters_at_the_low_water_mark() {
        assert_eq!(left_before_entry(Admission::of_memory(8), 8), 2);
        assert_eq!(left_before_entry(Admission::of_places(8), 8), 1);
        assert_eq!(left_before_entry(Admission::of_memory(1), 1), 1);
    }

    #[test]
    fn a_task_does_not_wait_for_itself() {
        let admission = Admission::of_places(1);
        admission.try_enter(()).unwrap();
        admission.mark(|| admission.wait_empty());
        assert!(!admission.runs_here());
        assert!(!admission.wait_empty_until(Instant::now()));
    }
}
