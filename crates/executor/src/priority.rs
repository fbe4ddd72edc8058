//! The priority of a thread: work that may take long gives way to the threads that clients wait for, and not to the whole
//! machine.
//!
//! - Its nice value is a little above theirs: it decides where two threads of ours have work all the time.
//! - It asks now and then whether one of them waits for a processor, and gives up its own then. Linux lets a thread of
//!   any priority go on until its slice is over, which it sees at a tick: beside scans, one GET in a hundred waited 1.8 ms for
//!   its loop's core, and 0.11 ms where scans give the core up like this.
//!
//! The nicest value of all, 19, and giving the core up every 50 µs whoever wants it, served our loops as well; but beside four busy
//! processes on two cores such a thread did a ten-thousandth of its work, and like this a sixth. The policies SCHED_IDLE and SCHED_BATCH
//! and a longer slice gained nothing: with a long slice a thread that gave up its core kept others from it later.
#![allow(unsafe_code)] // setpriority(2) for a thread has no safe binding among our libraries.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread that gives way works between two questions whether somebody waits, each of which costs about a microsecond.
const WORK_AT_A_TIME: Duration = Duration::from_micros(50);

thread_local! {
    /// Since when this thread has worked; none where it does not give way.
    static WORKS_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Beside a thread of the usual priority such a thread gets two fifths of a core, alone all of it.
const NICE: libc::c_int = 2;

/// Has the calling thread give way, for as long as it lives. Where the system refuses the nice value, it stays as it was.
pub fn give_way() {
    // SAFETY: the call reads no memory. On Linux the id 0 is the calling thread's, not the process's (setpriority(2),
    // "C library/kernel differences").
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    WORKS_SINCE.set(Some(Instant::now()));
}

/// Has the calling thread give up its core while this lives, as often as [`let_others`] is called, at the priority that it has.
#[must_use]
pub struct GivingUp(Option<Instant>);

impl GivingUp {
    /// From now on.
    pub fn begin() -> GivingUp {
        GivingUp(WORKS_SINCE.replace(Some(Instant::now())))
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        WORKS_SINCE.set(self.0);
    }
}

/// To be called often by what works long, with the time: a thread that gives way asks `do_others_wait`, if it has not done so for
/// a while, and then gives up its core. Tells whether it did.
pub fn let_others(now: Instant, do_others_wait: impl FnOnce() -> bool) -> bool {
    let Some(since) = WORKS_SINCE.get() else { return false };
    if now.saturating_duration_since(since) < WORK_AT_A_TIME {
        return false;
    }
    // Not the time after it: what the others took is no work of this thread, but a call that is a little early costs little.
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
