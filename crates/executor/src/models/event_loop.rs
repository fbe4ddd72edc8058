//! Event loops: a few threads. A waiting task is suspended and costs a timer instead of a thread.
//!
//! New tasks wait in one queue, from which each loop takes a small batch when it has little left to do, so that no loop is idle
//! while another has tasks that have not begun. A task stays on the loop on which it began. Each turn of a loop:
//!
//! 1. Tasks whose timer is due become ready.
//! 2. New tasks are taken, up to [`BATCH`] ready ones in all.
//! 3. The tasks that are ready now are resumed once each. A task that yields becomes ready again, after the others.
//! 4. The ended tasks are reported to the counters, and to the admission, which then has room for others.
//! 5. If no task is ready, the loop sleeps until its first timer is due or a task arrives.
//!
//! Locks, counters and the clock are accessed once for each turn, not for each task. In a long turn, ended tasks are reported in
//! batches of [`BATCH`].
//!
//! Back-pressure includes suspended tasks, since each holds memory. The hybrid model differs only in its waits: they are blocking
//! calls ([`Waits::OnThreads`]), because not everything that blocks can be suspended.

use super::pool::{PoolSettings, ThreadPool};
use super::timers::Timers;
use crate::admission::Admission;
use crate::back_pressure::Refused;
use crate::containment::{drop_contained, run_contained};
use crate::coroutine::{BoxCoroutine, CoroutineProgress};
use crate::executor::{Drained, Executor, ExecutorStartError, check_threads};
use crate::metrics::{Counters, ExecutorMetrics, Tally};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Number of ready tasks up to which a loop takes new ones: enough to share one lock and one reading of the clock, few enough
/// that the loops finish at about the same time.
const BATCH: usize = 16;
/// The longest wait: a hundred years.
const WAIT_LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Settings of event loops.
#[derive(Debug, Clone)]
pub struct EventLoopSettings {
    /// Number of loops, 1 to [`THREADS_MAX`](crate::THREADS_MAX); usually one for each core.
    pub loops: usize,
    /// Largest number of tasks inside: new, ready and suspended.
    pub tasks_max: usize,
    /// Name of the loops in the log and in the names of their threads.
    pub name: String,
}

/// Threads that resume tasks and never sleep inside one.
pub struct EventLoops {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// How a task waits.
enum Waits {
    /// With a timer of the loop.
    OnTimers,
    /// On a thread of this pool, which sleeps. The pool's queue has room for every task that the loops admit.
    OnThreads(ThreadPool),
}

struct Shared {
    name: String,
    counters: Counters,
    admission: Admission,
    incoming: Mutex<Incoming>,
    /// Wakes sleeping loops.
    came: Condvar,
    waits: Waits,
}

#[derive(Default)]
struct Incoming {
    new: VecDeque<(BoxCoroutine, Instant)>,
    /// Tasks whose blocking call has returned.
    returned: VecDeque<BoxCoroutine>,
    /// Number of sleeping loops.
    sleeping: usize,
    /// Sleeping loops that were signalled and do not run yet. Each signal is a system call.
    summoned: usize,
    /// Whether the loops must end when no task is inside.
    ending: bool,
}

impl Incoming {
    /// Whether a loop must be signalled because a task has arrived.
    fn summon(&mut self) -> bool {
        let summons = self.sleeping > self.summoned;
        self.summoned += usize::from(summons);
        summons
    }
}

/// State of one loop.
struct Own {
    ready: VecDeque<BoxCoroutine>,
    timers: Timers<BoxCoroutine>,
    /// Counts of this turn.
    tally: Tally,
    /// Begin of this turn.
    now: Instant,
}

impl Own {
    fn new() -> Self {
        Self { ready: VecDeque::new(), timers: Timers::default(), tally: Tally::default(), now: Instant::now() }
    }
}

impl EventLoops {
    /// Starts the loops.
    pub fn new(settings: EventLoopSettings) -> Result<Self, ExecutorStartError> {
        Self::start(settings, Waits::OnTimers)
    }

    /// The same, with `threads` that sleep during the waits.
    pub(super) fn with_threads(settings: EventLoopSettings, threads: usize) -> Result<Self, ExecutorStartError> {
        let name = format!("{}-wait", settings.name);
        let pool = PoolSettings { threads, queue_max: settings.tasks_max, name };
        Self::start(settings, Waits::OnThreads(ThreadPool::new(pool)?))
    }

