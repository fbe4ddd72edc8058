//! What one query may cost its event loop: about a millisecond, as long wait all of its connections. What needs more is begun anew
//! on the pool, and the loop remembers for a while that queries of this kind do.
//!
//! The clock is read at the first question of a query, some ten microseconds after it began, and at each one after it: a query
//! that is over by then costs none.

use docs::sql::Value;
use reactor::Loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What one query may cost its loop.
const LOOP_TIME_MAX: Duration = Duration::from_millis(1);
/// How long queries of a kind go to the pool at once after one that took longer: so one hundredth of a loop's time at most
/// is spent on trying a kind in vain.
const REMEMBERED: Duration = Duration::from_millis(100);
/// Kinds of one query that are remembered apart.
const KINDS: usize = 16;

/// Whether a query's time on its loop is over.
pub(crate) struct LoopTime<'l> {
    lp: &'l Loop,
    /// When it was asked for the first time; 0 before.
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

/// Which kinds of a declared query took longer lately. A kind is the set of parameters that are given: each has a plan of its own.
#[derive(Default)]
pub(crate) struct Habits {
    /// By kind, until when it is taken to be long, by the loops' clock. Several kinds may share a place.
    long_until_ns: [AtomicU64; KINDS],
}

/// One kind's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habit(usize);

impl Habit {
    /// That of a query with these parameters.
    #[inline]
    pub(crate) fn of(values: &[Value<'_>]) -> Habit {
        let given = |kind: usize, value: &Value<'_>| kind * 2 + usize::from(!matches!(value, Value::Null));
        let kind = values.iter().fold(0, given);
        Habit((kind ^ kind >> 4 ^ kind >> 8) % KINDS)
    }
}

impl Habits {
    /// Whether it most likely takes longer than a loop has.
    #[inline]
    pub(crate) fn is_long(&self, habit: Habit, lp: &Loop) -> bool {
        let until_ns = self.long_until_ns[habit.0].load(Ordering::Relaxed);
        until_ns != 0 && lp.now_ns() < until_ns
    }

    /// One took longer, now.
    #[cold]
    pub(crate) fn set_long(&self, habit: Habit, lp: &Loop) {
        let until_ns = lp.precise_now_ns() + REMEMBERED.as_nanos() as u64;
        self.long_until_ns[habit.0].store(until_ns, Ordering::Relaxed);
    }

    /// One took so long elsewhere.
    pub(crate) fn took(&self, habit: Habit, time: Duration) {
        // Several threads may have shared it.
        if time < LOOP_TIME_MAX / 4 {
            self.long_until_ns[habit.0].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{Reactor, Settings};

    #[test]
    fn a_kind_that_took_longer_is_long_for_a_while_and_others_are_not() {
        let lp = Reactor::new(Settings { loops: 1, ..Settings::default() }).unwrap().loops().remove(0);
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
    fn a_query_has_its_time_from_the_first_question_on() {
        let lp = Reactor::new(Settings { loops: 1, ..Settings::default() }).unwrap().loops().remove(0);
        let time = LoopTime::new(&lp);
        assert!(!time.is_over());
        std::thread::sleep(LOOP_TIME_MAX * 2);
        assert!(time.is_over());
    }
}
