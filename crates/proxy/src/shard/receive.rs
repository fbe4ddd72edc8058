//! Replies: from a node connection's input to the waiting clients.
//!
//! A reply whose client waits for it next is copied into the client's output piece by piece. A client that has much unread makes only
//! its own connection wait ([`Shard::hold_back`]): a connection on which others wait is read on, and no new request is put behind the
//! large reply. What such a client holds meanwhile is bounded. Past the bound the connection is read as fast as the client reads, and a
//! client below [`HOLDING_BYTES_PER_LOOK_MIN`] is disconnected, so the others wait for a bounded time. The reactor disconnects a client
//! that reads next to nothing, also if nobody waits behind it.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Closed, Io, Loop, MemoryPart, Protocol};
use resp::codec::{Advance, ReplyKind, ReplyView, write_command};

use super::client::{Client, Hold, Reading};
use super::connections::Connections;
use super::node_connection::{End, Holder, NodeConnection};
use super::pending::{PendingRequest, Role, Step};
use super::slab::{Key, Slab};
use super::{Broken, Shard};
use crate::commands::CommandId;

/// Interval of the checks of a node connection for silence.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes that a client must read between two checks, on average, while others wait behind its reply and it holds as much as it may:
/// 8 MiB/s, which a line of 100 Mbit/s has.
const HOLDING_BYTES_PER_LOOK_MIN: u64 = (8 << 20) * LOOK_EVERY.as_millis() as u64 / 1000;
/// Checks without consequences for such a client: one second.
const HOLDING_LOOKS_FREE: u32 = 10;
/// Divisor of the time limit for a node's reply: after this part of it a subscriber's connection that is silent is asked.
const PING_PART: u32 = 2;

/// A node connection.
pub(crate) struct NodeProtocol {
    pub(super) key: Key,
    pub(super) shard: Rc<RefCell<Shard>>,
    pub(super) lp: Loop,
}

impl Protocol for NodeProtocol {
    fn writable(&mut self, io: &mut Io<'_>) {
        let shard = &mut *self.shard.borrow_mut();
        let Some(link) = shard.links.get_mut(self.key) else { return io.abort() };
        if !std::mem::replace(&mut link.is_connected, true) {
            io.set_timer(Some(LOOK_EVERY));
            let (node, counters) =
                (&mut shard.nodes[usize::from(link.node)], &shard.counters.nodes[usize::from(link.node)]);
            counters.connected.add(1);
            counters.is_down.set(0);
            node.succeeded();
        }
        // A large request of its client waits for room.
        if let Some(client) = shard.clients.get_mut(link.owner)
            && client.reading == Reading::WaitsForNode
        {
            client.go_on(io);
        }
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let shard = &mut *self.shard.borrow_mut();
        match shard.links.lend(self.key) {
            Some(mut link) => {
                shard.receive(&mut link, io);
                shard.links.take_back(self.key, link);
            }
            None => io.abort(),
        }
    }

    fn timer(&mut self, io: &mut Io<'_>) {
        let shard = &mut *self.shard.borrow_mut();
        let now_ns = io.lp().now_ns();
        shard.look_at_holder(self.key, io);
        let Some(link) = shard.links.get_mut(self.key) else { return io.abort() };
        io.set_timer(Some(LOOK_EVERY));
        let Some(most) = shard.config.node_timeout else { return };
        let owner = shard.clients.get_mut(link.owner);
        if link.is_paused || owner.is_some_and(|client| client.keeps_silent(link.key)) {
            // It is not the node that is waited for.
            link.active_ns = now_ns;
        }
        let silent = Duration::from_nanos(link.silent_ns(now_ns));
        if silent > most {
            link.end = Some(End::Failed(format!("no reply within {} ms", silent.as_millis())));
            return io.abort();
        }
        let idle = Duration::from_nanos(now_ns.saturating_sub(link.active_ns));
        if link.is_subscribed && link.pending.is_empty() && idle > most / PING_PART {
            write_command(io.output(), &["PING"]);
            let ping = PendingRequest::of_proxy(Role::Handshake(Step::Ping), CommandId(0), now_ns);
            link.pending.push_back(ping);
        }
    }

    fn hoards(&mut self, _part: MemoryPart, io: &mut Io<'_>) {
        // Memory is short, which is no fault of the node.
        if let Some(link) = self.shard.borrow_mut().links.get_mut(self.key) {
            link.end = Some(End::Unneeded);
        }
        io.cut();
    }

    fn drain(&mut self, _io: &mut Io<'_>) {
        // It ends after the clients whose replies it delivers: see `housekeeping`.
    }

    fn closed(&mut self, reason: Closed) {
        self.shard.borrow_mut().link_closed(self.key, reason);
        self.lp.run(Box::new(|_| {}));
    }
}

