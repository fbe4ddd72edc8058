//! From a prepared configuration to a running server, and its end.

use super::preparing::{ServerStartError, complete, log_dropped, open_folder, routes};
use super::reload::ReloadThread;
use crate::changes::Feed;
use crate::config::memory::{
    BEHIND_BYTES_MAX, Division, FURTHER_CONNECTIONS, INPUT_BYTES_MAX, OUTPUT_HIGH_WATER, RESERVED_CONNECTIONS,
};
use crate::config::{AdminListener, ServerConfig, ServiceConfig, TlsConfig, lints};
use crate::metrics::sources::Sources;
use crate::reads::cold::ColdReads;
use crate::routing::routes::Routing;
use crate::routing::switch::{AdminEntrance, Switch};
use crate::service::{Pools, Service, Shared};
use crate::threads::query_pool::QueryPool;
use executor::ThreadPool;
use http::{AccessLog, ClientLimits, Deadlines, HttpServer, QueuedWriter, QueuedWriterThread};
use reactor::{Descriptors, ListenerSettings, Reactor};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The settings of addresses, for messages.
const HTTP_SETTING: &str = "--http ADDRESS:PORT";
const ADMIN_SETTING: &str = "`[server] admin`";
/// Descriptors for files: those of the data folder (about ten), of queries that sort on disk, of a backup, of the configuration;
/// and for reserved connections.
const OWN_DESCRIPTORS: u64 = 40 + FURTHER_CONNECTIONS as u64;
/// With fewer connections a server does not start: a few idle clients would take all of them.
const CONNECTIONS_LEAST: u64 = 16;

/// A running server.
pub struct RunningServer {
    reactor: reactor::RunningReactor,
    /// Ends before the service.
    reloads: ReloadThread,
    server: Arc<HttpServer<Switch>>,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    drain: Duration,
    /// Writes the access log. Ended after the loops, so that their queued lines are written.
    log: Option<QueuedWriterThread>,
}

impl RunningServer {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the general API's own listener, if it has one with an address.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Accepts no more connections, lets the open ones finish until the configured deadline, and closes the rest. A running
    /// backup or verification is stopped, and consumers of changes are notified.
    pub fn drain(&self) {
        let current = self.server.service().current();
        let service = &current.service;
        service.backups.give_up();
        service.verifications.give_up();
        service.feed.end();
        self.reactor.drain(self.drain);
    }

    /// Sets a function that is called once an event loop has ended by itself (a fault of the program, or of the system): the
    /// other loops end too, and nothing is served any more. It runs on that loop's thread, and may end the process.
    pub fn on_broken(&self, call: impl FnOnce() + Send + 'static) {
        self.reactor.on_broken(call);
    }

    /// Reads the configuration file again, as `POST /_/config/reload` does; the log has the result.
    pub fn reload(&self) {
        self.server.service().current().service.reloads.ask_by_signal();
    }

    /// Waits for the loops to end, then closes the store.
    pub fn join(self) -> std::io::Result<()> {
        let outcome = self.reactor.join();
        self.server.service().current().service.queries.stop();
        drop(self.reloads);
        drop(self.server);
        drop(self.log);
        outcome
    }
}

/// The limits that follow from the memory setting, in words: those that a client can reach.
pub fn capacity(settings: &ServerConfig) -> String {
    let division = Division::of(settings);
    let written = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
    format!(
        "memory = \"{}\" with {} threads: {} connections; a document with its index entries up to {}, a result up to {}",
        crate::config::size::written(settings.memory_bytes),
        settings.threads,
        division.connections,
        written(division.transaction_bytes),
        written(division.query_bytes),
    )
}

/// Raises the limit of descriptors as far as permitted, and lowers the number of connections to what it leaves: an accept that fails
/// for want of a descriptor would come too late, when the store has none either.
fn within_descriptors(mut division: Division, loops: usize) -> Result<Division, ServerStartError> {
    let descriptors = Descriptors::raised();
    let most =
        descriptors.connections(loops, OWN_DESCRIPTORS, CONNECTIONS_LEAST).map_err(ServerStartError::Descriptors)?;
    let (descriptors, wanted) = (descriptors.limit, division.connections);
    if most < wanted {
        let why = "the limit of descriptors leaves fewer connections than the configuration: raise it with `ulimit -n`";
        tracing::warn!(descriptors, connections_max = most, wanted, "{why}");
    }
    division.connections = wanted.min(most);
    Ok(division)
}

