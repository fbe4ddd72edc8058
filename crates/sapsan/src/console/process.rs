//! The end of the process: the signals that ask for it, and the exit statuses besides 0 and 1.

use server::Termination;

/// Exit status of a process that a second signal ended, as shells count it (128 + SIGINT).
pub(crate) const CUT_STATUS: i32 = 130;
/// Exit status of a server that lost an event loop: a fault of the program (EX_SOFTWARE of sysexits.h).
pub(crate) const BROKEN_STATUS: i32 = 70;

/// Takes SIGTERM and SIGINT. To be called before any other thread starts: threads inherit the signals' mask.
pub(crate) fn claim_signals() -> Result<Termination, String> {
    Termination::claim().map_err(signal_error)
}

/// Takes SIGHUP too.
pub(crate) fn claim_signals_with_hangup() -> Result<Termination, String> {
    Termination::claim_with_hangup().map_err(signal_error)
}

fn signal_error(error: std::io::Error) -> String {
    format!("cannot wait for signals: {error}")
}
