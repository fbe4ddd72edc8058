//! IO-aware pool: many threads, of which at most `running_max` run at the same time.
//!
//! A thread that announces a blocking call ([`crate::blocking()`]) releases its permit to run, and acquires one again when the
//! call has returned. So the cores always have work, but at most `running_max` threads run. The number of threads bounds the
//! number of blocked tasks.
//!
//! Permits are granted in this order: to a thread that has returned from a blocking call (its task is older than any waiting
//! one), then to the next task of the queue. A permit for a returned thread is granted directly to it, so that no other thread
//! can overtake it.
//!
//! Invariants, at each release of the lock:
//!
//! - `running` is at most `running_max`; it includes the permits that were granted and not yet taken up (`granted`).
//! - While a returned thread waits without a grant, no permit is free.
//! - While a task waits and a permit is free, an idle thread has been woken (`summoned`), or no thread is idle.
//!
//! A woken thread needs microseconds to run. A call that returns earlier finds its permit still free and takes it again, and the
//! woken thread sleeps again: `summoned` prevents such calls from waking one thread after another.
//!
//! Idle threads and submitters are signalled after the release of the lock, which a woken thread needs first.

use crate::back_pressure::{Refused, low_water};
use crate::blocking::{Announce, register};
use crate::containment::{drop_contained, run_contained};
use crate::coroutine::{BoxCoroutine, run_to_end};
use crate::executor::{Drained, Executor, ExecutorStartError, check_threads};
use crate::metrics::{Counters, Ended, ExecutorMetrics, Tally};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Settings of an IO-aware pool.
#[derive(Debug, Clone)]
pub struct IoAwareSettings {
    /// Number of all threads, 1 to [`THREADS_MAX`](crate::THREADS_MAX): running, blocked and idle ones.
    pub threads: usize,
    /// Number of threads that may run at the same time, 1 to `threads`.
    pub running_max: usize,
    /// Largest number of waiting tasks.
    pub queue_max: usize,
    /// Name of the pool in the log and in the names of its threads.
    pub name: String,
}

/// A pool whose threads announce when they block.
pub struct IoAwarePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    name: String,
    running_max: usize,
    queue_max: usize,
    state: Mutex<State>,
    /// Wakes idle threads: a task may begin.
    summons: Condvar,
    /// Wakes threads that have returned from a blocking call: a permit was granted.
    grants: Condvar,
    /// Wakes submitters: the queue has fallen to three quarters.
    room: Condvar,
    /// Wakes drains: all tasks have ended.
    all_ended: Condvar,
    counters: Counters,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(BoxCoroutine, Instant)>,
    /// Tasks that have begun and not ended.
    begun: usize,
    /// Permits in use, including granted ones.
    running: usize,
    /// Threads that have returned from a blocking call and wait for a permit.
    returned: usize,
    /// Permits granted to returned threads that have not woken yet.
    granted: usize,
    /// Threads that wait for a task.
    idle: usize,
    /// Idle threads that were woken and do not run yet.
    summoned: usize,
    closed: bool,
    /// Whether submitters wait for room and were not signalled.
    is_room_awaited: bool,
    waiting_for_end: usize,
    /// Counts of the ended tasks: under this lock they need no further atomic operation.
    tally: Tally,
}

impl IoAwarePool {
    /// Starts the threads.
    pub fn new(settings: IoAwareSettings) -> Result<Self, ExecutorStartError> {
        let IoAwareSettings { threads, running_max, queue_max, name } = settings;
        check_threads(threads)?;
        if !(1..=threads).contains(&running_max) {
            return Err(ExecutorStartError::Running { running: running_max, threads });
        }
        let shared = Arc::new(Shared {
            name,
            running_max,
            queue_max,
            state: Mutex::default(),
            summons: Condvar::new(),
            grants: Condvar::new(),
            room: Condvar::new(),
            all_ended: Condvar::new(),
            counters: Counters::default(),
        });
        // From here on, dropping `pool` ends the threads that have started.
        let mut pool = Self { shared, threads: Vec::with_capacity(threads) };
        for index in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("{}-{index}", shared.name));
            pool.threads.push(builder.spawn(move || shared.run()).map_err(ExecutorStartError::Spawn)?);
            pool.shared.counters.count_threads(1);
        }
        Ok(pool)
    }
}

impl Shared {
    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of a thread.
    fn run(self: Arc<Self>) {
        let _registered = register(Arc::clone(&self) as Arc<dyn Announce>);
        let mut ended = None;
        while let Some((mut task, began)) = self.take(ended) {
            let is_whole = run_contained(&self.name, move || run_to_end(&mut *task));
            ended = Some(Ended::now(began, !is_whole));
        }
        self.counters.count_thread_ended();
    }