/// Tries the address, so that a port in use is reported before a data folder is made or its log replayed.
fn try_address(address: SocketAddr, setting: &'static str) -> Result<(), ServerStartError> {
    if address.port() == 0 {
        return Ok(());
    }
    TcpListener::bind(address).map(drop).map_err(|source| not_listening(address, setting, source))
}

fn not_listening(address: impl std::fmt::Display, setting: &'static str, source: std::io::Error) -> ServerStartError {
    ServerStartError::Listen { address: address.to_string(), setting, source }
}

fn unix_not_listening(path: &Path, source: std::io::Error) -> ServerStartError {
    not_listening(format_args!("unix:{}", path.display()), ADMIN_SETTING, source)
}

/// The files were checked with the configuration, and have changed since.
fn tls_not_read(problem: String) -> ServerStartError {
    ServerStartError::System(std::io::Error::other(format!("`[server] tls`: {problem}")))
}

/// The access log on standard output, if the file enables it.
fn access_log(config: &ServiceConfig) -> Result<(Option<AccessLog>, Option<QueuedWriterThread>), ServerStartError> {
    if !config.server.access_log {
        return Ok((None, None));
    }
    let (writer, thread) = QueuedWriter::start(std::io::stdout()).map_err(ServerStartError::System)?;
    Ok((Some(AccessLog::new(writer)), Some(thread)))
}

/// The threads behind the loops: no kind waits for another.
fn start_pools(settings: &ServerConfig, division: &Division) -> Result<Pools, executor::ExecutorStartError> {
    let backup = executor::PoolSettings { threads: 1, queue_max: 1, name: "backup".to_owned() };
    Ok(Pools {
        cold: ColdReads::start(settings.cold_model, division.cold_threads)?,
        long: QueryPool::start(settings.query_model, division, settings.query)?,
        // One at a time.
        backup: settings.backups.as_ref().map(|_| ThreadPool::new(backup)).transpose()?,
    })
}

