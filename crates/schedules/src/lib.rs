//! A scheduler for tests of threads: [`shuttle`], with timed waits, a virtual clock and schedules that follow from a seed.
//!
//! `shuttle` runs the threads of one execution as coroutines of one thread. Before each operation that other threads can see, a
//! scheduler chooses which thread goes on. Added here:
//!
//! - **Time** is virtual. It stands still while threads can run, apart from a microsecond for each choice. A thread that sleeps, or
//!   waits with a time limit, goes on when the scheduler ends its wait: when no other thread can run, and now and then before that.
//!   The clock is then set to the end of that wait, or beyond it. So every order of limits and wake-ups occurs, and no thread polls
//!   in vain.
//! - **Atomics** are those of the standard library with a choice before each access. `shuttle`'s have another layout, and the
//!   store's memtable lies in memory that is cast to atomics. As in `shuttle` they are sequentially consistent: what weak memory allows is
//!   for the models of `loom`.
//! - **Schedules**: see [`explore`].
//!
//! Outside of an execution atomics are plain, and locks panic.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Deref, DerefMut, Range, Sub};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

pub use shuttle::sync::{RwLock, mpsc};
pub use shuttle::thread_local;

/// Hashes are the same in every process, so that an execution can be repeated.
pub type DefaultHashBuilder = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Choices after which an execution counts as hanging: about a hundred times the usual number.
const CHOICES_MAX: usize = 200_000;
/// Choices after which counting begins anew which threads were chosen.
const STRETCH: u64 = 10_000;
/// Bytes of a thread's stack.
const STACK_BYTES: usize = 512 << 10;
/// Time that passes with each choice.
const CHOICE_TIME: Duration = Duration::from_micros(1);
/// Longest time by which a wait may end too late: in most cases, and rarely, so that an engine that only waits does not do so for long.
const LATE_MAX: Duration = Duration::from_secs(2);
const VERY_LATE_MAX: Duration = Duration::from_secs(60);
/// One choice in so many wakes a parked thread that was not unparked.
const SPURIOUS_EVERY: u64 = 512;

/// Executions that ended well, and the choices made in them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Number of executions.
    pub executions: u64,
    /// Number of choices between threads.
    pub choices: u64,
    /// Number of timed waits that ended by their limit.
    pub timeouts: u64,
}

impl Explored {
    /// Adds the counts of other executions.
    pub fn add(&mut self, other: &Explored) {
        self.executions += other.executions;
        self.choices += other.choices;
        self.timeouts += other.timeouts;
    }
}

/// An execution that failed.
#[derive(Debug)]
pub struct FailedSchedule {
    /// The seed from which it follows.
    pub seed: u64,
    /// Its panic.
    pub what: String,
}

/// Runs `life` once for each seed, on this thread, until one fails. Half of the seeds choose the next thread at random. The others
/// give each thread a priority and let the highest one run, apart from a few changes at random places (Burckhardt et al., "A
/// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010): so one thread may stand still while others do much.
pub fn explore(
    seeds: Range<u64>,
    life: impl Fn(u64) + Send + Sync + 'static,
) -> (Explored, Result<(), FailedSchedule>) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(CHOICES_MAX);
    config.silence_warnings = true;
    EXPLORED.set(Explored::default());
    let runner = shuttle::Runner::new(Seeds { left: seeds }, config);
    let outcome = catch_unwind(AssertUnwindSafe(|| runner.run(move || life(seed()))));
    let (failed, ran) = RUN.take().map_or_else(Default::default, |run| (run.seed, run.ran()));
    let failure = |panic: Box<dyn Any + Send>| FailedSchedule { seed: failed, what: text_of(&*panic) + &ran };
    (EXPLORED.get(), outcome.map(drop).map_err(failure))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string())).unwrap_or_default()
}

