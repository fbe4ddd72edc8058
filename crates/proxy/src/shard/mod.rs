//! One loop's part of the proxy: its clients, its node connections, and the path of requests and replies between them.
//!
//! ```text
//!  client's input ── framer ── command table ── placement ──┐ one copy
//!                                                           v
//!                       expected replies <── node connection's output
//!                              │
//!  node's input ── framer ─────┤ one copy
//!                              ├─ the client's next reply ──> client's output
//!                              ├─ a later one ──────────────> kept until its turn (`reply_queue`)
//!                              └─ a part of a joined one ───> joined when all have come (`gather`)
//! ```
//!
//! | subject | file |
//! |---|---|
//! | a client, its state, and its back-pressure | `client`, `window`, `admission` |
//! | bytes held | `ledger` |
//! | replies that a client waits for | `reply_queue`, `gather` |
//! | dispatch of requests to nodes | `dispatch`, `scatter`, `upload` (large ones) |
//! | commands that the proxy answers | `local` |
//! | transactions, blocking commands, subscribers | `reserved`, `transaction`, `transaction_state`, `subscription`, `subscription_state` |
//! | a node, its connections and their replies | `node`, `node_connection`, `pending`, `receive` |
//! | Redis Cluster | `cluster`, `copies` |
//! | work at the end of a tick | `housekeeping` |
//!
//! Loops share only counters and the list of nodes. A loop's connections reach one another through [`Connections`]; a client or a node connection is
//! taken out of its slab for its own turn, so that it can access the others.

mod admission;
mod client;
mod cluster;
mod connections;
mod copies;
mod dispatch;
mod gather;
mod housekeeping;
mod ledger;
mod local;
mod node;
mod node_connection;
mod pending;
mod receive;
mod reserved;
mod scatter;
mod slab;
mod subscription;
mod transaction;
mod upload;
mod window;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Address, CertificateError, Closed, Loop, Outgoing, TlsClient, Traffic};
use resp::codec::ProtocolVersion;

use crate::commands::{CommandTable, Span};
use crate::config::{NODE_NUMBERS_MAX, NodeConfig, ProxyConfig, Spread};
use crate::metrics::LoopCounters;
use crate::node_list::{NodeList, SharedNodes};
use crate::placement::slot_of;
use client::Client;
pub(crate) use client::Clients;
use client::reply_queue::BufferPool;
use cluster::Cluster;
use connections::Connections;
pub(crate) use housekeeping::Housekeeping;
use ledger::Ledger;
use node::Node;
use node_connection::{HandshakeSteps, NodeConnection, Pool};
use receive::NodeProtocol;
use reserved::Orphan;
use slab::{Key, Slab};

/// Largest number of pools of a loop: two protocols for each database that clients select.
const POOLS_MAX: usize = 2048;
/// Unsent bytes of a node connection at which the reactor stops reading it: never. A Redis node reads on while its replies wait,
/// but another server may not; both sides would then wait for each other.
const NODE_OUTPUT_BYTES: usize = usize::MAX / 4;

/// A closed node connection, and why it ended.
struct Broken {
    link: Box<NodeConnection>,
    reason: String,
}

/// See the module.
pub(crate) struct Shard {
    config: Arc<ProxyConfig>,
    counters: Arc<LoopCounters>,
    /// Those of all loops.
    all_counters: Vec<Arc<LoopCounters>>,
    lp: Loop,
    table: CommandTable,
    /// Whether a node has sent its table of commands, or was asked for it.
    has_asked_commands: bool,
    nodes: Vec<Node>,
    shared_nodes: Arc<SharedNodes>,
    list: Arc<NodeList>,
    /// Maps the position in `list` to the node's number.
    node_numbers: Vec<u16>,
    /// Only for Redis Cluster.
    cluster: Option<Box<Cluster>>,
    clients: Slab<Client>,
    links: Slab<NodeConnection>,
    pools: Vec<Pool>,
    /// Idle reserved connections, for the next client that needs one.
    idle_links: Vec<Key>,
    own_links: usize,
    buffers: BufferPool,
    /// Reused storage for the arguments of one request, and for the bytes of an inline request.
    spans: Vec<Span>,
    text: Vec<u8>,
    node_traffic: Arc<Traffic>,
    /// A number that differs from call to call.
    turn: u64,
    ledger: Ledger,
    /// Databases with lower numbers exist: a node has said so.
    databases: u32,
    broken: Vec<Broken>,
    /// When the log had a line about a client that speaks HTTP.
    http_logged_ns: Option<u64>,
    /// Reserved connections of closed clients, and connections that were not read because of closed clients.
    orphans: Vec<Orphan>,
    released: Vec<reactor::ConnectionId>,
    /// For the protocols of connections that are opened here.
    this: std::rc::Weak<RefCell<Shard>>,
}

