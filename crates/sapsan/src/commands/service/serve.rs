//! `sapsan serve CONFIG --data DIR`: the service, until SIGTERM or Ctrl-C. SIGHUP has the file read again.

use crate::cli::Serve;
use crate::console::{Outcome, logging, output, process};
use server::config::{AdminListener, ServiceConfig};
use server::{RunningServer, Signal, Termination};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Longest wait for writing the drain's notice if standard error is not read.
const NOTICE_WAIT: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &Serve) -> Outcome {
    crate::allocator::give_back_at_once();
    // First of all: threads started before it would not have the signals blocked.
    let termination = process::claim_signals_with_hangup()?;
    let log = logging::start(arguments.log);
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
    running.on_broken(log.exit(process::BROKEN_STATUS));
    output::announce(format_args!("listening on http://{}", running.address()));
    if let Some(address) = running.admin_address() {
        output::announce(format_args!("the general API is at http://{address}/_/"));
    }
    if let AdminListener::Unix(path) = &config.server.admin {
        output::announce(format_args!("the general API is at unix:{}", path.display()));
    }
    end_on_signal(termination, running, || ())
}

/// Waits for the first signal, drains, ends. A second signal ends the process at once, after `at_cut`: all that was
/// acknowledged is on disk already.
pub(super) fn end_on_signal(
    termination: Termination,
    running: RunningServer,
    at_cut: impl FnOnce() + Send + 'static,
) -> Outcome {
    while termination.wait() == Signal::Hangup {
        running.reload();
    }
    running.drain();
    std::thread::spawn(move || {
        while termination.wait() == Signal::Hangup {}
        at_cut();
        std::process::exit(process::CUT_STATUS);
    });
    let (end, ended) = channel();
    std::thread::spawn(move || {
        output::notice("sapsan: draining; a second signal ends it at once");
        // It may have been given up.
        let _ = end.send(());
    });
    let _ = ended.recv_timeout(NOTICE_WAIT);
    running.join().map_err(|error| format!("while ending: {error}"))
}