/// Lets another thread go on, perhaps: to be called before an operation that other threads can see and that no type of this module
/// makes.
pub fn point() {
    if RUN.with_borrow(Option::is_some) {
        // A choice like any other: `shuttle` has no clock.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// The running execution's seed.
fn seed() -> u64 {
    RUN.with_borrow(|run| run.as_ref().map_or(0, |run| run.seed))
}

std::thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
    static EXPLORED: std::cell::Cell<Explored> = const { std::cell::Cell::new(Explored { executions: 0, choices: 0, timeouts: 0 }) };
}

/// Pseudo-random numbers (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A thread that sleeps or waits with a limit.
struct Timed {
    thread: usize,
    end: Duration,
}

/// How the next thread is chosen.
enum Policy {
    Random,
    Priority {
        /// By thread; the highest runs.
        priorities: Vec<u64>,
        /// Numbers of the choices at which the running thread gets the lowest priority.
        changes: Vec<u64>,
        lowest: u64,
    },
}

/// The state of one execution.
struct Run {
    seed: u64,
    chance: Chance,
    policy: Policy,
    choices: u64,
    /// An access of an atomic is a choice once in so many.
    atomics_every: u64,
    /// One choice in so many ends a timed wait although threads can run.
    timeouts_every: u64,
    timeouts: u64,
    now: Duration,
    timed: Vec<Timed>,
    /// Names of the threads, and how often each was chosen in the last stretch.
    names: Vec<String>,
    chosen: Vec<u64>,
    /// Threads among which one is chosen; kept for its memory.
    candidates: Vec<TaskId>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut chance = Chance(seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let policy = match chance.is_one_in(2) {
            true => Policy::Random,
            false => {
                // The length of an execution is unknown: 256 to 16,384 choices.
                let length = 256 << chance.below(7);
                let changes = (0..=chance.below(5)).map(|_| chance.below(length)).collect();
                Policy::Priority { priorities: Vec::new(), changes, lowest: u64::MAX / 2 }
            }
        };
        let (atomics_every, timeouts_every) = (1 << (2 * chance.below(4)), 16 << (2 * chance.below(4)));
        Run {
            seed,
            chance,
            policy,
            choices: 0,
            atomics_every,
            timeouts_every,
            timeouts: 0,
            now: Duration::ZERO,
            timed: Vec::new(),
            names: Vec::new(),
            chosen: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// How often each thread ran lately, for a failure by too many choices.
    fn ran(&self) -> String {
        let counts = self.names.iter().zip(&self.chosen).filter(|(_, count)| **count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        format!("; chosen lately: {}", counts.join(", "))
    }

    fn choose(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> TaskId {
        for task in runnable {
            let thread = usize::from(task.id());
            if thread >= self.names.len() {
                self.names.resize_with(thread, String::new);
                self.names.push(task.name().unwrap_or_default());
            }
        }
        if self.choices.is_multiple_of(STRETCH) {
            self.chosen.clear();
        }
        self.chosen.resize(self.names.len(), 0);
        let chosen = self.choose_among(runnable, current, is_yielding);
        self.chosen[usize::from(chosen)] += 1;
        chosen
    }

    fn choose_among(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> TaskId {
        self.choices += 1;
        self.now += CHOICE_TIME;
        self.find_candidates(runnable);
        if !self.timed.is_empty() && (self.candidates.is_empty() || self.chance.is_one_in(self.timeouts_every)) {
            self.end_a_wait();
            self.find_candidates(runnable);
        }
        if let (true, Some(current), true) = (is_yielding, current, self.candidates.len() > 1) {
            self.candidates.retain(|candidate| *candidate != current);
        }
        match &mut self.policy {
            Policy::Random => {
                let at = self.chance.below(self.candidates.len() as u64);
                self.candidates[at as usize]
            }
            Policy::Priority { priorities, changes, lowest } => {
                let threads = runnable.iter().map(|task| usize::from(task.id()) + 1).max().unwrap_or(0);
                while priorities.len() < threads {
                    priorities.push(u64::MAX / 2 + self.chance.below(u64::MAX / 2));
                }
                if let Some(current) = current
                    && (is_yielding || changes.contains(&self.choices))
                {
                    *lowest -= 1;
                    priorities[usize::from(current)] = *lowest;
                }
                let highest = self.candidates.iter().max_by_key(|candidate| priorities[usize::from(**candidate)]);
                *highest.expect("one thread can run")
            }
        }
    }

    fn find_candidates(&mut self, runnable: &[&Task]) {
        let (timed, chance, candidates) = (&self.timed, &mut self.chance, &mut self.candidates);
        candidates.clear();
        let is_timed = |task: &Task| timed.iter().any(|timed| timed.thread == usize::from(task.id()));
        // The others are parked, and may be woken for nothing.
        let can_run = |task: &Task, chance: &mut Chance| task.runnable() || chance.is_one_in(SPURIOUS_EVERY);
        candidates
            .extend(runnable.iter().filter(|task| !is_timed(task) && can_run(task, chance)).map(|task| task.id()));
    }

    /// Ends one timed wait, the earliest or any, and all that end before it.
    fn end_a_wait(&mut self) {
        let earliest = self.timed.iter().map(|timed| timed.end).min();
        let any = self.chance.below(self.timed.len() as u64) as usize;
        let end = if self.chance.is_one_in(2) { earliest.unwrap_or_default() } else { self.timed[any].end };
        let late_max = match self.chance.below(16) {
            0 => VERY_LATE_MAX,
            1..5 => LATE_MAX,
            _ => CHOICE_TIME,
        };
        let late = Duration::from_nanos(self.chance.below(late_max.as_nanos() as u64));
        self.now = self.now.max(end).saturating_add(late);
        let (now, before) = (self.now, self.timed.len());
        self.timed.retain(|timed| timed.end > now);
        self.timeouts += (before - self.timed.len()) as u64;
    }
}

/// The seeds that are left; the scheduler of their executions.
struct Seeds {
    left: Range<u64>,
}

impl Scheduler for Seeds {
    fn new_execution(&mut self) -> Option<Schedule> {
        if let Some(run) = RUN.take() {
            let mut explored = EXPLORED.get();
            explored.add(&Explored { executions: 1, choices: run.choices, timeouts: run.timeouts });
            EXPLORED.set(explored);
        }
        let seed = self.left.next()?;
        RUN.set(Some(Run::new(seed)));
        Some(Schedule::new(seed))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        RUN.with_borrow_mut(|run| run.as_mut().map(|run| run.choose(runnable, current, is_yielding)))
    }

    fn next_u64(&mut self) -> u64 {
        RUN.with_borrow_mut(|run| run.as_mut().map_or(0, |run| run.chance.next()))
    }
}

/// The calling thread.
fn me() -> usize {
    shuttle::current::me().into()
}

/// Lets the calling thread stand until its wait is ended, by the scheduler or by [`end_wait`].
fn stand(time: Duration) {
    RUN.with_borrow_mut(|run| {
        if let Some(run) = run {
            let end = run.now.saturating_add(time);
            run.timed.push(Timed { thread: me(), end });
        }
    });
    shuttle::thread::sleep(Duration::ZERO);
}

/// Lets a thread go on before its wait has ended.
fn end_wait(thread: usize) {
    RUN.with_borrow_mut(|run| {
        if let Some(run) = run {
            run.timed.retain(|timed| timed.thread != thread);
        }
    });
}

/// A number below `end`, of the running execution.
fn below(end: usize) -> usize {
    RUN.with_borrow_mut(|run| run.as_mut().map_or(0, |run| run.chance.below(end as u64) as usize))
}

/// A moment of the virtual clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// See [`std::time::Instant::now`].
    pub fn now() -> Instant {
        Instant(RUN.with_borrow(|run| run.as_ref().map_or(Duration::ZERO, |run| run.now)))
    }

    /// See [`std::time::Instant::elapsed`].
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// See [`std::time::Instant::saturating_duration_since`].
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// See [`std::time::Instant::checked_sub`].
    pub fn checked_sub(&self, time: Duration) -> Option<Instant> {
        self.0.checked_sub(time).map(Instant)
    }

    /// See [`std::time::Instant::checked_add`].
    pub fn checked_add(&self, time: Duration) -> Option<Instant> {
        self.0.checked_add(time).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0.saturating_add(time))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// Threads.
pub mod thread {
    pub use shuttle::thread::*;
    use std::time::Duration;

    /// Stands until the virtual clock has passed this time.
    pub fn sleep(time: Duration) {
        super::stand(time);
    }
}

/// A round of a loop that waits for another thread.
pub fn spin_loop() {
    thread::yield_now();
}

/// A lock that its guard leads back to, for timed waits.
#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// See [`std::sync::MutexGuard`].
pub struct MutexGuard<'m, T> {
    guard: shuttle::sync::MutexGuard<'m, T>,
    mutex: &'m Mutex<T>,
}

impl<T> Mutex<T> {
    /// See [`std::sync::Mutex::new`].
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    fn guarded<'m>(&'m self, guard: shuttle::sync::MutexGuard<'m, T>) -> MutexGuard<'m, T> {
        MutexGuard { guard, mutex: self }
    }

    fn guarded_or_poisoned<'m>(
        &'m self,
        locked: LockResult<shuttle::sync::MutexGuard<'m, T>>,
    ) -> LockResult<MutexGuard<'m, T>> {
        locked
            .map(|guard| self.guarded(guard))
            .map_err(|poisoned| PoisonError::new(self.guarded(poisoned.into_inner())))
    }

    /// See [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.guarded_or_poisoned(self.0.lock())
    }

    /// See [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(self.guarded(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(self.guarded(poisoned.into_inner()))))
            }
        }
    }

    /// See [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A condition whose waits may end by their limit.
