//! Time limit of a query on its event loop: about a millisecond, during which all other connections of the loop wait. A query
//! that takes longer is started again on the pool, and the loop remembers for a while that queries of this kind do.
//!
//! The clock is read at the first check of a query, some ten microseconds after it began, and at each later one: a query that has
//! ended by then reads no clock.

use docs::sql::Value;
use reactor::Loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time limit of one query on its loop.
const LOOP_TIME_MAX: Duration = Duration::from_millis(1);
/// How long queries of a kind go to the pool at once after one that took longer: so at most one hundredth of a loop's time is
/// spent on attempts in vain.
const REMEMBERED: Duration = Duration::from_millis(100);
/// Number of kinds of one query that are distinguished.
const KINDS: usize = 16;

/// Whether a query's time on its loop is over.
pub(crate) struct LoopTime<'l> {
    lp: &'l Loop,
    /// Time of the first check; 0 before.
    began_ns: AtomicU64,
}

impl LoopTime<'_> {
    pub(crate) fn new(lp: &Loop) -> LoopTime<'_> {
        LoopTime { lp, began_ns: AtomicU64::new(0) }
    }

    pub(crate) fn is_over(&self) -> bool {
        let now_ns = self.lp.precise_now_ns();
        match self.began_ns.load(Ordering::Relaxed) {
            0 => self.began_ns.store(now_ns, Ordering::Relaxed),
            began_ns => return now_ns.saturating_sub(began_ns) > LOOP_TIME_MAX.as_nanos() as u64,
        }
        false
    }
}

/// The kinds of a declared query that recently took longer than the limit, and the time that each takes on the pool. A kind is
/// the set of parameters that are given: each has a plan of its own.
pub(crate) struct Habits {
    /// Base of the times of runs.
    epoch: Instant,
    /// By kind, until when it counts as long, by the loops' clock. Several kinds may share an entry.
    long_until_ns: [AtomicU64; KINDS],
    on_pool: [OnPool; KINDS],
}

impl Default for Habits {
    fn default() -> Habits {
        Habits { epoch: Instant::now(), long_until_ns: Default::default(), on_pool: Default::default() }
    }
}

/// Times of one kind on the pool.
#[derive(Default)]
struct OnPool {
    /// Moving average of the last runs; 0: none has ended.
    took_ns: AtomicU64,
    /// Start of a current run; 0: there is none.
    begun_ns: AtomicU64,
}

/// A run on the pool. It ends when it is dropped.
pub(crate) struct PoolRun<'h> {
    habits: &'h Habits,
    habit: Habit,
    began: Instant,
}

impl Drop for PoolRun<'_> {
    fn drop(&mut self) {
        self.habits.took(self.habit, self.began.elapsed());
    }
}

/// The entry of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habit(usize);

impl Habit {
    /// The kind of a query with these parameters.
    #[inline]
    pub(crate) fn of(values: &[Value<'_>]) -> Habit {
        Habit::of_given(values.iter().map(|value| !matches!(value, Value::Null)))
    }

    /// The same, from which of them are given.
    #[inline]
    pub(crate) fn of_given(given: impl Iterator<Item = bool>) -> Habit {
        let kind = given.fold(0_usize, |kind, is_given| kind << 1 | usize::from(is_given));
        Habit((kind ^ kind >> 4 ^ kind >> 8) % KINDS)
    }
}

impl Habits {
    /// Whether it most likely takes longer than a loop allows.
    #[inline]
    pub(crate) fn is_long(&self, habit: Habit, lp: &Loop) -> bool {
        let until_ns = self.long_until_ns[habit.0].load(Ordering::Relaxed);
        until_ns != 0 && lp.now_ns() < until_ns
    }

    /// Records that a run took longer than a loop allows.
    #[cold]
    pub(crate) fn set_long(&self, habit: Habit, lp: &Loop) {
        let until_ns = lp.precise_now_ns() + REMEMBERED.as_nanos() as u64;
        self.long_until_ns[habit.0].store(until_ns, Ordering::Relaxed);
    }

