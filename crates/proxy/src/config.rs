//! Configuration of a proxy: its nodes, the distribution of keys, passwords, bounds.
//!
//! All values have been checked: names are resolved, numbers are in range. Reading them (command line, twemproxy's file) is up to
//! the callers.

use std::fmt;
use std::time::Duration;

use reactor::{Address, TlsClient, TlsServer};

use crate::placement::{Distribution, Hash, Ketama, Placement, RingServer, Slots};

/// Nodes of one proxy.
pub const NODES_MAX: usize = 1024;
/// Largest number of nodes with a number: those of the list, and removed ones that still have connections.
pub(crate) const NODE_NUMBERS_MAX: usize = 2 * NODES_MAX;

/// One Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name in errors and metrics: `HOST:PORT` as written, or an explicit name.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// Its share of the keys, relative to the other nodes, in the distributions of twemproxy.
    pub weight: u32,
    /// The text from which its points on a ring are computed.
    pub ring_name: String,
}

/// How keys are distributed over the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// CRC-32 modulo the number of nodes, as RedisSharding does.
    Crc32 {
        /// The bytes that enclose the hashed part of a key; none: the part at its end, in braces.
        hash_tag: Option<[u8; 2]>,
    },
    /// As twemproxy does.
    Twemproxy {
        /// The hash function.
        hash: Hash,
        /// How a hash is mapped to a node.
        distribution: DistributionKind,
        /// The bytes that enclose the hashed part of a key.
        hash_tag: Option<[u8; 2]>,
    },
    /// As Redis Cluster does, by its table of slots: the configured nodes are those that are asked for it first.
    Slots,
}

/// twemproxy's distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // See `placement::Distribution`.
pub enum DistributionKind {
    Ketama,
    Modula,
    Random,
}

/// When the keys of a failing node move to the other nodes, as with twemproxy's `auto_eject_hosts`. Values that were written
/// before the ejection are unreachable during it, and values written during it are unreachable afterwards: it suits caches only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Number of consecutive failures of its connections, counted by one loop; at least one.
    pub failures: u32,
    /// How long the other nodes hold its keys.
    pub time: Duration,
}

impl Spread {
    /// Whether a node may be ejected: only twemproxy's distributions define where its keys go.
    pub fn may_eject(&self) -> bool {
        matches!(self, Spread::Twemproxy { .. })
    }

    /// The placement over these nodes; there must be at least one.
    pub fn placement(&self, nodes: &[NodeConfig]) -> Placement {
        self.placement_over(nodes, |_| true)
    }

    /// The placement over the nodes for which `takes_keys` is true, by their positions in the list; at least one must be. If the
    /// distribution does not permit ejection, all nodes take keys.
    pub fn placement_over(&self, nodes: &[NodeConfig], takes_keys: impl Fn(usize) -> bool) -> Placement {
        let servers = || -> Vec<RingServer> {
            nodes.iter().map(|node| RingServer { name: node.ring_name.clone(), weight: node.weight }).collect()
        };
        match *self {
            Spread::Crc32 { hash_tag } => Placement::Crc32 { nodes: nodes.len(), hash_tag },
            Spread::Slots => Placement::Slots(Slots::new()),
            Spread::Twemproxy { hash, distribution, hash_tag } => {
                let distribution = match distribution {
                    DistributionKind::Ketama => Distribution::Ketama(Ketama::new(&servers(), takes_keys)),
                    DistributionKind::Modula => Distribution::modula(&servers(), takes_keys),
                    DistributionKind::Random => {
                        Distribution::Random((0..nodes.len()).filter(|place| takes_keys(*place)).collect())
                    }
                };
                Placement::Twemproxy { hash, distribution, hash_tag }
            }
        }
    }
}

