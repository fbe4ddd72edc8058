//! The arguments of `sapsan proxy`: where it listens, its nodes, its bounds.

use super::level::Level;
use super::placement::SpreadArguments;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// Where to listen: HOST:PORT or unix:PATH; may be given several times
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380", value_parser = proxy::parse_address)]
    pub(crate) listen: Vec<proxy::Address>,
    /// The nodes, in the order in which keys are spread over them: HOST:PORT or unix:PATH
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', required_unless_present_any = ["nodes_file", "nutcracker"])]
    pub(crate) nodes: Vec<String>,
    /// The nodes from a file, one on each line; SIGHUP has it read again, and no client is dropped
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// twemproxy's configuration file: its pools are served; SIGHUP has their servers read again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "nodes_file", "listen", "hash", "hash_function", "hash_tag"])]
    pub(crate) nutcracker: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) spread: SpreadArguments,
    /// What clients must send with AUTH; other users see the command line, but not the variable
    #[arg(long, value_name = "PASSWORD", env = "SAPSAN_PROXY_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// What is sent to nodes with AUTH
    #[arg(long, value_name = "PASSWORD", env = "SAPSAN_PROXY_NODE_PASSWORD", hide_env_values = true)]
    pub(crate) node_password: Option<String>,
    /// The certificate with which clients are spoken to in TLS, in PEM, its issuers' behind it; SIGHUP has it read again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require a certificate of clients that these have issued, in PEM; SIGHUP has it read again
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Speak TLS with the nodes, and trust what these certificates have issued, in PEM; a node's certificate names the host that the
    /// list of nodes has for it
    #[arg(long, value_name = "FILE")]
    pub(crate) node_tls_ca: Option<PathBuf>,
    /// The certificate that nodes are shown, in PEM, its issuers' behind it
    #[arg(long, value_name = "FILE", requires_all = ["node_tls_key", "node_tls_ca"])]
    pub(crate) node_tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "node_tls_cert")]
    pub(crate) node_tls_key: Option<PathBuf>,
    /// Connect to all nodes at the start, and not by the first request for each
    #[arg(long)]
    pub(crate) preconnect: bool,
    /// Reads of a cluster go to replicas, which may be behind their masters (--hash slots)
    #[arg(long, conflicts_with = "nutcracker")]
    pub(crate) read_replicas: bool,
    /// Caches alone: a node whose connections fail so often in a row loses its keys to the others for a time. What was written before is
    /// out of reach meanwhile, and what is written meanwhile afterwards (--hash ketama, modula or random)
    #[arg(long, value_name = "FAILURES", conflicts_with = "nutcracker", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) eject_after: Option<u32>,
    /// How long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", requires = "eject_after", value_parser = seconds)]
    pub(crate) eject_for: Duration,
    /// Event loops, 1 to 256: as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Permit MSETNX over several nodes, which may set some of its keys and not others
    #[arg(long)]
    pub(crate) split: bool,
    /// Time after which a silent node's connection is given up, in seconds; none waits for ever
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Time after which an idle client is ended, in seconds; none is for ever
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Where counters are served for Prometheus, at /metrics
    #[arg(long, value_name = "ADDR", value_parser = server::config::listen_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Commands that take at least so long are logged, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) slow: Option<Duration>,
    #[command(flatten)]
    pub(crate) limits: ProxyLimits,
    /// How much is logged on standard error
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
}

/// Bounds; their defaults are those of `proxy::config::Limits`.
#[derive(Debug, Args)]
pub(crate) struct ProxyLimits {
    /// Clients at once
    #[arg(long, value_name = "N")]
    pub(crate) clients_max: Option<usize>,
    /// Unanswered commands of one client; at this bound it is not read
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) commands_max: Option<u32>,
    /// Bytes of one client that are in flight or wait for it; at this bound it is not read
    #[arg(long, value_name = "BYTES")]
    pub(crate) client_bytes_max: Option<usize>,
    /// Bytes of a request that is held until it is complete; larger ones of one key are passed on while they arrive
    #[arg(long, value_name = "BYTES")]
    pub(crate) request_bytes_max: Option<usize>,
    /// Bytes of a reply that is joined from several nodes'
    #[arg(long, value_name = "BYTES")]
    pub(crate) joined_bytes_max: Option<usize>,
    /// Bytes of all clients together; from half of it on those that hold any wait, and past it those that hold most are cut
    #[arg(long, value_name = "BYTES")]
    pub(crate) total_bytes_max: Option<usize>,
    /// Node connections of transactions, blocking commands, subscribers and large requests
    #[arg(long, value_name = "N")]
    pub(crate) own_connections_max: Option<usize>,
    /// Channels and patterns of one client
    #[arg(long, value_name = "N")]
    pub(crate) subscriptions_max: Option<usize>,
    /// How long a client may take nothing that waits for it, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) stall_max: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(|| "it is no time".to_owned())
}
