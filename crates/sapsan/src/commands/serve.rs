//! `sapsan serve CONFIG --data DIR`: the service, until SIGTERM or Ctrl-C. SIGHUP has the file read again.

use super::Outcome;
use crate::cli::Serve;
use server::config::ServiceConfig;
use server::{Running, Signal, Termination};
use std::io::Write;

/// Exit status of a process that a second signal ended, as shells count it (128 + SIGINT).
const CUT_STATUS: i32 = 130;

pub(crate) fn run(arguments: &Serve) -> Outcome {
    crate::allocator::give_back_at_once();
    // First of all: threads started before it would not have the signals blocked.
    let termination = Termination::claim_with_hangup().map_err(signal_error)?;
    let _log = super::logging::start();
    let mut config = ServiceConfig::load(&arguments.config, &arguments.set).map_err(|error| error.to_string())?;
    config.server.http = arguments.http.unwrap_or(config.server.http);
    if let Some(folder) = &arguments.backups {
        config.server.backups = Some(folder.clone());
    }
    if let Some(threads) = arguments.threads {
        config.server.set_threads(threads).map_err(|problem| format!("--threads {threads}: {problem}"))?;
    }
    let running = server::start(&config, &arguments.data).map_err(|error| error.to_string())?;
    announce(&format!("listening on http://{}", running.address()));
    end_on_signal(termination, running, || ())
}

pub(super) fn claim_signals() -> Result<Termination, String> {
    Termination::claim().map_err(signal_error)
}

fn signal_error(error: std::io::Error) -> String {
    format!("cannot wait for signals: {error}")
}

/// Tells on standard output what other programs may wait for.
pub(super) fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever started the server may have closed its output: serving goes on.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Waits for the first signal, drains, ends. A second signal ends the process at once, after `at_cut`: all that was
/// acknowledged is on disk already.
pub(super) fn end_on_signal(
    termination: Termination,
    running: Running,
    at_cut: impl FnOnce() + Send + 'static,
) -> Outcome {
    while termination.wait() == Signal::Hangup {
        running.reload();
    }
    eprintln!("sapsan: draining; a second signal ends it at once");
    running.drain();
    std::thread::spawn(move || {
        while termination.wait() == Signal::Hangup {}
        at_cut();
        std::process::exit(CUT_STATUS);
    });
    running.join().map_err(|error| format!("while ending: {error}"))
}