#[derive(Default)]
pub struct Condvar {
    untimed: shuttle::sync::Condvar,
    /// Only locked between two choices.
    waiting: std::sync::Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    untimed: usize,
    /// Threads that wait with a limit and were not woken.
    timed: Vec<usize>,
}

/// Whether a wait ended by its limit.
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// See [`std::sync::WaitTimeoutResult::timed_out`].
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// See [`std::sync::Condvar::new`].
    pub fn new() -> Condvar {
        Condvar::default()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`std::sync::Condvar::wait`].
    pub fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> LockResult<MutexGuard<'m, T>> {
        self.waiting().untimed += 1;
        let woken = self.untimed.wait(guard.guard);
        self.waiting().untimed -= 1;
        guard.mutex.guarded_or_poisoned(woken)
    }

    /// See [`std::sync::Condvar::wait_timeout`].
    pub fn wait_timeout<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'m, T>, WaitTimeoutResult)> {
        let (me, mutex) = (me(), guard.mutex);
        self.waiting().timed.push(me);
        // The choice in here comes before the lock is free. From then on until this thread stands, no other one runs.
        drop(guard);
        if self.waiting().timed.contains(&me) {
            stand(time);
        }
        let mut waiting = self.waiting();
        let before = waiting.timed.len();
        waiting.timed.retain(|thread| *thread != me);
        let timed_out = WaitTimeoutResult(waiting.timed.len() < before);
        drop(waiting);
        match mutex.lock() {
            Ok(guard) => Ok((guard, timed_out)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), timed_out))),
        }
    }

    /// See [`std::sync::Condvar::notify_one`].
    pub fn notify_one(&self) {
        point();
        let mut waiting = self.waiting();
        let chosen = below((waiting.untimed + waiting.timed.len()).max(1));
        if chosen < waiting.timed.len() {
            end_wait(waiting.timed.swap_remove(chosen));
        } else {
            drop(waiting);
            self.untimed.notify_one();
        }
    }

    /// See [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        point();
        self.waiting().timed.drain(..).for_each(end_wait);
        self.untimed.notify_all();
    }
}