    /// Reports the end of the last task, if there was one, and releases its permit; waits for the next task and a permit for it.
    /// Returns the task and the moment of its begin. `None`: closed and empty.
    ///
    /// A task that follows another without a wait begins at the other's end: the clock is read once for both.
    fn take(&self, ended: Option<Ended>) -> Option<(BoxCoroutine, Instant)> {
        let mut now = ended.as_ref().map(Ended::at);
        let mut state = self.lock();
        if let Some(ended) = ended {
            state.tally.count_ended(&ended);
            state.begun -= 1;
            self.give_permit_back(&mut state);
            self.signal_if_all_ended(&state);
        }
        loop {
            if state.running < self.running_max
                && let Some((task, submitted)) = state.waiting.pop_front()
            {
                let began = now.unwrap_or_else(Instant::now);
                state.tally.count_waited(submitted, began);
                state.running += 1;
                state.begun += 1;
                self.release_and_signal(state);
                return Some((task, began));
            }
            if state.closed && state.waiting.is_empty() {
                return None;
            }
            state.idle += 1;
            state = self.summons.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            // A spurious wake-up counts as summoned: at worst one more thread is woken in vain.
            state.summoned = state.summoned.saturating_sub(1);
            now = None;
        }
    }

    /// Releases the lock, then wakes idle threads and, if the queue has fallen to its low-water mark, submitters.
    fn release_and_signal(&self, mut state: MutexGuard<'_, State>) {
        let summoned = self.summon(&mut state);
        let has_room = state.is_room_awaited && state.waiting.len() <= low_water(self.queue_max);
        if has_room {
            state.is_room_awaited = false;
        }
        drop(state);
        (0..summoned).for_each(|_| self.summons.notify_one());
        if has_room {
            self.room.notify_all();
        }
    }

    /// Grants the permit to a returned thread, or frees it.
    fn give_permit_back(&self, state: &mut State) {
        if state.returned > state.granted {
            state.granted += 1;
            self.grants.notify_one();
        } else {
            state.running -= 1;
        }
    }

    /// Summons as many idle threads as there are waiting tasks with a free permit; returns how many must be signalled.
    fn summon(&self, state: &mut State) -> usize {
        let permits = self.running_max.saturating_sub(state.running);
        let summoned = permits.min(state.waiting.len()).min(state.idle).max(state.summoned);
        summoned - std::mem::replace(&mut state.summoned, summoned)
    }

    fn signal_if_all_ended(&self, state: &State) {
        if state.begun == 0 && state.waiting_for_end > 0 && state.waiting.is_empty() {
            self.all_ended.notify_all();
        }
    }

    fn put(&self, mut state: MutexGuard<'_, State>, task: BoxCoroutine, submitted: Instant) {
        state.waiting.push_back((task, submitted));
        self.release_and_signal(state);
    }

    fn close(&self) {
        self.lock().closed = true;
        self.summons.notify_all();
        self.room.notify_all();
    }

    /// Drops the waiting tasks and returns their number.
    fn drop_waiting(&self) -> usize {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        self.signal_if_all_ended(&state);
        drop(state);
        let count = waiting.len();
        self.counters.count_dropped(count);
        waiting.into_iter().for_each(drop_contained);
        count
    }

    fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while state.begun > 0 || !state.waiting.is_empty() {
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
}

impl Announce for Shared {
    fn blocks(&self) {
        let mut state = self.lock();
        self.give_permit_back(&mut state);
        self.release_and_signal(state);
        self.counters.count_blocked();
    }

    fn unblocks(&self) {
        let mut state = self.lock();
        if state.running < self.running_max {
            state.running += 1;
        } else {
            state.returned += 1;
            while state.granted == 0 {
                state = self.grants.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.granted -= 1;
            state.returned -= 1;
        }
        drop(state);
        self.counters.count_unblocked();
    }
}

impl Executor for IoAwarePool {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let shared = &self.shared;
        let now = Instant::now();
        let state = shared.lock();
        let refused = match (state.closed, state.waiting.len() >= shared.queue_max) {
            (true, _) => Refused::Draining(task),
            (false, true) => Refused::Full(task),
            (false, false) => {
                shared.put(state, task, now);
                return Ok(());
            }
        };
        shared.counters.count_refused();
        Err(refused)
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let shared = &self.shared;
        let mut now = Instant::now();
        let mut state = shared.lock();
        while !state.closed && state.waiting.len() >= shared.queue_max {
            state.is_room_awaited = true;
            state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            now = Instant::now();
        }
        if state.closed {
            shared.counters.count_refused();
            return Err(Refused::Draining(task));
        }
        shared.put(state, task, now);
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Drained {
        self.shared.close();
        if self.shared.wait_ended(deadline) {
            return Drained::Finished;
        }
        let queued = self.shared.drop_waiting();
        match (queued, self.shared.lock().begun) {
            (0, 0) => Drained::Finished,
            (queued, running) => Drained::Left { queued, running },
        }
    }

