//! Work at the end of a tick: lost replies, closed clients, memory pressure, replacement of the node list.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{LoopContext, LoopState};

use super::client::{Mode, Waits};
use super::expected::{Expected, Role};
use super::slab::Key;
use super::wires::Wires;
use super::{Broken, Shard};
use crate::node_list::NodeList;

/// Clients that wait because of memory are read again once less than this many eighths of the bound is held.
const CALM_PARTS_OF_8: usize = 7;

/// The proxy's hooks of a loop.
pub(crate) struct Upkeep {
    shard: Rc<RefCell<Shard>>,
    version: u64,
    drains: bool,
}

impl Upkeep {
    pub(crate) fn new(shard: Rc<RefCell<Shard>>) -> Upkeep {
        Upkeep { shard, version: 0, drains: false }
    }
}

impl LoopState for Upkeep {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        self.shard.borrow_mut().preconnect(at);
    }

    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        let shard = &mut *self.shard.borrow_mut();
        shard.shared_nodes.readmit(shard.lp.now_ns());
        let version = shard.shared_nodes.version();
        if self.version != version {
            let (list, before) = (shard.shared_nodes.get(), (Arc::clone(&shard.list), shard.node_numbers.clone()));
            if shard.take_list(list) {
                self.version = version;
                shard.end_unlisted(at);
                shard.end_moved_subscribers(&before, at);
                shard.preconnect(at);
            }
        }
        while let Some(broken) = shard.broken.pop() {
            shard.answer_broken(broken, at);
        }
        for key in std::mem::take(&mut shard.orphans) {
            shard.end_orphan(key, at);
        }
        std::mem::take(&mut shard.released).into_iter().for_each(|id| at.resume(id));
        shard.look_at_memory(at);
        if self.drains && shard.clients.len() == 0 {
            shard.links.iter_mut().for_each(|link| at.abort(link.id));
        }
    }

    fn draining(&mut self, _at: &mut LoopContext<'_>) {
        self.drains = true;
    }
}

impl Shard {
    /// Answers the pending requests of a closed node connection.
    fn answer_broken(&mut self, broken: Broken, at: &mut LoopContext<'_>) {
        let error = self.nodes[usize::from(broken.node)].lost(&broken.reason);
        for expected in &broken.expected {
            self.answer_lost(broken.node, expected, &error, at);
        }
        let Some(mut client) = self.clients.lend(broken.owner) else { return };
        self.own_link_broke(&mut client, broken.node, broken.is_subscribed, at);
        self.clients.take_back(broken.owner, client);
    }

    fn answer_lost(&mut self, node: u16, expected: &Expected, error: &[u8], at: &mut LoopContext<'_>) {
        if let Role::Handshake(_) = expected.role {
            return;
        }
        let took_ns = self.lp.now_ns().saturating_sub(expected.sent_ns);
        self.reserved_bytes -= expected.reserved as usize;
        self.counters.answered(node, expected.command, took_ns, true);
        self.answer_whole(expected, error, at);
        if let Some(client) = self.clients.get_mut(expected.client) {
            client.request_bytes -= expected.bytes as usize;
            client.progressed(&self.config.limits, self.is_pressed, at);
        }
    }

    /// Replaces a client's expected reply, or a part of it, by an error.
    pub(super) fn answer_whole(&mut self, expected: &Expected, error: &[u8], wires: &mut impl Wires) {
        let Some(mut client) = self.clients.lend(expected.client) else { return };
        let kept = client.queue.kept_bytes();
        match expected.role {
            // The client has received a part of a reply, so no error can follow.
            Role::Reply(number) if client.queue.is_head(number) && client.queue.head_has_begun() => {
                wires.abort(client.id)
            }
            Role::Reply(number) => {
                match client.queue.is_head(number) {
                    true => {
                        if let Some(output) = wires.output(client.id) {
                            client.queue.forward(error, true, output, &mut self.pool);
                        }
                    }
                    false => client.queue.keep_whole(number, error),
                }
                self.kept_bytes = self.kept_bytes + client.queue.kept_bytes() - kept;
            }
            Role::Part { gather: at, part } => {
                if let Some(gather) = client.gathers.get_mut(usize::from(at)).and_then(Option::as_mut) {
                    gather.fail(part, error);
                }
                self.finish_gather(&mut client, at, wires);
            }
            Role::Dropped | Role::Handshake(_) => {}
        }
        self.clients.take_back(expected.client, client);
    }

