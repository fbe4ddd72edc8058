//! The priority of a thread: work that may take long gives way to what clients wait for.
#![allow(unsafe_code)] // setpriority(2) for a thread has no safe binding among our libraries.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread that gives way works before it looks whether somebody waits for its core. Giving it up where nobody does
/// costs a third of a microsecond.
const WORK_AT_A_TIME: Duration = Duration::from_micros(50);

thread_local! {
    /// Since when this thread has worked; none where it does not give way.
    static WORKS_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The nicest value: beside a thread of the usual priority such a thread gets about a seventieth of a core, alone all of it.
const NICEST: libc::c_int = 19;

/// Has the calling thread give way to all of the usual priority, for as long as it lives. Where the system refuses, it
/// stays as it was.
pub fn give_way() {
    // SAFETY: the call reads no memory. On Linux the id 0 is the calling thread's, not the process's (setpriority(2),
    // "C library/kernel differences").
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) };
    WORKS_SINCE.set(Some(Instant::now()));
}

/// To be called often by what works long, with the time: on a thread that gives way, whoever waits for its core has it now, if
/// the last such moment was long enough ago. Tells whether it was one.
///
/// The priority alone is not enough. Linux lets a thread of any priority go on until its slice is over, which it sees at
/// a tick: beside scans, one GET in a hundred waited 1.8 ms for its loop's core, and 0.11 ms where scans give the core up
/// like this. The policy SCHED_IDLE, for all that it promises, changed nothing.
pub fn let_others(now: Instant) -> bool {
    let Some(since) = WORKS_SINCE.get() else { return false };
    if now.saturating_duration_since(since) < WORK_AT_A_TIME {
        return false;
    }
    std::thread::yield_now();
    // Not the time after it: what the others took is no work of this thread, but a call that is a little early costs little.
    WORKS_SINCE.set(Some(now));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_lets_others_once_in_a_while_from_when_it_gives_way() {
        let began = Instant::now();
        let after = |steps| began + WORK_AT_A_TIME * steps;
        assert!(!let_others(after(1000)), "a thread of the usual priority goes on");
        give_way();
        let begins: Vec<bool> = [1000, 1000, 1001, 1001, 1003].map(after).map(let_others).to_vec();
        assert_eq!(begins, [true, false, true, false, true]);
        assert!(!let_others(began), "the clock of another core may be behind");
    }
}
