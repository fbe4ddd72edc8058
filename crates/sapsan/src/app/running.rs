//! A running application: start and stop.

use super::application::{App, AppSettings};
use super::start_error::StartError;
use crate::dispatch::{Environment, Service};
use http::HttpServer;
use reactor::Reactor;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Prefix of a Unix socket's address.
const UNIX: &str = "unix:";
/// The longest drain: a hundred years.
const DRAIN_LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

impl App {
    /// Serves on this address (`127.0.0.1:8080`, `[::]:80`, `unix:/run/app.sock`; port 0 is any free one) until the process receives
    /// SIGTERM or SIGINT (Ctrl-C). Then it accepts no more connections, waits for running requests for up to [`App::drain_max`], and
    /// returns. A second signal ends the process at once.
    pub fn serve(self, address: &str) -> Result<(), StartError> {
        serve(self, address)
    }

    /// Starts serving and returns at once, with a handle.
    pub fn start(self, address: &str) -> Result<RunningApp, StartError> {
        start(self, address)
    }
}

/// An application that is being served. Dropping it stops it.
pub struct RunningApp {
    reactor: Option<reactor::RunningReactor>,
    server: Arc<HttpServer<Service>>,
    environment: Arc<Environment>,
    addresses: Vec<SocketAddr>,
    drain_max: Duration,
}

impl RunningApp {
    /// The first address on which it listens that is not a Unix socket.
    ///
    /// # Panics
    ///
    /// If it listens on Unix sockets only.
    pub fn address(&self) -> SocketAddr {
        self.addresses.first().copied().expect("it listens on an address that is no Unix socket")
    }

    /// All addresses on which it listens, except Unix sockets.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The counters of its server.
    pub fn metrics(&self) -> http::MetricsTotal {
        self.server.metrics()
    }

    /// Calls `call` when an event loop has ended by itself, after a panic or an error of the kernel. All loops end then, and a program
    /// that waits only for a signal would wait for ever.
    pub fn on_broken(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(reactor) = &self.reactor {
            reactor.on_broken(call);
        }
    }

    /// Accepts no more connections, waits for running requests for up to [`App::drain_max`], cuts the rest, and returns.
    pub fn stop(mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the application did not end well");
        }
    }

    /// Begins to stop as [`RunningApp::stop`] does, without waiting for the end.
    pub fn drain(&self) {
        if let Some(reactor) = &self.reactor {
            reactor.drain(self.drain_max);
        }
    }

    fn end(&mut self) -> std::io::Result<()> {
        let Some(reactor) = self.reactor.take() else { return Ok(()) };
        let now = Instant::now();
        let deadline = now.checked_add(self.drain_max).unwrap_or(now + DRAIN_LONGEST);
        reactor.drain(self.drain_max);
        let outcome = reactor.join();
        self.environment.resources.pools.drain(deadline);
        outcome
    }
}

impl Drop for RunningApp {
    fn drop(&mut self) {
        // A dropped handle has no caller to report an error to.
        let _ = self.end();
    }
}

fn start(app: App, address: &str) -> Result<RunningApp, StartError> {
    let mut wanted = vec![address.to_owned()];
    wanted.extend(app.addresses.iter().cloned());
    let (built, settings) = app.build()?;
    let AppSettings { threads, http, drain_max } = settings;
    let reactor_settings = reactor::ReactorSettings { loops: threads, ..reactor::ReactorSettings::default() };
    let mut reactor = Reactor::new(reactor_settings)?;
    let environment = Arc::clone(&built.environment);
    let server = Arc::new(HttpServer::new(Service { built }, http));
    let mut addresses = Vec::new();
    for address in wanted {
        let factory = Arc::clone(&server) as Arc<dyn reactor::Factory>;
        let listening = match address.strip_prefix(UNIX) {
            Some(path) => reactor.listen_unix(Path::new(path), factory).map(|()| None),
            None => parsed(&address).and_then(|address| reactor.listen(address, factory).map(Some)),
        };
        addresses.extend(listening.map_err(|source| StartError::Listen { address, source })?);
    }
    let reactor = reactor.start()?;
    Ok(RunningApp { reactor: Some(reactor), server, environment, addresses, drain_max })
}

fn parsed(address: &str) -> std::io::Result<SocketAddr> {
    let wrong = || "an address is ADDRESS:PORT, such as 127.0.0.1:8080 or [::]:80, or unix:PATH";
    address.parse().map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidInput, wrong()))
}

fn serve(app: App, address: &str) -> Result<(), StartError> {
    // The signals are handled, not blocked: a mask set here would not cover threads that run already (those of a database, say), so a
    // signal could still end the process through them.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // A second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_ending))?;
    }
    let mut running = start(app, address)?;
    let handle = signals.handle();
    if let Some(reactor) = &running.reactor {
        reactor.on_broken(move || handle.close());
    }
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "the application ends");
    }
    is_ending.store(true, Ordering::SeqCst);
    Ok(running.end()?)
}
