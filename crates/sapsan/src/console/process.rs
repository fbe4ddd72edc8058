//! The end of the process: the signals that ask for it, and the exit statuses besides 0 and 1.

use server::Termination;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The file that a command writes under a temporary name: a signal removes it. A command writes one at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnfinishedFile(Arc<Mutex<Option<PathBuf>>>);

impl UnfinishedFile {
    /// The file is removed at a signal from now on.
    pub(crate) fn set(&self, file: &Path) {
        *self.lock() = Some(file.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From now on a signal removes the unfinished file and ends the process at once. For commands that have nothing else to end. To be
/// called before any other thread starts.
pub(crate) fn end_by_signal() -> Result<UnfinishedFile, String> {
    let (termination, unfinished) = (claim_signals()?, UnfinishedFile::default());
    let at_signal = unfinished.clone();
    std::thread::spawn(move || {
        termination.wait();
        // Locked until the process has ended, so that the command begins no other file.
        let file = at_signal.lock();
        if let Some(file) = file.as_deref() {
            // It may have its final name already.
            let _ = std::fs::remove_file(file);
        }
        std::process::exit(CUT_STATUS);
    });
    Ok(unfinished)
}
