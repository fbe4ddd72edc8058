//! SIGTERM and SIGINT are waited for instead of killing the process.
#![allow(unsafe_code)] // raise has no safe binding among our libraries

use reactor::signals::{Signal, Termination};

#[test]
fn both_signals_are_waited_for() {
    let termination = Termination::claim().expect("valid signals");
    for (number, signal) in [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt)] {
        // SAFETY: no pointers; raise sends to the calling thread, which has blocked the signal.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        assert_eq!(termination.wait(), signal);
    }
}