impl Shard {
    pub(crate) fn new(
        config: Arc<ProxyConfig>,
        all_counters: Vec<Arc<LoopCounters>>,
        shared_nodes: Arc<SharedNodes>,
        lp: Loop,
    ) -> Rc<RefCell<Shard>> {
        let traffic = Traffic { output_high_water: NODE_OUTPUT_BYTES, ..node_traffic(&config) };
        let list = shared_nodes.get();
        let shard = Rc::new_cyclic(|this| {
            RefCell::new(Shard {
                counters: Arc::clone(&all_counters[lp.index()]),
                all_counters,
                table: CommandTable::new(),
                has_asked_commands: false,
                nodes: Vec::new(),
                list: Arc::clone(&list),
                shared_nodes,
                node_numbers: Vec::new(),
                cluster: (config.spread == Spread::Slots).then(Box::default),
                clients: Slab::new(),
                links: Slab::new(),
                pools: vec![Pool::new(ProtocolVersion::Resp2, config.database)],
                idle_links: Vec::new(),
                own_links: 0,
                buffers: BufferPool::default(),
                spans: Vec::new(),
                text: Vec::new(),
                node_traffic: Arc::new(traffic),
                turn: lp.precise_now_ns() ^ (lp.index() as u64) << 32,
                ledger: Ledger::new(config.limits.total_bytes_max / config.threads.max(1)),
                databases: config.database + 1,
                broken: Vec::new(),
                http_logged_ns: None,
                orphans: Vec::new(),
                released: Vec::new(),
                this: this.clone(),
                config,
                lp,
            })
        });
        shard.borrow_mut().take_list(list);
        shard
    }

    /// Applies another list of nodes. Nodes in both lists keep their numbers and connections. Returns false, with the current list in
    /// force, if there are no numbers for the new nodes until connections to removed ones have ended.
    fn take_list(&mut self, list: Arc<NodeList>) -> bool {
        let Some(numbers) = self.numbers_of(&list.nodes) else { return false };
        self.nodes.iter_mut().for_each(|node| node.is_listed = false);
        for (config, &number) in list.nodes.iter().zip(&numbers) {
            let number = usize::from(number);
            match self.nodes.get_mut(number) {
                Some(node) if node.is_at(config) => {}
                Some(node) => *node = Node::new(config.clone()),
                None => self.nodes.push(Node::new(config.clone())),
            }
            self.nodes[number].is_listed = true;
        }
        self.node_numbers = numbers;
        self.list = list;
        self.publish_node_names();
        // The new list may belong to another cluster.
        if let Some(cluster) = &mut self.cluster {
            cluster.spoil();
        }
        true
    }

    /// The numbers of the nodes of a list: known nodes keep theirs, and a new one gets that of a removed node without connections, or
    /// the next. None: there are none left.
    fn numbers_of(&mut self, list: &[NodeConfig]) -> Option<Vec<u16>> {
        let known = |config: &NodeConfig| self.nodes.iter().position(|node| node.is_at(config));
        let known: Vec<Option<usize>> = list.iter().map(known).collect();
        // In a cluster a slot may belong to a node that is on no list.
        let mut is_used = vec![self.cluster.is_some(); self.nodes.len()];
        known.iter().flatten().for_each(|number| is_used[*number] = true);
        self.links.iter_mut().for_each(|link| is_used[usize::from(link.node)] = true);
        let free = is_used.iter().enumerate().filter(|(_, is_used)| !**is_used).map(|(number, _)| number);
        let mut free = free.chain(self.nodes.len()..NODE_NUMBERS_MAX);
        known.into_iter().map(|known| known.or_else(|| free.next()).map(|number| number as u16)).collect()
    }

    fn publish_node_names(&self) {
        self.counters.set_node_names(self.nodes.iter().map(|node| node.config.name.clone()).collect());
    }

    /// The number of a key's node.
    #[inline]
    fn node_of(&mut self, key: &[u8]) -> u16 {
        if let Some(cluster) = &self.cluster {
            return cluster.slots.node(slot_of(key)) as u16;
        }
        self.turn = self.turn.wrapping_add(1);
        self.node_numbers[self.list.placement.node(key, self.turn)]
    }

    /// The pool of a protocol and a database; none if there are too many.
    fn pool(&mut self, version: ProtocolVersion, database: u32) -> Option<u16> {
        let known = self.pools.iter().position(|pool| pool.version == version && pool.database == database);
        known.map(|pool| pool as u16).or_else(|| {
            let pool = self.pools.len();
            (pool < POOLS_MAX).then(|| {
                self.pools.push(Pool::new(version, database));
                pool as u16
            })
        })
    }

    /// The connection to a node that clients of a pool share; it is opened if there is none. None: the node is down.
    #[inline]
    fn shared_link(&mut self, pool: u16, node: u16, connections: &mut impl Connections) -> Option<Key> {
        match self.pools[usize::from(pool)].connection(node) {
            Key::NONE => self.open_shared(pool, node, connections),
            link => Some(link),
        }
    }

    /// Connects to all nodes of the list for clients of the first pool, if configured. A node that cannot be reached is tried
    /// again by the first request for it.
    fn preconnect(&mut self, connections: &mut impl Connections) {
        if !self.config.preconnect {
            return;
        }
        for node in self.node_numbers.clone() {
            self.shared_link(0, node, connections);
        }
    }

