//! A running proxy: start, end, and control.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Address, ListenerSettings, Reactor, ReactorSettings, Traffic};

use crate::config::{NodeConfig, ProxyConfig};
use crate::metrics::LoopCounters;
use crate::node_list::{NodeListError, SharedNodes};
use crate::shard::{Clients, Housekeeping, Shard};

/// Unsent bytes of a client above which its further commands wait.
const OUTPUT_HIGH_WATER: usize = 256 << 10;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Bytes per second below which a client counts as not reading.
const SEND_RATE_MIN: u64 = 1024;
/// Requests of a client in one turn, which is also bounded by time.
const REQUESTS_PER_TURN: u32 = 2048;

/// Why a proxy cannot start.
#[derive(Debug)]
pub enum ProxyStartError {
    /// Listening on an address failed.
    Listen(Address, io::Error),
    /// The list of nodes is invalid.
    Nodes(NodeListError),
    /// The event loops cannot start.
    Loops(io::Error),
}

impl fmt::Display for ProxyStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyStartError::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            ProxyStartError::Nodes(error) => error.fmt(f),
            ProxyStartError::Loops(error) => write!(f, "the event loops do not start: {error}"),
        }
    }
}

impl std::error::Error for ProxyStartError {}

/// A running proxy.
pub struct RunningProxy {
    loops: reactor::RunningReactor,
    addresses: Vec<Address>,
    nodes: Arc<SharedNodes>,
    counters: Vec<Arc<LoopCounters>>,
    config: Arc<ProxyConfig>,
}

/// Starts a proxy that listens on these addresses; port 0 means any free port. Only the owner can access a Unix socket's file.
///
/// # Errors
/// Listening failed, or the loops cannot start. Unreachable nodes are not an error: they may become reachable.
pub fn start(config: ProxyConfig, listen: &[Address]) -> Result<RunningProxy, ProxyStartError> {
    let nodes =
        SharedNodes::new(config.spread, config.ejection, config.nodes.clone()).map_err(ProxyStartError::Nodes)?;
    let (nodes, config) = (Arc::new(nodes), Arc::new(config));
    let mut reactor = Reactor::new(settings(&config)).map_err(ProxyStartError::Loops)?;
    let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
    for address in listen {
        let settings = ListenerSettings { backlog: config.backlog, tls: config.tls.clone(), ..Default::default() };
        let bound = match address {
            Address::Tcp(address) => reactor.bind(*address, settings).map(|(id, bound)| (id, Address::Tcp(bound))),
            Address::Unix(path) => reactor.bind_unix(path, settings).map(|id| (id, address.clone())),
        };
        let (listener, bound) = bound.map_err(|error| ProxyStartError::Listen(address.clone(), error))?;
        listeners.push(listener);
        addresses.push(bound);
    }
    let counters: Vec<Arc<LoopCounters>> = (0..config.threads.max(1)).map(|_| Arc::default()).collect();
    let (of_loops, of_all, with) = (counters.clone(), Arc::clone(&nodes), Arc::clone(&config));
    reactor.set_up(move |setup| {
        let lp = setup.lp().clone();
        let shard = Shard::new(Arc::clone(&with), of_loops.clone(), Arc::clone(&of_all), lp);
        setup.add_state(Box::new(Housekeeping::new(shard.clone())));
        for listener in &listeners {
            setup.accept(*listener, Box::new(Clients { shard: shard.clone() }));
        }
    });
    let loops = reactor.start().map_err(ProxyStartError::Loops)?;
    nodes.wakes(loops.loops());
    Ok(RunningProxy { loops, addresses, nodes, counters, config })
}

fn settings(config: &ProxyConfig) -> ReactorSettings {
    let limits = &config.limits;
    let threads = config.threads.max(1);
    ReactorSettings {
        loops: threads,
        connections_max: limits.clients_max,
        traffic: Traffic {
            requests_per_turn: REQUESTS_PER_TURN,
            read_bytes_per_turn: READ_BYTES,
            input_bytes_max: limits.request_bytes_max + 2 * READ_BYTES,
            output_high_water: OUTPUT_HIGH_WATER,
            send_rate_min: SEND_RATE_MIN,
            send_behind_max: limits.stall_max,
            ..Traffic::default()
        },
        held_bytes_max: limits.total_bytes_max / threads,
        connect_max: config.connect_max,
        ..ReactorSettings::default()
    }
}

impl RunningProxy {
    /// Its listening addresses, in the given order.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The configuration at the start; the list of nodes may have been replaced since.
    pub fn config(&self) -> &ProxyConfig {
        &self.config
    }

    /// Replaces the list of nodes. Clients stay connected; requests that were sent to removed nodes are still answered.
    ///
    /// # Errors
    /// The list is empty or too long; the current one stays.
    pub fn set_nodes(&self, nodes: Vec<NodeConfig>) -> Result<(), NodeListError> {
        self.nodes.set(nodes)
    }

    /// The names of the current nodes.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.get().nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// The counters of each loop.
    pub fn counters(&self) -> &[Arc<LoopCounters>] {
        &self.counters
    }

    /// Registers a call for the case that a loop ends by itself: see [`reactor::RunningReactor::on_broken`].
    pub fn on_broken(&self, call: impl FnOnce() + Send + 'static) {
        self.loops.on_broken(call);
    }

    /// Begins the end: commands that were sent to nodes are answered, within this time limit.
    pub fn drain(&self, limit: Duration) {
        self.loops.drain(limit);
    }

    /// Waits for the end, after [`RunningProxy::drain`].
    ///
    /// # Errors
    /// A loop has ended by itself.
    pub fn join(self) -> io::Result<()> {
        self.loops.join()
    }
}