    fn start(settings: EventLoopSettings, waits: Waits) -> Result<Self, ExecutorStartError> {
        check_threads(settings.loops)?;
        let (count, shared) = (settings.loops, Arc::new(Shared::new(settings, waits)));
        // From here on, dropping `loops` ends the threads that have started.
        let mut loops = Self { shared, threads: Vec::with_capacity(count) };
        for index in 0..count {
            let shared = Arc::clone(&loops.shared);
            let builder = thread::Builder::new().name(format!("{}-{index}", shared.name));
            loops.threads.push(builder.spawn(move || shared.run()).map_err(ExecutorStartError::Spawn)?);
            loops.shared.counters.count_threads(1);
        }
        Ok(loops)
    }
}

impl Shared {
    fn new(settings: EventLoopSettings, waits: Waits) -> Self {
        Self {
            name: settings.name,
            counters: Counters::default(),
            admission: Admission::of_memory(settings.tasks_max.max(1)),
            incoming: Mutex::default(),
            came: Condvar::new(),
            waits,
        }
    }

    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of a loop.
    fn run(self: Arc<Self>) {
        let mut own = Own::new();
        loop {
            self.wake_due(&mut own);
            if !self.take_incoming(&mut own) {
                break;
            }
            if self.admission.is_abandoned() {
                self.drop_begun(&mut own);
            }
            self.resume_ready(&mut own);
            self.end_turn(&mut own);
        }
        self.counters.count_thread_ended();
    }

    fn wake_due(&self, own: &mut Own) {
        while let Some(task) = own.timers.pop_due(own.now) {
            self.counters.count_unblocked();
            own.ready.push_back(task);
        }
    }

    /// Takes tasks that have arrived, and sleeps if there is nothing to do. `false`: the loop ends.
    fn take_incoming(&self, own: &mut Own) -> bool {
        let mut incoming = self.lock();
        loop {
            own.ready.append(&mut incoming.returned);
            self.begin_new(&mut incoming, own);
            let timer = own.timers.next();
            let is_due = timer.is_some_and(|at| self.admission.is_abandoned() || at <= own.now);
            if is_due || !own.ready.is_empty() {
                return true;
            }
            if incoming.ending && self.admission.inside() == 0 {
                return false;
            }
            incoming = self.sleep(incoming, timer);
            own.now = Instant::now();
        }
    }

    fn begin_new(&self, incoming: &mut Incoming, own: &mut Own) {
        let count = BATCH.saturating_sub(own.ready.len()).min(incoming.new.len());
        if count == 0 {
            return;
        }
        self.counters.count_all_begun(count);
        for (task, submitted) in incoming.new.drain(..count) {
            own.tally.count_waited(submitted, own.now);
            own.ready.push_back(task);
        }
    }

    fn sleep<'a>(&self, mut incoming: MutexGuard<'a, Incoming>, timer: Option<Instant>) -> MutexGuard<'a, Incoming> {
        incoming.sleeping += 1;
        let mut incoming = match timer.map(|at| at.saturating_duration_since(Instant::now())) {
            Some(left) => self.came.wait_timeout(incoming, left).unwrap_or_else(PoisonError::into_inner).0,
            None => self.came.wait(incoming).unwrap_or_else(PoisonError::into_inner),
        };
        incoming.sleeping -= 1;
        // A loop that wakes by its timer counts as summoned: at worst one more loop is signalled in vain.
        incoming.summoned = incoming.summoned.saturating_sub(1);
        incoming
    }

    /// Resumes each task that is ready now once.
    fn resume_ready(self: &Arc<Self>, own: &mut Own) {
        for _ in 0..own.ready.len() {
            let Some(task) = own.ready.pop_front() else { break };
            self.resume(task, own);
            if own.tally.done >= BATCH as u64 {
                self.report_ended(own);
            }
        }
    }

    fn resume(self: &Arc<Self>, mut task: BoxCoroutine, own: &mut Own) {
        let mut progress = None;
        let is_whole = self.admission.mark(|| run_contained(&self.name, || progress = Some(task.resume())));
        match progress {
            Some(CoroutineProgress::Yield) => own.ready.push_back(task),
            Some(CoroutineProgress::Wait(duration)) => self.suspend(task, duration, own),
            Some(CoroutineProgress::Done) | None => {
                drop_contained(task);
                own.tally.done += 1;
                own.tally.panicked += u64::from(!is_whole);
            }
        }
    }

    fn end_turn(&self, own: &mut Own) {
        let began = std::mem::replace(&mut own.now, Instant::now());
        own.tally.count_busy(own.now.saturating_duration_since(began));
        self.report_ended(own);
    }

    /// Reports the counts of this turn so far, and lets the ended tasks leave.
    fn report_ended(&self, own: &mut Own) {
        let tally = std::mem::take(&mut own.tally);
        self.counters.count_all_ended(&tally);
        if tally.done > 0 {
            self.leave(tally.done as usize);
        }
    }

    fn suspend(self: &Arc<Self>, task: BoxCoroutine, duration: Duration, own: &mut Own) {
        self.counters.count_blocked();
        let pool = match &self.waits {
            // Counted from the suspension, not from the begin of the turn: a wait may be longer than requested, but never
            // shorter.
            Waits::OnTimers => {
                let now = Instant::now();
                let due = now.checked_add(duration).unwrap_or(now + WAIT_LONGEST);
                return own.timers.push(due, task);
            }
            Waits::OnThreads(pool) => pool,
        };
        let shared = Arc::clone(self);
        let wait = move || {
            thread::sleep(duration);
            shared.give_back(task);
        };
        // The pool's queue has room for all admitted tasks, and is closed after the loops: this is never refused.
        if let Err(refused) = pool.try_submit(Box::new(wait)) {
            drop_contained(refused);
            self.counters.count_unblocked();
            self.counters.count_begun_dropped();
            self.leave(1);
        }
    }

    /// A blocking call has returned: any loop may resume its task.
    fn give_back(&self, task: BoxCoroutine) {
        self.counters.count_unblocked();
        let mut incoming = self.lock();
        incoming.returned.push_back(task);
        let summons = incoming.summon();
        drop(incoming);
        if summons {
            self.came.notify_one();
        }
    }

    fn put(&self, task: BoxCoroutine) {
        let now = Instant::now();
        let mut incoming = self.lock();
        incoming.new.push_back((task, now));
        let summons = incoming.summon();
        drop(incoming);
        if summons {
            self.came.notify_one();
        }
    }

    /// So many tasks have left. The last one lets the loops end.
    fn leave(&self, tasks: usize) {
        if self.admission.leave(tasks) && self.lock().ending {
            self.came.notify_all();
        }
    }

    /// Drops every task that has not begun; the loops drop those that have.
    fn abandon(&self) {
        self.admission.abandon();
        let new = std::mem::take(&mut self.lock().new);
        self.counters.count_dropped(new.len());
        for task in new {
            drop_contained(task);
            self.leave(1);
        }
        self.came.notify_all();
    }

    fn drop_begun(&self, own: &mut Own) {
        // A task in the middle of a wait counts as blocked, a ready one does not.
        own.timers.take_all().for_each(|task| {
            self.counters.count_unblocked();
            own.ready.push_back(task);
        });
        for task in own.ready.drain(..) {
            drop_contained(task);
            self.counters.count_begun_dropped();
            self.leave(1);
        }
    }
}

