//! `[server]`: listeners and limits.

use super::cors::CorsConfig;
use super::tls::TlsConfig;
use http::TrustedProxies;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// When it is on disk.
    Commit,
    /// At once; the log is synced at this interval.
    Interval(Duration),
    /// At once; the log is synced at checkpoints only.
    None,
}

/// Execution model of work that blocks: those models whose threads may wait for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockingModel {
    /// A fixed set of threads.
    #[default]
    Pool,
    /// A fixed set of threads; as many as there are cores compute, and the others wait for the disk.
    IoAware,
    /// A fixed set of threads, of rayon.
    WorkStealing,
}

impl BlockingModel {
    /// With this number of threads.
    pub(crate) fn with_threads(self, threads: usize) -> executor::Model {
        match self {
            Self::Pool => executor::Model::Pool { threads },
            Self::IoAware => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                executor::Model::IoAware { threads, running_max: cores.min(threads) }
            }
            Self::WorkStealing => executor::Model::WorkStealing { threads },
        }
    }
}

/// Listener of the general API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdminListener {
    /// The HTTP listener, beside the declared endpoints.
    #[default]
    Http,
    /// On a listener of its own.
    Address(SocketAddr),
    /// A Unix socket of its own at this path.
    Unix(PathBuf),
    /// None, except for health.
    Off,
}

/// The values of `[server]`, checked, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Approximate bytes of memory of the file's endpoints and their statements. Not a key of the file.
    pub(crate) statement_bytes: usize,
    /// Bytes of counters of the endpoints on each event loop. Not a key of the file.
    pub(crate) series_bytes: usize,
    /// Address of the HTTP listener.
    pub http: SocketAddr,
    /// Listener of the general API.
    pub admin: AdminListener,
    /// Names of this machine that requests to the general API may have as host, besides `localhost`.
    pub hosts: Vec<String>,
    /// Peers whose forwarding fields are trusted.
    pub trusted_proxies: TrustedProxies,
    /// Pages of other origins that may use declared endpoints; `None`: none.
    pub cors: Option<CorsConfig>,
    /// The certificate of its addresses; `None`: no TLS.
    pub tls: Option<TlsConfig>,
    /// Event loops.
    pub threads: usize,
    /// Whether that number was set; otherwise it is as many as fit the memory. Not a key of the file.
    pub(crate) has_threads: bool,
    /// Limit of anonymous memory in bytes: the sum of all named bounds must stay below it.
    pub memory_bytes: u64,
    /// Limit of connections; `None`: as many as fit the memory, up to 10,000.
    pub connections_max: Option<usize>,
    /// Limit of connections from one address.
    pub connections_per_address_max: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Time for a head to arrive.
    pub head: Duration,
    /// How long a body may be behind its minimum rate.
    pub body: Duration,
    /// That rate, in bytes a second.
    pub body_rate_min: u64,
    /// How long a client may be behind the minimum rate of receiving its replies.
    pub send: Duration,
    /// That rate, in bytes a second.
    pub send_rate_min: u64,
    /// Time a connection may be idle.
    pub idle: Duration,
    /// Time for connections to end on SIGTERM.
    pub drain: Duration,
    /// Whether replies carry a Date.
    pub date: bool,
    /// Whether each request is logged.
    pub access_log: bool,
    /// Requests that take at least this time are logged; `None`: none are.
    pub slow_log: Option<Duration>,
    /// When a write is acknowledged.
    pub durability: Acknowledgement,
    /// Execution model of reads that would wait for the disk.
    pub cold_model: BlockingModel,
    /// Bytes of the log kept for readers of changes, besides those that a restart needs. 0: none.
    pub changes_kept_bytes: u64,
    /// Time for which they are kept; `None`: for ever.
    pub changes_kept: Option<Duration>,
    /// Rows that one query may scan.
    pub scan_rows_max: u64,
    /// Execution model of queries that would hold an event loop.
    pub query_model: BlockingModel,
    /// Threads that one query may use.
    pub query_threads: usize,
    /// How long one query may run on the pool.
    pub query: Duration,
    /// A query that scans at least this many rows is logged.
    pub query_log_rows: u64,
    /// Bytes on disk for sorting and grouping beyond a query's memory. 0: such a query fails.
    pub query_spill_bytes: u64,
    /// The folder for `POST /_/backup`; `None`: the running server makes no backups.
    pub backups: Option<PathBuf>,
    /// See `docs::engine::StoreOptions::read_ahead`. Not a key of the file.
    pub read_ahead: Option<bool>,
}
