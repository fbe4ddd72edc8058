//! The arguments of `sapsan proxy`: where it listens, its nodes, its bounds.

use super::level::Level;
use super::placement::SpreadArguments;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// Address to listen on: HOST:PORT or unix:PATH. May be given several times
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380", value_parser = proxy::parse_address)]
    pub(crate) listen: Vec<proxy::Address>,
    /// The nodes, in the order in which keys are spread over them: HOST:PORT or unix:PATH
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', required_unless_present_any = ["nodes_file", "nutcracker"])]
    pub(crate) nodes: Vec<String>,
    /// File with the nodes, one on each line. SIGHUP reads it again, and no client is disconnected
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// Configuration file of twemproxy, whose pools are served. SIGHUP reads their servers again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "nodes_file", "listen", "hash", "hash_function", "hash_tag"])]
    pub(crate) nutcracker: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) spread: SpreadArguments,
    /// Password that clients must send with AUTH. Prefer the variable: other users of the machine can read the command line
    #[arg(long, value_name = "PASSWORD", env = "SAPSAN_PROXY_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// Name of the user that is sent to nodes with --node-password
    #[arg(long, value_name = "NAME")]
    pub(crate) node_user: Option<String>,
    /// Password that is sent to nodes with AUTH
    #[arg(long, value_name = "PASSWORD", env = "SAPSAN_PROXY_NODE_PASSWORD", hide_env_values = true)]
    pub(crate) node_password: Option<String>,
    /// Speak TLS with clients: the certificate in PEM, followed by those of its issuers. SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require a certificate from each client, issued by one of these authorities, in PEM. SIGHUP reads the file again
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Speak TLS with nodes, and trust certificates issued by these authorities, in PEM. A node's certificate must be for the host by
    /// which the list of nodes names it
    #[arg(long, value_name = "FILE")]
    pub(crate) node_tls_ca: Option<PathBuf>,
    /// Client certificate for nodes, in PEM, followed by those of its issuers
    #[arg(long, value_name = "FILE", requires_all = ["node_tls_key", "node_tls_ca"])]
    pub(crate) node_tls_cert: Option<PathBuf>,
    /// Private key of --node-tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "node_tls_cert")]
    pub(crate) node_tls_key: Option<PathBuf>,
    /// Connect to all nodes at the start, not to each at its first request
    #[arg(long)]
    pub(crate) preconnect: bool,
    /// Send reads of a cluster to replicas, which may lag behind their masters (--hash slots)
    #[arg(long, conflicts_with = "nutcracker")]
    pub(crate) read_replicas: bool,
    /// For caches only. After so many failed connections in a row, a node is ejected: other nodes serve its keys for a time. Values
    /// written before the ejection cannot be read during it, and values written during it cannot be read afterwards (--hash ketama,
    /// modula or random)
    #[arg(long, value_name = "FAILURES", conflicts_with = "nutcracker", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) eject_after: Option<u32>,
    /// Duration of an ejection, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", requires = "eject_after", value_parser = seconds)]
    pub(crate) eject_for: Duration,
    /// Number of event loops, 1 to 256
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Allow MSETNX with keys on several nodes. It may then set some of its keys and not others
    #[arg(long)]
    pub(crate) split: bool,
    /// Time after which the connection of a silent node is closed, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Time after which an idle client is disconnected, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Address at which metrics are served for Prometheus, at the path /metrics
    #[arg(long, value_name = "ADDR", value_parser = server::config::listen_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Time from which on a command is logged as slow, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) slow: Option<Duration>,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Level of the log on standard error
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
}

/// The bounds of a proxy. An option that is not given has its default in `proxy::config::ProxyLimits`.
#[derive(Debug, Args)]
pub(crate) struct LimitArguments {
    /// Most clients at once
    #[arg(long, value_name = "N")]
    pub(crate) clients_max: Option<usize>,
    /// Most unanswered commands of one client. At this bound the proxy stops reading from the client
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) commands_max: Option<u32>,
    /// Most bytes of one client's requests in flight and of replies that wait for it. At this bound the proxy stops reading from the client
    #[arg(long, value_name = "BYTES")]
    pub(crate) client_bytes_max: Option<usize>,
    /// Most bytes of a request that is held until it is complete. Larger requests of one key are forwarded while they arrive
    #[arg(long, value_name = "BYTES")]
    pub(crate) request_bytes_max: Option<usize>,
    /// Most bytes of a reply that is joined from the replies of several nodes
    #[arg(long, value_name = "BYTES")]
    pub(crate) joined_bytes_max: Option<usize>,
    /// Most bytes that are held for all clients and nodes together. From half of it on, the proxy stops reading from clients that hold any; past it, clients that
    /// hold most are disconnected
    #[arg(long, value_name = "BYTES")]
    pub(crate) total_bytes_max: Option<usize>,
    /// Most node connections that serve one client alone: of transactions, blocking commands, subscribers and large requests
    #[arg(long, value_name = "N")]
    pub(crate) own_connections_max: Option<usize>,
    /// Most channels and patterns that one client subscribes to
    #[arg(long, value_name = "N")]
    pub(crate) subscriptions_max: Option<usize>,
    /// Time after which a client is disconnected if it reads its replies more slowly than 1 KiB a second, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) stall_max: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(|| "it is no time".to_owned())
}