impl Shard {
    /// Handles the bytes that a node has sent.
    fn receive(&mut self, link: &mut NodeConnection, io: &mut Io<'_>) {
        (link.active_ns, link.is_paused) = (self.lp.now_ns(), false);
        if link.is_subscribed {
            return self.receive_messages(link, io);
        }
        let mut at = 0;
        while at < io.input().len() && !link.is_paused {
            let Some(request) = link.pending.front().copied() else {
                // No request is pending. A push of RESP3 was requested by no client of a shared connection.
                self.end_failed(link, "it sent a reply that no request waits for", io);
                break;
            };
            match link.framer.advance(&io.input()[at..]) {
                Ok(advance) => {
                    let range = at..at + advance.consumed;
                    at = range.end;
                    self.take_piece(link, io, request, range, advance);
                    if link.end.is_some() {
                        // The node has not admitted the proxy: what follows is not meant for clients.
                        break;
                    }
                }
                Err(error) => {
                    self.end_failed(link, &format!("its bytes are no reply: {error}"), io);
                    break;
                }
            }
        }
        io.consume(at);
        self.free_own(link, io);
        self.settle_shared(link, io);
        if io.input_ended() {
            self.end_failed(link, "it closed the connection", io);
        }
    }

    pub(super) fn end_failed(&mut self, link: &mut NodeConnection, reason: &str, io: &mut Io<'_>) {
        link.end.get_or_insert_with(|| End::Failed(reason.to_owned()));
        io.abort();
    }

    /// After replies on a shared connection: wakes clients that waited for them, and ends a connection that has left its pool.
    #[inline]
    fn settle_shared(&mut self, link: &mut NodeConnection, io: &mut Io<'_>) {
        if !link.waiting.is_empty() && link.has_room_again() {
            self.wake_waiting(link, io);
        }
        // A paused one would make its next users wait for the client for which it is paused.
        if link.is_own || link.is_paused || !link.pending.is_empty() {
            return;
        }
        let pool = &mut self.pools[usize::from(link.pool)];
        match pool.connection(link.node) {
            key if key == link.key => {}
            Key::NONE if self.nodes[usize::from(link.node)].is_listed => {
                link.holder = None;
                pool.set_connection(link.node, link.key);
            }
            _ => {
                link.end.get_or_insert(End::Unneeded);
                io.abort();
            }
        }
    }

    /// Wakes the clients whose next request waits for this node.
    pub(super) fn wake_waiting(&mut self, link: &mut NodeConnection, connections: &mut impl Connections) {
        for key in std::mem::take(&mut link.waiting) {
            if let Some(client) = self.clients.get_mut(key).filter(|client| client.reading == Reading::WaitsForNode) {
                client.go_on(connections);
            }
        }
    }

    /// A client has more unread than it may hold: `held` bytes, unsent ones, or of replies that wait for the one numbered `next`. A
    /// connection on which nobody else waits is not read until there is room. One on which others wait is read on until the client holds
    /// much more, and gets no new requests.
    #[cold]
    fn hold_back(&mut self, link: &mut NodeConnection, key: Key, held: usize, next: Option<u32>, io: &mut Io<'_>) {
        let pool = &mut self.pools[usize::from(link.pool)];
        if link.owner == Key::NONE && pool.connection(link.node) == link.key {
            pool.forget(link.node, link.key);
            // Requests on another connection could overtake those in flight on this one.
            for request in &link.pending {
                if let Some(client) = self.clients.get_mut(request.client) {
                    client.reading = Reading::WaitsForAnswers;
                }
            }
            self.wake_waiting(link, io);
        }
        let others_wait = others_wait(link, key, &mut self.clients);
        let Some(client) = self.clients.get_mut(key) else { return };
        // Without the reply that the client waits for, it would hold these for ever.
        let has_next = |next| link.pending.iter().any(|request| client.awaits_as(request) == Some(next));
        if others_wait && held <= self.ledger.client_bytes_max || next.is_some_and(has_next) {
            return;
        }
        io.pause_input();
        link.is_paused = true;
        client.holds.push(Hold { connection: link.id, next });
        Connections::notify_writable(io, client.id);
        if link.holder.as_ref().is_none_or(|holder| holder.client != key) {
            let sent_before = io.neighbour(client.id).map_or(0, |at| at.sent());
            link.holder = Some(Holder { client: key, sent_before, looks: 0 });
        }
    }