    fn metrics(&self) -> ExecutorMetrics {
        let (queued, begun, tally) = {
            let state = self.shared.lock();
            (state.waiting.len(), state.begun, state.tally)
        };
        self.shared.counters.read(queued, begun, &tally)
    }
}

impl Drop for IoAwarePool {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.drop_waiting();
        for thread in self.threads.drain(..) {
            // A task may own the last handle of its own pool; a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!(pool = self.shared.name, "a pool thread ended by a panic");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::blocking;
    use crate::coroutine::once;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    fn pool(threads: usize, running_max: usize) -> IoAwarePool {
        let name = "test".to_owned();
        IoAwarePool::new(IoAwareSettings { threads, running_max, queue_max: 8, name }).unwrap()
    }

    /// Waits until the state satisfies a condition.
    #[track_caller]
    fn until(pool: &IoAwarePool, holds: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(&pool.shared.lock()) {
            assert!(Instant::now() < deadline, "the state does not come about");
            thread::yield_now();
        }
    }

    /// A task that records its steps: it begins, blocks until it is released, and continues.
    fn blocks_once(name: &str, notes: &Sender<String>) -> (Sender<()>, BoxCoroutine) {
        let (go, wait) = channel::<()>();
        let (name, notes) = (name.to_owned(), notes.clone());
        let task = once(move || {
            notes.send(format!("{name} begins")).unwrap();
            blocking(|| wait.recv()).unwrap();
            notes.send(format!("{name} goes on")).unwrap();
        });
        (go, task)
    }

    /// A task that holds its permit until it is released.
    fn runs_long(name: &str, notes: &Sender<String>) -> (Sender<()>, BoxCoroutine) {
        let (go, wait) = channel::<()>();
        let (name, notes) = (name.to_owned(), notes.clone());
        let task = once(move || {
            notes.send(format!("{name} begins")).unwrap();
            wait.recv().unwrap();
            notes.send(format!("{name} ends")).unwrap();
        });
        (go, task)
    }

    #[track_caller]
    fn expect(notes: &Receiver<String>, note: &str) {
        assert_eq!(notes.recv_timeout(Duration::from_secs(20)).unwrap(), note);
    }

    #[test]
    fn a_returned_thread_waits_for_a_permit_and_goes_before_the_queue() {
        let pool = pool(3, 1);
        let (say, notes) = channel();
        let (go_a, a) = blocks_once("a", &say);
        let (go_b, b) = runs_long("b", &say);
        let (go_c, c) = runs_long("c", &say);
        pool.submit(a).unwrap();
        expect(&notes, "a begins");
        pool.submit(b).unwrap();
        expect(&notes, "b begins");
        pool.submit(c).unwrap();
        go_a.send(()).unwrap();
        until(&pool, |state| state.returned == 1);
        assert_eq!(pool.shared.lock().running, 1, "a has returned, and b has the one permit");
        go_b.send(()).unwrap();
        expect(&notes, "b ends");
        expect(&notes, "a goes on");
        expect(&notes, "c begins");
        go_c.send(()).unwrap();
        expect(&notes, "c ends");
    }

    #[test]
    fn a_call_that_returns_while_the_permit_is_free_takes_it_again() {
        let pool = pool(2, 1);
        let (say, notes) = channel();
        let (go, task) = blocks_once("a", &say);
        pool.submit(task).unwrap();
        expect(&notes, "a begins");
        until(&pool, |state| state.running == 0 && state.begun == 1);
        go.send(()).unwrap();
        expect(&notes, "a goes on");
        until(&pool, |state| state.running == 0 && state.begun == 0 && state.returned == 0);
    }

    #[test]
    fn threads_bound_how_many_are_blocked() {
        let pool = pool(2, 1);
        let (say, notes) = channel();
        let blocked: Vec<_> = ["a", "b", "c"].map(|name| blocks_once(name, &say)).into_iter().collect();
        let mut lets_go = Vec::new();
        for (go, task) in blocked {
            pool.submit(task).unwrap();
            lets_go.push(go);
        }
        expect(&notes, "a begins");
        expect(&notes, "b begins");
        until(&pool, |state| state.running == 0 && state.begun == 2);
        let metrics = pool.metrics();
        assert_eq!((metrics.queued, metrics.threads_peak), (1, 2));
        lets_go[1].send(()).unwrap();
        expect(&notes, "b goes on");
        expect(&notes, "c begins");
        for index in [0, 2] {
            lets_go[index].send(()).unwrap();
        }
    }

    #[test]
    fn a_panic_in_a_blocking_call_leaves_no_permit_behind() {
        let pool = pool(3, 2);
        for _ in 0..5 {
            pool.submit(once(|| blocking(|| std::panic::panic_any("on purpose")))).unwrap();
        }
        assert_eq!(pool.drain(Instant::now() + Duration::from_secs(20)), Drained::Finished);
        assert_eq!(pool.metrics().panicked, 5);
        let state = pool.shared.lock();
        assert_eq!((state.running, state.returned, state.granted, state.begun), (0, 0, 0, 0));
    }
}