    /// Records the start of a run on the pool.
    pub(crate) fn begin(&self, habit: Habit) -> PoolRun<'_> {
        let began = Instant::now();
        let now_ns = began.duration_since(self.epoch).as_nanos() as u64;
        let begun_ns = &self.on_pool[habit.0].begun_ns;
        let _ = begun_ns.compare_exchange(0, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed);
        PoolRun { habits: self, habit, began }
    }

    /// Expected time of a run on the pool: as the last ones, and at least as long as a current one has taken. Before the first
    /// has ended, at least the limit of a loop, which it has exceeded.
    pub(crate) fn expected(&self, habit: Habit) -> Duration {
        let OnPool { took_ns, begun_ns } = &self.on_pool[habit.0];
        let runs = match begun_ns.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            begun_ns => self.epoch.elapsed().saturating_sub(Duration::from_nanos(begun_ns)),
        };
        match took_ns.load(Ordering::Relaxed) {
            0 => LOOP_TIME_MAX.max(runs),
            took_ns => Duration::from_nanos(took_ns).max(runs),
        }
    }

    /// Records the time of a run on the pool.
    fn took(&self, habit: Habit, time: Duration) {
        let OnPool { took_ns, begun_ns } = &self.on_pool[habit.0];
        begun_ns.store(0, Ordering::Relaxed);
        let time_ns = time.as_nanos() as u64;
        let before_ns = took_ns.load(Ordering::Relaxed);
        let about_ns = if before_ns == 0 { time_ns } else { before_ns - before_ns / 4 + time_ns / 4 };
        took_ns.store(about_ns.max(1), Ordering::Relaxed);
        // Several threads may have shared it.
        if time < LOOP_TIME_MAX / 4 {
            self.long_until_ns[habit.0].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{Reactor, ReactorSettings};

    #[test]
    fn a_kind_that_took_longer_is_long_for_a_while_and_others_are_not() {
        let lp = Reactor::new(ReactorSettings { loops: 1, ..ReactorSettings::default() }).unwrap().loops().remove(0);
        let habits = Habits::default();
        let (one, other) = (Habit::of(&[Value::Integer(1), Value::Null]), Habit::of(&[Value::Null, Value::Integer(1)]));
        assert_eq!(one, Habit::of(&[Value::text("a"), Value::Null]));
        assert!(!habits.is_long(one, &lp));
        habits.set_long(one, &lp);
        assert!(habits.is_long(one, &lp) && !habits.is_long(other, &lp));
        habits.took(one, LOOP_TIME_MAX);
        assert!(habits.is_long(one, &lp));
        habits.took(one, LOOP_TIME_MAX / 5);
        assert!(!habits.is_long(one, &lp), "where it was quick elsewhere, the loop tries again");
    }

    #[test]
    fn a_kind_is_expected_to_take_what_it_took_and_at_least_what_a_run_takes_already() {
        let (habits, one, other) = (Habits::default(), Habit(1), Habit(2));
        assert_eq!(habits.expected(one), LOOP_TIME_MAX);
        let run = habits.begin(one);
        std::thread::sleep(LOOP_TIME_MAX * 3);
        assert!(habits.expected(one) >= LOOP_TIME_MAX * 3);
        drop(run);
        let took = habits.expected(one);
        assert!(took >= LOOP_TIME_MAX * 3, "{took:?}");
        assert_eq!(habits.expected(one), took, "nothing runs");
        habits.took(one, took * 5);
        assert!(habits.expected(one) > took && habits.expected(one) < took * 3, "one of many may be an exception");
        assert_eq!(habits.expected(other), LOOP_TIME_MAX);
    }

    #[test]
    fn a_query_has_its_time_from_the_first_question_on() {
        let lp = Reactor::new(ReactorSettings { loops: 1, ..ReactorSettings::default() }).unwrap().loops().remove(0);
        let time = LoopTime::new(&lp);
        assert!(!time.is_over());
        std::thread::sleep(LOOP_TIME_MAX * 2);
        assert!(time.is_over());
    }
}
