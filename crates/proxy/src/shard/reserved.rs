//! Node connections that are reserved for one client for a time.
//!
//! Transactions, commands that may block on the node, subscriptions and large requests would delay the other clients of a shared
//! connection. A client switches to a reserved connection, and back, only when all its earlier commands are answered: so they
//! never overtake one another. Connections that are returned in a clean state are reused; their number is bounded for a loop.

use reactor::{Io, LoopContext};

use super::Shard;
use super::admission::Served;
use super::client::{Client, Mode, Waits};
use super::dispatch::Order;
use super::link::Link;
use super::slab::Key;
use super::wires::Wires;

/// Largest number of idle reserved connections.
const IDLE_LINKS_MAX: usize = 16;

impl Shard {
    /// Reserves a connection to a node for this client.
    ///
    /// # Errors
    /// The error reply if there is none.
    pub(super) fn take_own(&mut self, client: &Client, node: u16, io: &mut Io<'_>) -> Result<Key, Vec<u8>> {
        let lane = client.lane;
        let (links, idle) = (&mut self.links, &mut self.idle_links);
        let fits = |key: &Key| links.get_mut(*key).is_some_and(|link| (link.node, link.lane) == (node, lane));
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
        let Some(key) = self.open_link(lane, node, client.key, io) else {
            return Err(self.nodes[usize::from(node)].down());
        };
        self.own_links += 1;
        self.counters.own_connections.set(self.own_links as u64);
        Ok(key)
    }

    /// Closes an idle reserved connection, so that one to another node may be opened. `false`: there is none.
    fn end_idle(&mut self, io: &mut Io<'_>) -> bool {
        let Some(link) = self.idle_links.pop().and_then(|key| self.links.get_mut(key)) else { return false };
        Wires::abort(io, link.id);
        true
    }

    /// Returns a connection without expected replies and watched keys.
    pub(super) fn give_back_own(&mut self, key: Key, wires: &mut impl Wires) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.owner = Key::NONE;
        if self.idle_links.len() < IDLE_LINKS_MAX && link.expected.is_empty() && !link.is_subscribed {
            self.idle_links.push(key);
        } else {
            wires.abort(link.id);
        }
    }

    /// Moves a client back to shared connections, if all commands on its reserved one are answered.
    pub(super) fn leave_own(&mut self, client: &mut Client, link: Key, io: &mut Io<'_>) -> bool {
        if !client.queue.is_empty() {
            self.wait(client, Waits::Empty, io);
            return false;
        }
        (client.mode, client.is_blocked) = (Mode::Plain, false);
        self.give_back_own(link, io);
        true
    }

    /// After the last reply that a reserved connection's client waits for: moves the client back to shared connections.
    pub(super) fn free_own(&mut self, link: &mut Link, io: &mut Io<'_>) {
        let Some(client) = self.clients.get_mut(link.owner) else { return };
        let is_over = client.queue.is_empty() && client.stream.is_none() && link.expected.is_empty();
        if !is_over || !matches!(client.mode, Mode::Own(own) if own == link.key) {
            return;
        }
        (client.mode, client.is_blocked) = (Mode::Plain, false);
        link.owner = Key::NONE;
        if self.idle_links.len() < IDLE_LINKS_MAX {
            self.idle_links.push(link.key);
        } else {
            Wires::abort(io, link.id);
        }
    }

    /// A command that may block on its node.
    pub(super) fn block(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let node = match self.one_node(order, io) {
            Ok(node) => node,
            Err(text) => return self.refuse(client, io, text.as_bytes()),
        };
        if self.is_read_without_wait(order, io) {
            return self.send_to_node(client, io, order, node);
        }
        if !client.queue.is_empty() {
            return Served::Waits;
        }
        match self.take_own(client, node, io) {
            Ok(link) => {
                (client.mode, client.is_blocked) = (Mode::Own(link), true);
                self.forward(client, io, &order.source, (link, node), order.id);
            }
            Err(reply) => self.answer_bytes(client, io, &reply),
        }
        Served::Done
    }

    /// XREAD and XREADGROUP block only with BLOCK.
    fn is_read_without_wait(&self, order: &Order<'_>, io: &Io<'_>) -> bool {
        let request = order.request(io);
        let is_read = matches!(&*self.table.get(order.id).name, "xread" | "xreadgroup");
        is_read && !(1..request.len()).any(|at| request.is_word(at, b"BLOCK"))
    }

    /// Collects the reserved connections of a closed client.
    pub(super) fn orphan_links(&mut self, client: &mut Client) {
        match &client.mode {
            Mode::Plain => {}
            Mode::Own(link) => self.orphans.push(*link),
            Mode::Transaction(state) => self.orphans.extend(state.link()),
        }
        self.orphans.extend(client.stream);
        if let Some(subscriptions) = &client.subscriptions {
            self.orphans.extend(subscriptions.links());
        }
    }

    /// Closes the connection of a closed client: its transaction or blocking command ends with it.
    pub(super) fn end_orphan(&mut self, key: Key, at: &mut LoopContext<'_>) {
        if let Some(link) = self.links.get_mut(key) {
            at.abort(link.id);
        }
    }
}