    #[cold]
    fn open_shared(&mut self, pool: u16, node: u16, connections: &mut impl Connections) -> Option<Key> {
        let link = self.open_link(pool, node, Key::NONE, connections)?;
        self.pools[usize::from(pool)].set_connection(node, link);
        Some(link)
    }

    /// Opens a connection to a node. None: the node is down, and is not tried now.
    fn open_link(&mut self, pool: u16, node: u16, owner: Key, connections: &mut impl Connections) -> Option<Key> {
        let now_ns = self.lp.now_ns();
        let at = &self.nodes[usize::from(node)];
        if !at.may_try(now_ns) || self.pools[usize::from(pool)].refusal(node, now_ns).is_some() {
            return None;
        }
        let tls = match tls_of(&at.config, self.config.node_tls.as_ref()) {
            Ok(tls) => tls,
            Err(failure) => {
                self.node_failed(node, failure.to_string());
                return None;
            }
        };
        let outgoing = Outgoing {
            to: at.config.address.clone(),
            connect_max: Some(self.config.connect_max),
            traffic: Some(Arc::clone(&self.node_traffic)),
            tls,
        };
        let key = self.links.insert(|key| NodeConnection::new(key, node, pool, owner));
        let protocol = NodeProtocol { key, shard: self.this.upgrade()?, lp: self.lp.clone() };
        match connections.connect(outgoing, Box::new(protocol)) {
            Ok(id) => {
                let link = self.links.get_mut(key)?;
                link.id = id;
                let wants_commands = !std::mem::replace(&mut self.has_asked_commands, true);
                if let Some(output) = connections.output(id) {
                    let wants_slots = self.cluster.is_some() && owner == Key::NONE;
                    let reads_replicas = wants_slots && self.config.reads_replicas;
                    let begin = HandshakeSteps { wants_commands, wants_slots, reads_replicas };
                    link.begin(&self.config, &self.pools[usize::from(pool)], begin, now_ns, output);
                }
                Some(key)
            }
            Err(failure) => {
                self.links.remove(key);
                self.node_failed(node, failure.to_string());
                None
            }
        }
    }

    /// The error reply if there is no connection to a node: it cannot be reached, or has refused the set-up.
    fn unavailable(&self, pool: u16, node: u16) -> Vec<u8> {
        let refusal = self.pools[usize::from(pool)].refusal(node, self.lp.now_ns());
        refusal
            .map_or_else(|| self.nodes[usize::from(node)].down(), |refusal| self.nodes[usize::from(node)].lost(refusal))
    }

    fn node_failed(&mut self, node: u16, failure: String) {
        let at = &mut self.nodes[usize::from(node)];
        tracing::warn!(node = %at.config.name, failure, "node connection failed");
        self.turn = self.turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at.failed(self.lp.now_ns(), failure, self.turn >> 16);
        let counters = &self.counters.nodes[usize::from(node)];
        counters.failed.add(1);
        counters.is_down.set(1);
        let is_ejected = self.shared_nodes.failures_max().is_some_and(|most| at.misses_too_often(most))
            && self.shared_nodes.eject(&at.config, self.lp.now_ns());
        if is_ejected {
            tracing::warn!(node = %at.config.name, "the node is ejected: its keys go to the others");
            counters.ejections.add(1);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.spoil();
        }
    }

    /// A client's connection has ended. The rest is cleaned up at the end of the tick.
    fn client_closed(&mut self, key: Key, reason: Closed) {
        let Some(client) = self.clients.remove(key) else { return };
        self.ledger.remove(&client);
        self.counters.clients.subtract(1);
        if matches!(reason, Closed::Stalled | Closed::Hoarded) {
            self.counters.stalled.add(1);
            tracing::info!(?reason, "a client was disconnected");
        }
        self.released.extend(client.holds.iter().map(|hold| hold.connection));
        self.orphan_links(&client);
        self.wake_loop();
    }

    /// Makes the loop call its hooks although no event arrives.
    fn wake_loop(&self) {
        self.lp.run(Box::new(|_| {}));
    }
}

/// TLS of a node's connections: none on a Unix socket, otherwise with the name of the node's host.
fn tls_of(node: &NodeConfig, tls: Option<&TlsClient>) -> Result<Option<TlsClient>, CertificateError> {
    let is_tcp = matches!(node.address, Address::Tcp(_));
    let host = node.name.rsplit_once(':').map_or(node.name.as_str(), |(host, _)| host);
    tls.filter(|_| is_tcp).map(|tls| tls.named(host.trim_matches(['[', ']']))).transpose()
}

fn node_traffic(config: &ProxyConfig) -> Traffic {
    // A node that does not read is detected by its missing replies.
    let send_behind_max = config.node_timeout.unwrap_or(std::time::Duration::from_secs(3600));
    Traffic { send_behind_max, requests_per_turn: u32::MAX, ..Traffic::default() }
}