    /// Checks whether all clients together hold too much, and resumes those that waited because of it.
    fn look_at_memory(&mut self, at: &mut LoopContext<'_>) {
        self.counters.kept_bytes.set(self.kept_bytes as u64);
        self.held_bytes = self.lp.metrics().held_bytes as usize + self.kept_bytes;
        let held = self.held_bytes + self.reserved_bytes;
        self.is_pressed = match self.is_pressed {
            true => held > self.pressure_bytes / 8 * CALM_PARTS_OF_8,
            false => held > self.pressure_bytes,
        };
        if self.is_pressed || self.starved.is_empty() {
            return;
        }
        for key in std::mem::take(&mut self.starved) {
            let Some(client) = self.clients.get_mut(key).filter(|client| client.waits == Waits::Total) else {
                continue;
            };
            client.waits = Waits::No;
            client.wake(at);
        }
    }

    /// Closes connections to removed nodes, once no replies are pending on them.
    fn end_unlisted(&mut self, at: &mut LoopContext<'_>) {
        let (nodes, lanes) = (&self.nodes, &mut self.lanes);
        for link in self.links.iter_mut().filter(|link| !nodes[usize::from(link.node)].is_listed) {
            let lane = &mut lanes[usize::from(link.lane)];
            if lane.link(link.node) == link.key {
                lane.set_link(link.node, Key::NONE);
            }
            // Redis answers the requests that it has read before it sees the end, and then closes. Subscribers are disconnected.
            if let Some(mut neighbour) = at.connection(link.id) {
                match link.is_subscribed {
                    true => neighbour.abort(),
                    false => neighbour.end_output(),
                }
            }
        }
        tracing::info!(nodes = self.node_numbers.len(), "another list of nodes is in force");
    }

    /// Disconnects subscribers that would miss messages: those with a channel that another node has now, and those with a pattern if
    /// there are more nodes. No reply could tell them. In a cluster the nodes themselves end the subscriptions of moved slots.
    fn end_moved_subscribers(&mut self, (list, numbers): &(Arc<NodeList>, Vec<u16>), at: &mut LoopContext<'_>) {
        if self.cluster.is_some() {
            return;
        }
        let has_more = self.node_numbers.iter().any(|number| !numbers.contains(number));
        let has_moved = |name: &[u8]| {
            let [before, now] = [(list, numbers), (&self.list, &self.node_numbers)]
                .map(|(list, numbers)| numbers.get(list.placement.node(name, 0)));
            before != now
        };
        for client in self.clients.iter_mut() {
            if client.subscriptions.as_ref().is_some_and(|all| all.would_miss(has_more, &has_moved)) {
                at.abort(client.id);
            }
        }
    }

    /// Adjusts a client's mode after the loss of its reserved connection.
    fn own_link_broke(
        &mut self,
        client: &mut super::Client,
        node: u16,
        was_subscribed: bool,
        at: &mut LoopContext<'_>,
    ) {
        if was_subscribed || client.stream.is_some() {
            // No reply can tell a subscriber that its channels are silent; half a request cannot be withdrawn.
            return at.abort(client.id);
        }
        match &mut client.mode {
            Mode::Own(_) => (client.mode, client.is_blocked) = (Mode::Plain, false),
            Mode::Transaction(state) => state.lose_link(node),
            Mode::Plain => {}
        }
        client.progressed(&self.config.limits, self.is_pressed, at);
    }
}