    /// Disconnects the client for which a connection is not read if others wait behind its reply and it reads too slowly. Only checks
    /// at which the connection is not read count: otherwise it is the node that is slow.
    fn look_at_holder(&mut self, key: Key, io: &mut Io<'_>) {
        let Some(link) = self.links.get_mut(key).filter(|link| link.is_paused) else { return };
        let Some(holder) = &mut link.holder else { return };
        holder.looks += 1;
        let expected = u64::from(holder.looks.saturating_sub(HOLDING_LOOKS_FREE)) * HOLDING_BYTES_PER_LOOK_MIN;
        let (key, sent_before) = (holder.client, holder.sent_before);
        let Some(id) = self.clients.get_mut(key).map(|client| client.id) else { return };
        let read = io.neighbour(id).map_or(u64::MAX, |at| at.sent() - sent_before);
        if read < expected && others_wait(link, key, &mut self.clients) {
            tracing::info!(
                read,
                expected,
                "a client that read slowly was disconnected: others waited behind its reply"
            );
            self.counters.stalled.add(1);
            Connections::abort(io, id);
        }
    }

    /// Handles a piece of a reply, or its end.
    #[inline]
    fn take_piece(
        &mut self,
        link: &mut NodeConnection,
        io: &mut Io<'_>,
        request: PendingRequest,
        range: Range<usize>,
        advance: Advance,
    ) {
        if self.cluster.is_some() && self.take_error(link, io, &request, &range, advance) {
            return;
        }
        match request.role {
            Role::Reply(number) => self.take_reply(link, io, &request, number, range, advance.is_complete),
            Role::Part { gather, part } => self.take_part(io, &request, (gather, part), range, advance.is_complete),
            Role::Dropped => {}
            Role::Handshake(step) => self.take_step(link, io, step, range, advance.is_complete),
        }
        if advance.is_complete {
            self.reply_is_complete(link, io, &request);
        }
    }

    /// The end of a reply: counts it, and resumes its client.
    #[inline]
    fn reply_is_complete(&mut self, link: &mut NodeConnection, io: &mut Io<'_>, request: &PendingRequest) {
        link.answered(request);
        self.ledger.reserved_bytes -= request.reserved as usize;
        if let Role::Handshake(_) = request.role {
            return;
        }
        let is_error = link.framer.kind() == Some(ReplyKind::Error);
        let took_ns = self.lp.now_ns().saturating_sub(request.sent_ns);
        self.counters.answered(link.node, request.command, took_ns, is_error);
        if self.config.ejection.is_some() {
            self.nodes[usize::from(link.node)].answered();
        }
        if self.config.slow.is_some_and(|slow| Duration::from_nanos(took_ns) >= slow) {
            self.log_slow(link.node, request, took_ns);
        }
        if let Some(client) = self.clients.get_mut(request.client) {
            let limits = &self.config.limits;
            client.settle(request);
            client.window.replied(link.framer.bytes(), limits.commands_max, limits.client_bytes_max);
            client.progressed(limits, self.ledger.is_pressed(), io);
        }
    }

    /// In a cluster an error may redirect the request to another node. `true`: this piece belongs to an error, and was handled.
    fn take_error(
        &mut self,
        link: &mut NodeConnection,
        io: &mut Io<'_>,
        request: &PendingRequest,
        range: &Range<usize>,
        advance: Advance,
    ) -> bool {
        let is_begin = link.framer.bytes() == advance.consumed as u64;
        let is_error = match is_begin {
            true => io.input()[range.start] == b'-',
            false => !link.partial.is_empty(),
        };
        if !is_error || matches!(request.role, Role::Handshake(_)) {
            return false;
        }
        link.partial.extend_from_slice(&io.input()[range.clone()]);
        if !advance.is_complete {
            return true;
        }
        let reply = std::mem::take(&mut link.partial);
        if let Some(reply) = self.follow(link, io, request, reply) {
            self.answer_whole(request, &reply, io);
        }
        self.reply_is_complete(link, io, request);
        true
    }

    #[inline]
    fn take_reply(
        &mut self,
        link: &mut NodeConnection,
        io: &mut Io<'_>,
        request: &PendingRequest,
        number: u32,
        range: Range<usize>,
        is_complete: bool,
    ) {
        // Replies that nobody waits for any more are dropped here.
        let Some(client) = self.clients.get_mut(request.client) else { return };
        let (held, next) = if client.queue.is_head(number) {
            let Some((input, mut neighbour)) = io.input_and_neighbour(client.id) else { return };
            client.queue.forward(&input[range], is_complete, neighbour.output(), &mut self.buffers);
            (neighbour.unsent(), None)
        } else {
            client.queue.keep(number, &io.input()[range], is_complete, &mut self.buffers);
            (client.queue.kept_bytes(), Some(client.queue.head()))
        };
        self.ledger.enter(client, io);
        if Client::is_full(held, &self.config.limits) {
            self.hold_back(link, request.client, held, next, io);
        }
    }

