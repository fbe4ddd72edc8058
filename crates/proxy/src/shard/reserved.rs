//! Node connections that are reserved for one client for a time.
//!
//! Transactions, commands that may block on the node, subscriptions and large requests would delay the other clients of a shared
//! connection. A client switches to a reserved connection, and back, only when all its earlier commands are answered: so they
//! never overtake one another. Connections that are returned in a clean state are reused; their number is bounded for a loop.

use reactor::{Io, LoopContext};

use super::Shard;
use super::admission::Served;
use super::client::{Client, Front, State};
use super::connections::Connections;
use super::dispatch::Order;
use super::node_connection::{End, NodeConnection};
use super::slab::Key;

/// Largest number of idle reserved connections.
const IDLE_LINKS_MAX: usize = 16;

/// The connection of a client that is gone.
pub(super) struct Orphan {
    connection: Key,
    /// Whether what was sent on it is to be executed; otherwise its command or transaction ends with its client.
    is_complete: bool,
}

impl Shard {
    /// Reserves a connection to a node for this client.
    ///
    /// # Errors
    /// The error reply if there is none.
    pub(super) fn take_own(&mut self, client: &Client, node: u16, io: &mut Io<'_>) -> Result<Key, Vec<u8>> {
        let pool = client.pool;
        let (links, idle) = (&mut self.links, &mut self.idle_links);
        let fits = |key: &Key| links.get_mut(*key).is_some_and(|link| (link.node, link.pool) == (node, pool));
        if let Some(at) = idle.iter().position(fits) {
            let key = idle.swap_remove(at);
            if let Some(link) = self.links.get_mut(key) {
                link.owner = client.key;
                return Ok(key);
            }
        }
        let most = self.config.limits.own_connections_max / self.config.threads.max(1);
        if self.own_links >= most.max(1) && !self.end_idle(io) {
            return Err(
                b"-ERR too many clients have a node connection of their own (see --own-connections-max)\r\n".to_vec()
            );
        }
        let opened = self.open_link(pool, node, client.key, io);
        let key = opened.ok_or_else(|| self.unavailable(pool, node))?;
        self.own_links += 1;
        self.counters.own_connections.set(self.own_links as u64);
        Ok(key)
    }

    /// Closes an idle reserved connection, so that one to another node may be opened. `false`: there is none.
    fn end_idle(&mut self, io: &mut Io<'_>) -> bool {
        let Some(link) = self.idle_links.pop().and_then(|key| self.links.get_mut(key)) else { return false };
        link.end = Some(End::Unneeded);
        Connections::abort(io, link.id);
        true
    }

    /// After the last reply that a reserved connection's client waits for: moves the client back to shared connections.
    pub(super) fn free_own(&mut self, link: &mut NodeConnection, io: &mut Io<'_>) {
        let Some(client) = self.clients.get_mut(link.owner) else { return };
        let is_its = matches!(client.state, State::Reserved(own) | State::Blocked(own) if own == link.key);
        if !is_its || client.in_flight > 0 || matches!(client.front, Front::Upload(_)) || !link.pending.is_empty() {
            return;
        }
        client.state = State::Shared;
        link.owner = Key::NONE;
        // SELECT may have moved both.
        link.pool = client.pool;
        if self.idle_links.len() < IDLE_LINKS_MAX {
            self.idle_links.push(link.key);
        } else {
            link.end = Some(End::Unneeded);
            io.abort();
        }
    }

    /// A command that may block on its node.
    pub(super) fn block(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        match self.one_node(order, io) {
            Ok(node) if self.is_read_without_wait(order, io) => self.send_to_node(client, io, order, node),
            Ok(node) => self.send_reserved(client, io, order, node, State::Blocked),
            Err(text) => self.refuse(client, io, text.as_bytes()),
        }
    }

    /// Sends a request over a reserved connection, once nothing else of its client is in flight.
    pub(super) fn send_reserved(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        node: u16,
        state: fn(Key) -> State,
    ) -> Served {
        if client.in_flight > 0 {
            return Served::Waits;
        }
        match self.take_own(client, node, io) {
            Ok(link) => {
                client.state = state(link);
                self.forward(client, io, &order.source, (link, node), order.id)
            }
            Err(reply) => self.refuse_with(client, io, &reply),
        }
    }

    /// XREAD and XREADGROUP block only with BLOCK.
    fn is_read_without_wait(&self, order: &Order<'_>, io: &Io<'_>) -> bool {
        let request = order.request(io);
        let is_read = matches!(&*self.table.get(order.id).name, "xread" | "xreadgroup");
        is_read && !(1..request.len()).any(|at| request.is_word(at, b"BLOCK"))
    }

    /// Collects the reserved connections of a closed client.
    pub(super) fn orphan_links(&mut self, client: &Client) {
        let is_complete = match client.state {
            State::Reserved(_) | State::Closing(_) => !matches!(client.front, Front::Upload(_)),
            State::Shared | State::Blocked(_) | State::Transaction(_) => false,
        };
        let own = client.state.connection().map(|connection| Orphan { connection, is_complete });
        let subscribed = client.subscriptions.iter().flat_map(|all| all.connections());
        self.orphans.extend(own);
        self.orphans.extend(subscribed.map(|connection| Orphan { connection, is_complete: false }));
    }

    /// Closes the connection of a closed client.
    pub(super) fn end_orphan(&mut self, orphan: &Orphan, at: &mut LoopContext<'_>) {
        let Some(link) = self.links.get_mut(orphan.connection) else { return };
        link.end = Some(End::Unneeded);
        match at.connection(link.id) {
            // Redis executes what it has read before it sees the end.
            Some(mut neighbour) if orphan.is_complete => neighbour.end_output(),
            Some(mut neighbour) => neighbour.abort(),
            None => {}
        }
    }
}
