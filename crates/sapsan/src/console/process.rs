//! The end of the process: the signals that ask for it, and the exit statuses besides 0 and 1.

use server::Termination;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file that is being written under a temporary name, for the end by a signal. A command writes one at a time.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

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

/// From now on a signal ends the process at once, and removes the file of [`remove_at_signal`]. For commands that have nothing else
/// to end. To be called before any other thread starts.
pub(crate) fn end_by_signal() -> Result<(), String> {
    let termination = claim_signals()?;
    std::thread::spawn(move || {
        termination.wait();
        // Kept locked until the process has ended: no other file is begun.
        let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = unfinished.as_deref() {
            // It may have its final name already.
            let _ = std::fs::remove_file(file);
        }
        std::process::exit(CUT_STATUS);
    });
    Ok(())
}

/// Has a signal remove this file.
pub(crate) fn remove_at_signal(file: &Path) {
    *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = Some(file.to_owned());
}
