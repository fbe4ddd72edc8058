//! Admission: bounds the number of tasks inside an executor; waiting for room, and waiting until all have ended.
//!
//! Used by models without a special queue. Invariants: at most `limit` tasks are inside; once closed, no task enters. Waiting
//! submitters are woken when at most `low_water` tasks are inside: waking one for each task that leaves would cost a context
//! switch for each.
//!
//! Entering and leaving are one atomic operation each. Only a thread that waits, and a thread that wakes it, take the lock:
//!
//! 1. The waiting thread takes the lock, then sets its flag in the word that counts the tasks, and reads the count in the same
//!    operation.
//! 2. If it must wait, it releases the lock by waiting for the condition variable.
//! 3. A task that leaves changes the count in the same word. If it does so before step 1, the waiting thread sees the new count.
//!    If it does so later, it sees the flag, waits for the lock, thus for step 2, and signals.
//!
//! The thread that signals clears the flag, so that each crossing of the low-water mark is one signal.

use crate::back_pressure::{Refused, low_water};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Flag of the word: no task enters any more.
const CLOSED: usize = 1;
/// Flag of the word: a submitter waits for room.
const ROOM_AWAITED: usize = 2;
/// Flag of the word: a thread waits until no task is inside.
const END_AWAITED: usize = 4;
/// One task inside. The count stands above the flags; memory for 2⁶¹ tasks does not exist.
const TASK: usize = 8;

pub(crate) struct Admission {
    limit: usize,
    low_water: usize,
    /// Number of tasks inside, times [`TASK`], and the flags.
    word: AtomicUsize,
    /// Held by a thread between setting its flag and waiting, and by a thread that clears flags and signals.
    waiting: Mutex<()>,
    /// Signalled at the low-water mark, and when closed.
    room: Condvar,
    /// Signalled when nothing is inside.
    empty: Condvar,
    /// Whether tasks that have not begun must be dropped.
    abandoned: AtomicBool,
}

thread_local! {
    /// Address of the admission whose task runs on this thread; 0: none.
    static RUNS_TASK_OF: Cell<usize> = const { Cell::new(0) };
}

/// Why a task cannot enter.
enum Outside {
    Full,
    Closed,
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
        let (waiting, room, empty) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self { limit, low_water, word: AtomicUsize::new(0), waiting, room, empty, abandoned: AtomicBool::new(false) }
    }

    /// The lock guards no data, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more task may enter.
    fn check(&self, word: usize) -> Result<(), Outside> {
        match word {
            word if word & CLOSED != 0 => Err(Outside::Closed),
            word if word / TASK >= self.limit => Err(Outside::Full),
            _ => Ok(()),
        }
    }

    fn count_in(&self) -> Result<(), Outside> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            self.check(word)?;
            match self.word.compare_exchange_weak(word, word + TASK, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(changed) => word = changed,
            }
        }
    }

    /// Admits one more task, or returns the value.
    pub(crate) fn try_enter<T>(&self, value: T) -> Result<T, Refused<T>> {
        match self.count_in() {
            Ok(()) => Ok(value),
            Err(Outside::Full) => Err(Refused::Full(value)),
            Err(Outside::Closed) => Err(Refused::Draining(value)),
        }
    }

    /// The same, after waiting for room.
    pub(crate) fn enter<T>(&self, value: T) -> Result<T, Refused<T>> {
        loop {
            match self.count_in() {
                Ok(()) => return Ok(value),
                Err(Outside::Full) => self.wait_room(),
                Err(Outside::Closed) => return Err(Refused::Draining(value)),
            }
        }
    }

    /// Returns when there was room, or at a signal.
    fn wait_room(&self) {
        let waiting = self.lock();
        let word = self.word.fetch_or(ROOM_AWAITED, Ordering::Relaxed);
        // If the thread does not wait, its flag stays, and costs one signal in vain.
        if matches!(self.check(word), Err(Outside::Full)) {
            drop(self.room.wait(waiting));
        }
    }

    /// So many tasks have ended or were dropped. Returns whether the last one of a closed executor was among them.
    pub(crate) fn leave(&self, tasks: usize) -> bool {
        // Release: a thread that waits for the end sees everything that the tasks have done.
        let before = self.word.fetch_sub(tasks * TASK, Ordering::AcqRel);
        let inside = before / TASK - tasks;
        if before & ROOM_AWAITED != 0 && inside <= self.low_water {
            self.signal(ROOM_AWAITED, &self.room);
        }
        if before & END_AWAITED != 0 && inside == 0 {
            self.signal(END_AWAITED, &self.empty);
        }
        inside == 0 && before & CLOSED != 0
    }

    /// Wakes the threads that have set a flag, and clears it.
    #[cold]
    fn signal(&self, flag: usize, awaited: &Condvar) {
        let _waiting = self.lock();
        // Two threads that leave may both have seen the flag; one of them signals.
        if self.word.fetch_and(!flag, Ordering::Relaxed) & flag != 0 {
            awaited.notify_all();
        }
    }

    pub(crate) fn inside(&self) -> usize {
        self.word.load(Ordering::Acquire) / TASK
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    pub(crate) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::Relaxed);
        self.signal(ROOM_AWAITED, &self.room);
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
        let mut waiting = self.lock();
        while self.word.fetch_or(END_AWAITED, Ordering::Acquire) >= TASK {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            waiting = self.empty.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits until no task is inside. Returns at once on a thread that runs a task of this executor, which would wait for itself.
    pub(crate) fn wait_empty(&self) {
        if self.runs_here() {
            return;
        }
        let mut waiting = self.lock();
        while self.word.fetch_or(END_AWAITED, Ordering::Acquire) >= TASK {
            waiting = self.empty.wait(waiting).unwrap_or_else(PoisonError::into_inner);
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
        assert!(admission.leave(1), "the last one has left");
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
        while admission.word.load(Ordering::Relaxed) & ROOM_AWAITED == 0 {
            std::thread::yield_now();
        }
        let mut left = 0;
        loop {
            let wakes = admission.inside() - 1 <= admission.low_water;
            admission.leave(1);
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
    fn several_tasks_leave_at_once() {
        let admission = Admission::of_memory(8);
        (0..8).for_each(|_| admission.try_enter(()).unwrap());
        admission.close();
        assert!(!admission.leave(7));
        assert_eq!(admission.inside(), 1);
        assert!(admission.leave(1));
        assert!(admission.wait_empty_until(Instant::now()));
    }

    #[test]
    fn no_signal_is_lost_between_submitters_that_wait_and_tasks_that_leave() {
        let admission = Arc::new(Admission::of_memory(4));
        let (say, entered) = channel::<()>();
        let most = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let (admission, say, most) = (Arc::clone(&admission), say.clone(), Arc::clone(&most));
            std::thread::spawn(move || {
                for _ in 0..3000 {
                    admission.enter(()).unwrap();
                    most.fetch_max(admission.inside(), Ordering::Relaxed);
                    say.send(()).unwrap();
                }
            });
        }
        for _ in 0..9000 {
            entered.recv_timeout(Duration::from_secs(20)).expect("a submitter waits although there is room");
            admission.leave(1);
        }
        assert!((1..=4).contains(&most.load(Ordering::Relaxed)), "{most:?}");
        assert_eq!(admission.inside(), 0);
        admission.wait_empty();
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
