//! Work at the end of a tick: lost replies, closed clients, memory pressure, replacement of the node list.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{LoopContext, LoopState};

use super::client::{Front, Reading, State};
use super::connections::Connections;
use super::pending::{PendingRequest, Role};
use super::{Broken, Shard};
use crate::node_list::NodeList;

/// The proxy's hooks of a loop.
pub(crate) struct Housekeeping {
    shard: Rc<RefCell<Shard>>,
    version: u64,
    drains: bool,
}

impl Housekeeping {
    pub(crate) fn new(shard: Rc<RefCell<Shard>>) -> Housekeeping {
        Housekeeping { shard, version: 0, drains: false }
    }
}

impl LoopState for Housekeeping {
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
        for orphan in std::mem::take(&mut shard.orphans) {
            shard.end_orphan(&orphan, at);
        }
        std::mem::take(&mut shard.released).into_iter().for_each(|id| at.resume(id));
        // A new connection would keep a loop that drains from its end.
        if !self.drains {
            shard.refresh_slots(at);
        }
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
        let Broken { mut link, reason } = broken;
        let error = self.nodes[usize::from(link.node)].lost(&reason);
        for request in std::mem::take(&mut link.pending) {
            self.answer_lost(link.node, &request, &error, at);
        }
        self.wake_waiting(&mut link, at);
        let Some(client) = self.clients.get_mut(link.owner) else { return };
        if link.is_subscribed || client.front == Front::Upload(Some(link.key)) {
            // No reply can tell a subscriber that its channels are silent; half a request cannot be withdrawn.
            return at.abort(client.id);
        }
        match &mut client.state {
            State::Reserved(own) | State::Blocked(own) if *own == link.key => client.state = State::Shared,
            State::Transaction(state) => state.lose_link(link.node, &error),
            _ => {}
        }
        client.progressed(&self.config.limits, self.ledger.is_pressed(), at);
    }

    fn answer_lost(&mut self, node: u16, request: &PendingRequest, error: &[u8], at: &mut LoopContext<'_>) {
        if let Role::Handshake(_) = request.role {
            return;
        }
        let took_ns = self.lp.now_ns().saturating_sub(request.sent_ns);
        self.ledger.reserved_bytes -= request.reserved as usize;
        self.counters.answered(node, request.command, took_ns, true);
        self.answer_whole(request, error, at);
        if let Some(client) = self.clients.get_mut(request.client) {
            client.settle(request);
            client.progressed(&self.config.limits, self.ledger.is_pressed(), at);
        }
    }

    /// Replaces a client's expected reply, or a part of it, by an error.
    pub(super) fn answer_whole(&mut self, request: &PendingRequest, error: &[u8], connections: &mut impl Connections) {
        let Some(mut client) = self.clients.lend(request.client) else { return };
        match request.role {
            // The client has received a part of a reply, so no error can follow.
            Role::Reply(number) if client.queue.is_head(number) && client.queue.head_has_begun() => {
                connections.abort(client.id)
            }
            Role::Reply(number) => self.give_whole(&mut client, number, error.to_vec(), connections),
            Role::Part { gather: at, part } => {
                if let Some(gather) = client.gathers.get_mut(usize::from(at)).and_then(Option::as_mut) {
                    gather.fail(part, error);
                }
                self.finish_gather(&mut client, at, connections);
            }
            Role::Dropped | Role::Handshake(_) => {}
        }
        self.ledger.enter(&mut client, connections);
        self.clients.take_back(request.client, client);
    }

    /// Checks whether all clients together hold too much, and resumes those that waited because of it.
    fn look_at_memory(&mut self, at: &mut LoopContext<'_>) {
        self.counters.kept_bytes.set(self.ledger.kept_bytes() as u64);
        for key in self.ledger.look(self.lp.metrics().held_bytes as usize) {
            let starved = self.clients.get_mut(key).filter(|client| client.reading == Reading::WaitsForMemory);
            starved.into_iter().for_each(|client| client.go_on(at));
        }
    }

    /// Closes connections to removed nodes, once no replies are pending on them.
    fn end_unlisted(&mut self, at: &mut LoopContext<'_>) {
        let (nodes, pools) = (&self.nodes, &mut self.pools);
        for link in self.links.iter_mut().filter(|link| !nodes[usize::from(link.node)].is_listed) {
            pools[usize::from(link.pool)].forget(link.node, link.key);
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
}