/// A password that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Bounds of a proxy, each with its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Clients connected at the same time.
    pub clients_max: usize,
    /// Unanswered commands of one client; at this bound the client is not read.
    pub commands_max: u32,
    /// Bound in bytes that applies separately to a client's unanswered requests, its replies that wait for earlier ones, and its
    /// unsent replies. At this bound the client is not read. At twice the bound of waiting or unsent replies, node connections on which
    /// it alone waits are not read either. The names of its subscriptions have the bound, too.
    pub client_bytes_max: usize,
    /// Largest request in bytes that is held until it is complete. A larger one is forwarded while it arrives, if all its keys
    /// are on one node.
    pub request_bytes_max: usize,
    /// Largest joined reply in bytes; a larger one is replaced by an error.
    pub joined_bytes_max: usize,
    /// Bytes held for all clients and nodes together. Above half of it, clients that hold any are not read; above all of it,
    /// those that have held the most for the longest are disconnected. A client may hold a quarter of a thread's part of replies behind
    /// which other clients wait on the same node connection; past that it must read fast.
    pub total_bytes_max: usize,
    /// Node connections that are reserved for one client: for transactions, blocking commands, subscribers, large requests.
    pub own_connections_max: usize,
    /// Channels and patterns of one client.
    pub subscriptions_max: usize,
    /// How long a client may read too slowly (below 1 KB/s) while data waits for it.
    pub stall_max: Duration,
}

impl Default for ProxyLimits {
    fn default() -> ProxyLimits {
        ProxyLimits {
            clients_max: 20_000,
            commands_max: 1024,
            client_bytes_max: 1 << 20,
            request_bytes_max: 2 << 20,
            joined_bytes_max: 64 << 20,
            total_bytes_max: 192 << 20,
            own_connections_max: 1000,
            subscriptions_max: 10_000,
            stall_max: Duration::from_secs(30),
        }
    }
}

/// A proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// At least one, at most [`NODES_MAX`].
    pub nodes: Vec<NodeConfig>,
    /// How keys are spread.
    pub spread: Spread,
    /// When a failing node is ejected; none: never. Ignored if [`Spread::may_eject`] is false.
    pub ejection: Option<Ejection>,
    /// Whether a cluster's reads go to replicas, which may lag behind their masters.
    pub reads_replicas: bool,
    /// Whether each loop connects to all nodes at its start rather than with the first request for them.
    pub preconnect: bool,
    /// Password that clients must send with AUTH or HELLO.
    pub password: Option<Password>,
    /// Name of the user with which nodes are authenticated to; none: the default user.
    pub node_user: Option<String>,
    /// Password that is sent to nodes.
    pub node_password: Option<Password>,
    /// If set, clients must use TLS.
    pub tls: Option<TlsServer>,
    /// If set, nodes except those on Unix sockets use TLS; the value says which certificates are trusted. A node's certificate
    /// must name the host that the list has for the node.
    pub node_tls: Option<TlsClient>,
    /// Event loops.
    pub threads: usize,
    /// Whether MSETNX over several nodes is split; it may then set some of its keys and not others.
    pub may_split_msetnx: bool,
    /// The database that clients start with.
    pub database: u32,
    /// Backlog of each listening socket; the kernel has a bound of its own.
    pub backlog: u32,
    /// Time limit for connecting to a node.
    pub connect_max: Duration,
    /// Time limit for a node's reply; none: unlimited.
    pub node_timeout: Option<Duration>,
    /// Time limit for an idle client; none: unlimited.
    pub idle_timeout: Option<Duration>,
    /// Commands that take at least this long are logged.
    pub slow: Option<Duration>,
    /// Bounds.
    pub limits: ProxyLimits,
}

impl ProxyConfig {
    /// A proxy for these nodes, with all defaults.
    pub fn new(nodes: Vec<NodeConfig>) -> ProxyConfig {
        ProxyConfig {
            nodes,
            spread: Spread::Crc32 { hash_tag: None },
            ejection: None,
            reads_replicas: false,
            preconnect: false,
            password: None,
            node_user: None,
            node_password: None,
            tls: None,
            node_tls: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            may_split_msetnx: false,
            database: 0,
            backlog: 4096,
            connect_max: Duration::from_secs(1),
            node_timeout: None,
            idle_timeout: None,
            slow: None,
            limits: ProxyLimits::default(),
        }
    }
}