/// Something that threads share without a lock: each access is a choice, or one of several is.
#[derive(Default)]
#[repr(transparent)]
pub struct Stepped<T>(T);

impl<T> Deref for Stepped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let is_choice = |run: &mut Option<Run>| run.as_mut().is_some_and(|run| run.chance.is_one_in(run.atomics_every));
        if RUN.with_borrow_mut(is_choice) {
            shuttle::thread::sleep(Duration::ZERO);
        }
        &self.0
    }
}

impl<T> DerefMut for Stepped<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Stepped<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A value that is set once. The function that makes it must not wait for other threads, nor access what they share.
pub type OnceLock<T> = Stepped<std::sync::OnceLock<T>>;

impl<T> Stepped<std::sync::OnceLock<T>> {
    /// See [`std::sync::OnceLock::new`].
    pub const fn new() -> OnceLock<T> {
        Stepped(std::sync::OnceLock::new())
    }
}

/// Atomics.
pub mod atomic {
    pub use std::sync::atomic::{Ordering, compiler_fence, fence};

    use super::Stepped;

    /// See [`std::sync::atomic::AtomicPtr`].
    pub type AtomicPtr<T> = Stepped<std::sync::atomic::AtomicPtr<T>>;

    impl<T> Stepped<std::sync::atomic::AtomicPtr<T>> {
        /// See [`std::sync::atomic::AtomicPtr::new`].
        pub const fn new(value: *mut T) -> AtomicPtr<T> {
            Stepped(std::sync::atomic::AtomicPtr::new(value))
        }
    }

    macro_rules! atomics {
        ($($name:ident $of:ty),*) => {$(
            #[doc = concat!("See [`std::sync::atomic::", stringify!($name), "`].")]
            pub type $name = Stepped<std::sync::atomic::$name>;

            impl Stepped<std::sync::atomic::$name> {
                /// With this value.
                pub const fn new(value: $of) -> $name {
                    Stepped(std::sync::atomic::$name::new(value))
                }
            }

            impl From<$of> for $name {
                fn from(value: $of) -> $name {
                    $name::new(value)
                }
            }
        )*};
    }

    atomics!(AtomicBool bool, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize);
}
