//! `sapsan serve CONFIG --data DIR`: the service, until SIGTERM or Ctrl-C. SIGHUP has the file read again.

use super::{Outcome, output};
use crate::cli::Serve;
use server::config::{AdminListener, ServiceConfig};
use server::{Running, Signal, Termination};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Exit status of a process that a second signal ended, as shells count it (128 + SIGINT).
const CUT_STATUS: i32 = 130;
/// Exit status of a server that lost an event loop: a fault of the program (EX_SOFTWARE of sysexits.h).
pub(super) const BROKEN_STATUS: i32 = 70;
/// How long the drain's notice may take where nobody reads standard error.
const NOTICE_WAIT: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &Serve) -> Outcome {
    crate::allocator::give_back_at_once();
    // First of all: threads started before it would not have the signals blocked.
    let termination = Termination::claim_with_hangup().map_err(signal_error)?;
    let log = super::logging::start(arguments.log);
    let mut config = ServiceConfig::load(&arguments.config, &arguments.set).map_err(|error| error.to_string())?;
    config.server.http = arguments.http.unwrap_or(config.server.http);
    config.docs.may_drop = arguments.allow_drop;
    if let Some(folder) = &arguments.backups {
        config.server.backups = Some(folder.clone());
    }
    if let Some(threads) = arguments.threads {
        config.server.set_threads(threads).map_err(|problem| format!("--threads {threads}: {problem}"))?;
    }
    let running = server::start(&config, &arguments.data).map_err(|error| error.to_string())?;
    // Without one of its loops it would keep connections that nobody serves. All that was acknowledged is on disk already.
    running.on_broken(log.exit(BROKEN_STATUS));
    output::announce(format_args!("listening on http://{}", running.address()));
    if let Some(address) = running.admin_address() {
        output::announce(format_args!("the general API is at http://{address}/_/"));
    }
    if let AdminListener::Unix(path) = &config.server.admin {
        output::announce(format_args!("the general API is at unix:{}", path.display()));
    }
    end_on_signal(termination, running, || ())
}

pub(super) fn claim_signals() -> Result<Termination, String> {
    Termination::claim().map_err(signal_error)
}

fn signal_error(error: std::io::Error) -> String {
    format!("cannot wait for signals: {error}")
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
    running.drain();
    std::thread::spawn(move || {
        while termination.wait() == Signal::Hangup {}
        at_cut();
        std::process::exit(CUT_STATUS);
    });
    let (told, is_told) = channel();
    std::thread::spawn(move || {
        output::notice("sapsan: draining; a second signal ends it at once");
        // It may have been given up.
        let _ = told.send(());
    });
    let _ = is_told.recv_timeout(NOTICE_WAIT);
    running.join().map_err(|error| format!("while ending: {error}"))
}
