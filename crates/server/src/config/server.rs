//! `[server]`: where the service listens, and its bounds.

use super::cors::CorsConfig;
use super::tls::TlsConfig;
use http::TrustedProxies;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk.
    Commit,
    /// At once; the log is synced at this interval.
    Interval(Duration),
    /// At once; the log is synced at checkpoints only.
    None,
}

/// What runs cold reads: which of the execution models whose threads may wait for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColdModel {
    /// Threads that stay.
    #[default]
    Pool,
    /// Threads that stay; as many as there are cores compute, and the others wait for the disk.
    IoAware,
    /// Threads that stay, of rayon.
    WorkStealing,
}

impl ColdModel {
    /// With so many threads.
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

/// Where the general API answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdminListener {
    /// Where HTTP listens, beside the declared endpoints.
    #[default]
    Http,
    /// On a listener of its own.
    Address(SocketAddr),
    /// The same, a Unix socket of this path.
    Unix(PathBuf),
    /// Nowhere, but for health.
    Off,
}

/// The values of `[server]`, each checked, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// About how many bytes of memory the file's endpoints have. No key of the file.
    pub declared_bytes: usize,
    /// Where HTTP listens.
    pub http: SocketAddr,
    /// Where the general API answers.
    pub admin: AdminListener,
    /// Names of this machine that requests for the general API may have as host, beside `localhost`.
    pub hosts: Vec<String>,
    /// Peers that may say for whom they forward a request.
    pub trusted_proxies: TrustedProxies,
    /// Which pages of other origins may use declared endpoints; without it none.
    pub cors: Option<CorsConfig>,
    /// The certificate of its addresses; without it they speak in the clear.
    pub tls: Option<TlsConfig>,
    /// Event loops.
    pub threads: usize,
    /// Ceiling of anonymous memory in bytes: the sum of all named bounds must stay under it.
    pub memory_bytes: u64,
    /// Connections at once; `None`: as many as the memory allows, up to 10,000.
    pub connections_max: Option<usize>,
    /// Connections at once from one address.
    pub connections_per_address_max: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Time for a head to arrive.
    pub head: Duration,
    /// How long a body may be behind its least rate.
    pub body: Duration,
    /// That rate, in bytes a second.
    pub body_rate_min: u64,
    /// How long a client may be behind the least rate of taking its replies.
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
    /// Requests that take so long are logged; `None`: none are.
    pub slow_log: Option<Duration>,
    /// When a write counts as done.
    pub durability: Durability,
    /// What runs reads that would wait for the disk.
    pub cold_model: ColdModel,
    /// Bytes of the log kept for readers of changes, beside what a restart needs. 0: none.
    pub changes_kept_bytes: u64,
    /// Time for which they are kept at most; `None`: for ever.
    pub changes_kept: Option<Duration>,
    /// Rows that one query may look at.
    pub scan_rows_max: u64,
    /// Threads that one query may use.
    pub query_threads: usize,
    /// How long one query may run on the pool.
    pub query: Duration,
    /// A query that looks at so many rows is told in the log.
    pub query_log_rows: u64,
    /// Bytes on disk for what queries sort and group beyond their memory. 0: that is an error.
    pub query_spill_bytes: u64,
    /// The folder into which `POST /_/backup` writes; without it there are no backups of the running server.
    pub backups: Option<PathBuf>,
    /// See `store::Options::read_ahead`. Not a key of the file: the store knows best.
    pub read_ahead: Option<bool>,
}