impl Executor for EventLoops {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let admitted = self.shared.admission.try_enter(task);
        self.shared.put(admitted.inspect_err(|_| self.shared.counters.count_refused())?);
        Ok(())
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let admitted = self.shared.admission.enter(task);
        self.shared.put(admitted.inspect_err(|_| self.shared.counters.count_refused())?);
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Drained {
        let admission = &self.shared.admission;
        admission.close();
        if admission.wait_empty_until(deadline) {
            return Drained::Finished;
        }
        let ExecutorMetrics { queued, running, blocked, .. } = self.metrics();
        self.shared.abandon();
        match (queued + blocked, running) {
            (0, 0) => Drained::Finished,
            (dropped, running) => Drained::Left { queued: dropped as usize, running: running as usize },
        }
    }

    fn metrics(&self) -> ExecutorMetrics {
        let pool = match &self.shared.waits {
            Waits::OnTimers => ExecutorMetrics::default(),
            Waits::OnThreads(pool) => pool.metrics(),
        };
        let metrics = self.shared.counters.read_inside(self.shared.admission.inside());
        ExecutorMetrics {
            threads: metrics.threads + pool.threads,
            threads_peak: metrics.threads_peak + pool.threads_peak,
            ..metrics
        }
    }
}

impl Drop for EventLoops {
    fn drop(&mut self) {
        self.shared.admission.close();
        self.shared.abandon();
        self.shared.lock().ending = true;
        self.shared.came.notify_all();
        // A task may own the last handle of its own loops, which end after it: it cannot wait for them.
        if self.shared.admission.runs_here() {
            return;
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(pool = self.shared.name, "a loop's thread ended by a panic");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coroutine::once;
    use std::sync::mpsc::channel;

    #[test]
    fn no_more_loops_are_signalled_than_sleep() {
        let mut incoming = Incoming { sleeping: 2, ..Incoming::default() };
        assert_eq!([(); 3].map(|()| incoming.summon()), [true, true, false]);
    }

    #[test]
    fn ended_tasks_are_reported_in_the_middle_of_a_long_turn() {
        let settings = EventLoopSettings { loops: 1, tasks_max: 64, name: "test".to_owned() };
        let (shared, mut own) = (Arc::new(Shared::new(settings, Waits::OnTimers)), Own::new());
        (0..=BATCH).for_each(|_| shared.admission.try_enter(()).unwrap());
        shared.counters.count_all_begun(BATCH + 1);
        own.ready.extend((0..BATCH).map(|_| once(|| ())));
        let (say, inside) = channel();
        let last = Arc::clone(&shared);
        own.ready.push_back(once(move || say.send(last.admission.inside()).unwrap()));
        shared.resume_ready(&mut own);
        assert_eq!(inside.recv(), Ok(1), "the last task is alone");
        shared.end_turn(&mut own);
        assert_eq!((shared.admission.inside(), shared.counters.begun()), (0, 0));
    }
}