    fn take_part(
        &mut self,
        io: &mut Io<'_>,
        request: &PendingRequest,
        (at, part): (u16, u16),
        range: Range<usize>,
        is_complete: bool,
    ) {
        let Some(mut client) = self.clients.lend(request.client) else { return };
        if let Some(gather) = client.gathers.get_mut(usize::from(at)).and_then(Option::as_mut) {
            let before = gather.held_bytes();
            gather.receive(part, &io.input()[range], is_complete, self.config.limits.joined_bytes_max);
            client.gathered_bytes = client.gathered_bytes + gather.held_bytes() - before;
        }
        self.finish_gather(&mut client, at, io);
        self.ledger.enter(&mut client, io);
        self.clients.take_back(request.client, client);
    }

    fn take_step(
        &mut self,
        link: &mut NodeConnection,
        io: &mut Io<'_>,
        step: Step,
        range: Range<usize>,
        is_complete: bool,
    ) {
        link.partial.extend_from_slice(&io.input()[range]);
        if !is_complete {
            return;
        }
        let reply = std::mem::take(&mut link.partial);
        self.take_whole_step(link, io, step, &reply);
    }

    /// Handles the reply to a step of the handshake.
    pub(super) fn take_whole_step(&mut self, link: &mut NodeConnection, io: &mut Io<'_>, step: Step, reply: &[u8]) {
        let view = link.framer.view(reply);
        match (step, view) {
            // The proxy's own table suffices.
            (Step::Command, ReplyView::Error(_)) => self.has_asked_commands = false,
            (Step::Command, view) => self.table.learn(&view),
            (Step::Slots, ReplyView::Error(text)) => tracing::warn!("CLUSTER SLOTS: {}", String::from_utf8_lossy(text)),
            (Step::Slots, view) => self.take_slots(link, &view, io),
            (_, ReplyView::Error(text)) => {
                link.end = Some(End::Refused(format!("it refused {step:?}: {}", String::from_utf8_lossy(text))));
                io.abort();
            }
            _ => {}
        }
    }

    /// Logs a slow command.
    #[cold]
    fn log_slow(&self, node: u16, request: &PendingRequest, took_ns: u64) {
        let (node, command) = (&self.nodes[usize::from(node)].config.name, &self.table.get(request.command).name);
        tracing::warn!(command, node, milliseconds = took_ns / 1_000_000, "slow command");
    }

    /// A node connection has ended. Clients that wait for its replies are answered at the end of the tick.
    fn link_closed(&mut self, key: Key, closed: Closed) {
        let Some(mut link) = self.links.remove(key) else { return };
        self.pools[usize::from(link.pool)].forget(link.node, key);
        if link.pending.iter().any(|pending| pending.role == Role::Handshake(Step::Command)) {
            self.has_asked_commands = false;
        }
        self.idle_links.retain(|idle| *idle != key);
        if link.is_own {
            self.own_links -= 1;
            self.counters.own_connections.set(self.own_links as u64);
        }
        // Connections of closed clients and of nodes removed from the list end without a failure.
        let is_missed = self.nodes[usize::from(link.node)].is_listed && !link.is_own;
        let is_failure = is_missed || matches!(closed, Closed::Unconnected(_));
        let (reason, is_failure) = match link.end.take() {
            Some(End::Unneeded) => (end_of(closed), false),
            Some(End::Refused(reason)) => {
                tracing::warn!(node = %self.nodes[usize::from(link.node)].config.name, reason, "node connection refused");
                self.pools[usize::from(link.pool)].refused(link.node, self.lp.now_ns(), reason.clone());
                (reason, false)
            }
            Some(End::Failed(reason)) => (reason, is_failure),
            None => (end_of(closed), is_failure),
        };
        if is_failure {
            self.node_failed(link.node, reason.clone());
            if link.is_connected && !link.is_beginning() {
                // The connection was in use: the node may be tried again at once.
                self.nodes[usize::from(link.node)].succeeded();
            }
        }
        self.broken.push(Broken { link, reason });
    }
}

/// Whether a client other than this one waits for a reply on a connection.
fn others_wait(link: &NodeConnection, key: Key, clients: &mut Slab<Client>) -> bool {
    let others = link.pending.iter().map(|request| request.client).filter(|client| *client != key);
    others.into_iter().any(|client| clients.get_mut(client).is_some())
}

/// Why a node connection ended, if the proxy did not close it for a reason of its own.
fn end_of(reason: Closed) -> String {
    match reason {
        Closed::Unconnected(failure) => failure.to_string(),
        Closed::Peer => "it closed the connection".to_owned(),
        Closed::Aborted => "the connection was ended".to_owned(),
        other => format!("the connection ended ({other:?})"),
    }
}
