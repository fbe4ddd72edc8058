//! What a proxy is made of: its nodes, how keys are spread over them, passwords, bounds.
//!
//! Everything here has been checked: names are resolved, numbers are in their ranges. Where it was written (command line, twemproxy's file)
//! is left to those that read it.

use std::fmt;
use std::time::Duration;

use reactor::{Address, TlsClient, TlsServer};

use crate::placement::{Distribution, Hash, Ketama, Placement, Server, Slots};

/// Nodes of one proxy.
pub const NODES_MAX: usize = 1024;

/// One Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// What errors and metrics call it: `HOST:PORT` as it was written, or a name of its own.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// How many keys it takes beside others, by the distributions of twemproxy.
    pub weight: u32,
    /// What its points on a ring are made from.
    pub ring_name: String,
}

/// How keys are spread over the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// CRC-32 modulo the nodes, as RedisSharding.
    Crc32,
    /// As twemproxy.
    Twemproxy {
        /// The hash function.
        hash: Hash,
        /// How a hash finds its node.
        distribution: DistributionKind,
        /// The bytes around the part of a key that counts.
        hash_tag: Option<[u8; 2]>,
    },
    /// As Redis Cluster, whose table of slots is asked for: the nodes are those that are asked first.
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

/// When the keys of a node that fails go to the others, as twemproxy's `auto_eject_hosts` has it. Values that were written before are out of
/// reach meanwhile, and those that are written meanwhile afterwards: it is for caches alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// So many failures of its connections in a row, seen by one loop; one at least.
    pub failures: u32,
    /// How long its keys are with the others.
    pub time: Duration,
}

impl Spread {
    /// Whether a node may be left out: twemproxy's distributions alone have a rule for its keys.
    pub fn may_eject(&self) -> bool {
        matches!(self, Spread::Twemproxy { .. })
    }

    /// The placement over these nodes, of which there is one at least.
    pub fn placement(&self, nodes: &[NodeConfig]) -> Placement {
        self.placement_over(nodes, |_| true)
    }

    /// The placement over those nodes that take keys, by their places in the list; one at least takes keys. Where no node may be left out, all
    /// do.
    pub fn placement_over(&self, nodes: &[NodeConfig], takes_keys: impl Fn(usize) -> bool) -> Placement {
        let servers = || -> Vec<Server> {
            nodes.iter().map(|node| Server { name: node.ring_name.clone(), weight: node.weight }).collect()
        };
        match *self {
            Spread::Crc32 => Placement::Crc32 { nodes: nodes.len() },
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
pub struct Limits {
    /// Clients connected at once.
    pub clients_max: usize,
    /// Commands of one client that are not answered yet; at this bound it is not read.
    pub commands_max: u32,
    /// Bytes of one client: of its unanswered requests, and again of replies that wait for those before them, and again of replies that
    /// it has not taken. At each of these it is not read; at twice the last two, its nodes are not read on this loop until it takes some.
    pub client_bytes_max: usize,
    /// Bytes of a request that is held until it is complete. Larger ones are passed on while they arrive, if all their keys are of one node.
    pub request_bytes_max: usize,
    /// Bytes of replies that are joined to one; where they are more, the reply is an error.
    pub joined_bytes_max: usize,
    /// Bytes of all clients and nodes together. From half of it on those clients that hold any are not read; past it, those that hold
    /// most for longest are cut.
    pub total_bytes_max: usize,
    /// Node connections that belong to one client for a time: of transactions, blocking commands, subscribers, large requests.
    pub own_connections_max: usize,
    /// Channels and patterns of one client.
    pub subscriptions_max: usize,
    /// How long a client may take nothing while something waits for it (below 1 KB/s), and how long a node may be not read for its sake.
    pub stall_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
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
pub struct Config {
    /// One at least, [`NODES_MAX`] at most.
    pub nodes: Vec<NodeConfig>,
    /// How keys are spread.
    pub spread: Spread,
    /// When a node that fails is left out; none: never. Ignored where [`Spread::may_eject`] is false.
    pub ejection: Option<Ejection>,
    /// Reads of a cluster go to replicas, which may be behind their masters.
    pub reads_replicas: bool,
    /// Each loop connects to all nodes at its start, not with the first request for them.
    pub preconnect: bool,
    /// What clients must send with AUTH or HELLO.
    pub password: Option<Password>,
    /// What is sent to nodes.
    pub node_password: Option<Password>,
    /// With it clients speak TLS.
    pub tls: Option<TlsServer>,
    /// With it nodes speak TLS, but for those on Unix sockets: whom it trusts. Each node's certificate names the host by which the list
    /// knows the node.
    pub node_tls: Option<TlsClient>,
    /// Event loops.
    pub threads: usize,
    /// Whether MSETNX over several nodes is split, and so may set some of its keys and not others.
    pub may_split_msetnx: bool,
    /// The database that clients begin with.
    pub database: u32,
    /// Length of each listening socket's backlog; the kernel has a bound of its own.
    pub backlog: u32,
    /// Databases of a node: SELECT takes lower numbers.
    pub databases: u32,
    /// Time for a node to accept a connection.
    pub connect_max: Duration,
    /// Time for a node to answer; none waits for ever.
    pub node_timeout: Option<Duration>,
    /// Time for which a client may be idle; none is for ever.
    pub idle_timeout: Option<Duration>,
    /// Commands that take longer are logged.
    pub slow: Option<Duration>,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// A proxy before these nodes, with all defaults.
    pub fn new(nodes: Vec<NodeConfig>) -> Config {
        Config {
            nodes,
            spread: Spread::Crc32,
            ejection: None,
            reads_replicas: false,
            preconnect: false,
            password: None,
            node_password: None,
            tls: None,
            node_tls: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            may_split_msetnx: false,
            database: 0,
            backlog: 4096,
            databases: 16,
            connect_max: Duration::from_secs(1),
            node_timeout: None,
            idle_timeout: None,
            slow: None,
            limits: Limits::default(),
        }
    }
}
