//! Priority of a thread: long work yields to the threads for which clients wait, but not to every process of the machine.
//!
//! - Its nice value is a little above theirs: this decides when two of our threads have work all the time.
//! - It asks periodically whether one of them waits for a processor, and if so gives up its own. Linux lets a thread of any
//!   priority continue until its time slice is over, which it checks at a tick: with scans running, one GET in a hundred waited
//!   1.8 ms for its loop's core, and 0.11 ms if scans yield in this way.
//!
//! The highest nice value, 19, with an unconditional yield every 50 µs served our loops as well. But with four busy processes on
//! two cores such a thread did a ten-thousandth of its work; with this method it did a sixth. The policies SCHED_IDLE and
//! SCHED_BATCH and a longer slice gained nothing: with a long slice, a thread that had yielded its core kept others from it
//! later.
#![allow(unsafe_code)] // setpriority(2) for a thread has no safe binding among our libraries.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Interval at which a yielding thread asks whether another one waits; each question costs about a microsecond.
const WORK_AT_A_TIME: Duration = Duration::from_micros(50);

thread_local! {
    /// Begin of this thread's current work; none if it does not yield.
    static WORKS_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Next to a thread of the usual priority such a thread gets two fifths of a core; alone it gets all of it.
const NICE: libc::c_int = 2;

/// Makes the calling thread yield, for the rest of its life; later calls do nothing. If the system refuses the nice value, it stays
/// unchanged.
pub fn give_way() {
    if WORKS_SINCE.get().is_some() {
        return;
    }
    // SAFETY: the call reads no memory. On Linux the id 0 means the calling thread, not the process (setpriority(2), "C
    // library/kernel differences").
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    WORKS_SINCE.set(Some(Instant::now()));
}

/// While this exists, the calling thread yields its core whenever [`let_others`] finds others waiting, without a change of
/// priority.
#[must_use]
pub struct GivingUp(Option<Instant>);

impl GivingUp {
    /// Begins now.
    pub fn begin() -> GivingUp {
        GivingUp(WORKS_SINCE.replace(Some(Instant::now())))
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        WORKS_SINCE.set(self.0);
    }
}

/// Long work calls this often, with the current time. On a yielding thread, if the last question was long enough ago, it asks
/// `do_others_wait`, and yields the core if so. Returns whether it did.
pub fn let_others(now: Instant, do_others_wait: impl FnOnce() -> bool) -> bool {
    let Some(since) = WORKS_SINCE.get() else { return false };
    if now.saturating_duration_since(since) < WORK_AT_A_TIME {
        return false;
    }
    // Not the time after the yield: other threads' time is not work of this thread, but a call that is a little early costs
    // little.
    WORKS_SINCE.set(Some(now));
    let wait = do_others_wait();
    if wait {
        std::thread::yield_now();
    }
    wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gives_way_asks_once_in_a_while_whether_others_wait() {
        let began = Instant::now();
        let after = |steps| began + WORK_AT_A_TIME * steps;
        assert!(!let_others(after(1000), || true), "a thread of the usual priority goes on");
        give_way();
        let gives_up = |now| let_others(now, || true);
        assert_eq!([1000, 1000, 1001, 1001, 1003].map(after).map(gives_up), [true, false, true, false, true]);
        assert!(!let_others(after(1004), || false), "nobody waits");
        assert!(!let_others(after(1004), || true), "it has just asked");
        assert!(!let_others(began, || true), "the clock of another core may be behind");
    }

    #[test]
    fn a_thread_of_the_usual_priority_gives_its_core_up_for_a_while() {
        let later = Instant::now() + WORK_AT_A_TIME * 1000;
        let giving_up = GivingUp::begin();
        assert!(let_others(later, || true));
        drop(giving_up);
        assert!(!let_others(later + WORK_AT_A_TIME * 1000, || true));
    }
}