/// Opens the data folder and serves it. With `[server] access_log = true` each request is logged on standard output.
pub fn start(config: &ServiceConfig, data: &Path) -> Result<RunningServer, ServerStartError> {
    let started = Instant::now();
    let settings = &config.server;
    let division = within_descriptors(Division::of(settings), settings.threads)?;
    let mut reactor = Reactor::new(reactor_settings(settings, &division)).map_err(ServerStartError::System)?;
    let mut documents = complete(config)?;
    documents.builds_indexes_later = true;
    try_address(settings.http, HTTP_SETTING)?;
    match &settings.admin {
        AdminListener::Address(address) => try_address(*address, ADMIN_SETTING)?,
        AdminListener::Unix(path) => reactor::try_unix(path).map_err(|source| unix_not_listening(path, source))?,
        AdminListener::Http | AdminListener::Off => {}
    }
    let (database, recovery) = open_folder(config, &documents, data)?;
    let torn = recovery.torn_bytes;
    tracing::info!(batches = recovery.batches, torn, elapsed = ?recovery.elapsed, "the store is open");
    log_dropped(&database);
    let (endpoints, openapi) = routes(config, &database, Some(data))?;
    let pools = start_pools(settings, &division)
        .map_err(|error| ServerStartError::System(std::io::Error::other(error.to_string())))?;
    let shared = Arc::new(Shared::new(settings, pools, reactor.loops(), (&division, data)));
    shared.tokens.replace(&config.tokens);
    let feed = Arc::new(Feed::new(shared.replies.clone(), &division, &shared.panics));
    let service = Service::new(config.errors.clone(), openapi, database, shared, feed);
    service.feed.start(&service.database).map_err(ServerStartError::System)?;
    service.expiry.start(&service.database).map_err(ServerStartError::System)?;
    let (access_log, log) = access_log(config)?;
    let slow_log = settings.slow_log.map(|after| service.slow.log(after, &service.series));
    let server = Arc::new(HttpServer::new(
        Switch::new(Routing::new(service, endpoints)),
        http::HttpSettings { access_log, slow_log, ..http_settings(config, &division) },
    ));
    let tls = settings.tls.as_ref().map(TlsConfig::server).transpose().map_err(tls_not_read)?;
    let tls = tls.map(|tls| tls.with_handshake_max(settings.head));
    let factory = Arc::clone(&server) as Arc<dyn reactor::Factory>;
    let mut listen = |address, factory, setting, connections_beyond| {
        let own = ListenerSettings { tls: tls.clone(), connections_beyond, ..ListenerSettings::default() };
        let (listener, bound) = reactor.bind(address, own).map_err(|source| not_listening(address, setting, source))?;
        reactor.accept_by(listener, factory);
        Ok::<SocketAddr, ServerStartError>(bound)
    };
    let address = listen(settings.http, factory, HTTP_SETTING, 0)?;
    let entrance = || Arc::new(server.beside(AdminEntrance(Arc::clone(server.service()))));
    let admin = match &settings.admin {
        AdminListener::Address(address) => Some(listen(*address, entrance(), ADMIN_SETTING, RESERVED_CONNECTIONS)?),
        AdminListener::Unix(path) => {
            let own = ListenerSettings { connections_beyond: RESERVED_CONNECTIONS, ..ListenerSettings::default() };
            let listener = reactor.bind_unix(path, own).map_err(|source| unix_not_listening(path, source))?;
            reactor.accept_by(listener, entrance());
            None
        }
        AdminListener::Http | AdminListener::Off => None,
    };
    let reactor = reactor.start().map_err(ServerStartError::System)?;
    tracing::info!(
        loops = settings.threads,
        connections_max = division.connections,
        document_bytes_max = division.transaction_bytes,
        query_result_bytes_max = division.query_bytes,
        "the memory is divided"
    );
    for lint in lints(config) {
        tracing::warn!("{lint}");
    }
    let weak = Arc::downgrade(&server);
    let http = Box::new(move || weak.upgrade().map(|server| (server.metrics(), server.series())));
    let sources = Sources { http, loops: reactor.loops().to_vec(), division, started };
    // Set only here: nobody else has the server yet.
    let _ = server.service().current().service.sources.set(sources);
    let switch = Arc::downgrade(server.service());
    let _ = server.service().current().service.newest.set(switch);
    let reloads =
        ReloadThread::start(server.service(), (config.clone(), data), tls).map_err(ServerStartError::System)?;
    Ok(RunningServer { reactor, reloads, server, address, admin, drain: settings.drain, log })
}

fn reactor_settings(settings: &ServerConfig, division: &Division) -> reactor::ReactorSettings {
    reactor::ReactorSettings {
        loops: settings.threads,
        connections_max: division.connections + RESERVED_CONNECTIONS,
        pool_bytes_max: division.spare_bytes_max(),
        held_bytes_max: division.held_bytes_max(),
        arriving_bytes_max: division.gathered_bytes,
        traffic: reactor::Traffic {
            read_bytes_per_turn: INPUT_BYTES_MAX.min(16 * 1024),
            input_bytes_max: INPUT_BYTES_MAX.max(settings.head_bytes_max),
            output_high_water: OUTPUT_HIGH_WATER,
            output_low_water: OUTPUT_HIGH_WATER / 2,
            send_rate_min: settings.send_rate_min,
            send_behind_max: settings.send,
            ..reactor::Traffic::default()
        },
        ..reactor::ReactorSettings::default()
    }
}

fn http_settings(config: &ServiceConfig, division: &Division) -> http::HttpSettings {
    let settings = &config.server;
    http::HttpSettings {
        limits: ClientLimits {
            head_bytes_max: settings.head_bytes_max,
            target_bytes_max: settings.head_bytes_max / 2,
            body_bytes_max: settings.body_bytes_max,
            held_bytes_max: BEHIND_BYTES_MAX,
            connections_max: division.connections,
            connections_reserved: RESERVED_CONNECTIONS,
            connections_per_address_max: settings.connections_per_address_max,
            ..ClientLimits::default()
        },
        deadlines: Deadlines {
            head: settings.head,
            body: settings.body,
            body_rate_min: settings.body_rate_min,
            idle: settings.idle,
            ..Deadlines::default()
        },
        date: settings.date,
        trusted_proxies: settings.trusted_proxies.clone(),
        ..http::HttpSettings::default()
    }
}
