//! Replies: from a node connection's input to the waiting clients.
//!
//! A reply whose client waits for it next is copied into the client's output piece by piece, so its size needs no memory here. A
//! node connection is not read while the client of its next reply exceeds its bounds; clients whose replies follow on the same
//! connection wait too. The reactor disconnects a client that does not read. A client that blocks a node connection for longer
//! than [`crate::config::ProxyLimits::stall_max`] is disconnected here. Clients whose replies waited behind it were not read by the
//! node's connection meanwhile, and cannot be judged before: each of them then has a [`STALL_PART`] of that time to read something, so
//! that many clients that read nothing do not block a node one full time after the other.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Closed, Io, Loop, Protocol};
use resp::codec::{Advance, ReplyKind, ReplyView};

use super::client::Client;
use super::expected::{Expected, Role, Step};
use super::link::{Held, Link};
use super::slab::Key;
use super::wires::Wires;
use super::{Broken, Shard};

/// Interval of the checks of a node connection: for silence, and for clients that block it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Divisor of the time that a client may block a node connection, if its replies have waited while another one did, and it reads nothing.
const STALL_PART: u32 = 16;

/// A node connection.
pub(crate) struct LinkProtocol {
    pub(super) key: Key,
    pub(super) shard: Rc<RefCell<Shard>>,
    pub(super) lp: Loop,
}

impl Protocol for LinkProtocol {
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
            && client.stream.is_some()
        {
            client.wake(io);
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
        let Some(link) = shard.links.get_mut(self.key) else { return io.abort() };
        io.set_timer(Some(LOOK_EVERY));
        if let Some(held) = link.held {
            let (most, blocked) = (shard.config.limits.stall_max, Duration::from_nanos(now_ns - held.since_ns));
            let has_waited = link.expected.front().is_some_and(|expected| expected.sent_ns <= link.stalled_ns);
            if let Some(client) = shard.clients.get_mut(held.client) {
                let reads_nothing = held.unsent.is_some_and(|unsent| Wires::unsent(io, client.id) >= unsent);
                if blocked > if has_waited && reads_nothing { most / STALL_PART } else { most } {
                    tracing::info!("a client that blocked a node connection was disconnected");
                    shard.counters.stalled.add(1);
                    io.abort_other(client);
                }
            }
            return;
        }
        let may_wait = shard.clients.get_mut(link.owner).is_some_and(|client| client.is_blocked);
        let waits = link.expected.front().filter(|_| !may_wait);
        let silent_ns = waits.map_or(0, |expected| now_ns.saturating_sub(expected.sent_ns));
        if shard.config.node_timeout.is_some_and(|most| Duration::from_nanos(silent_ns) > most) {
            link.failure = Some(format!("no reply within {} ms", silent_ns / 1_000_000));
            io.abort();
        }
    }

    fn drain(&mut self, _io: &mut Io<'_>) {
        // It ends after the clients whose replies it delivers: see `upkeep`.
    }

    fn closed(&mut self, reason: Closed) {
        self.shard.borrow_mut().link_closed(self.key, reason);
        self.lp.run(Box::new(|_| {}));
    }
}

/// Disconnects a client during a node connection's turn.
trait AbortOther {
    fn abort_other(&mut self, client: &mut Client);
}

impl AbortOther for Io<'_> {
    fn abort_other(&mut self, client: &mut Client) {
        Wires::abort(self, client.id);
    }
}

impl Shard {
    /// Handles the bytes that a node has sent.
    fn receive(&mut self, link: &mut Link, io: &mut Io<'_>) {
        if link.is_subscribed {
            return self.receive_messages(link, io);
        }
        link.held = None;
        let mut at = 0;
        while at < io.input().len() {
            let Some(expected) = link.expected.front().copied() else {
                // No request is pending. A push of RESP3 was requested by no client of a shared connection.
                link.failure = Some("it sent a reply that no request waits for".to_owned());
                io.abort();
                break;
            };
            if self.must_hold(link, &expected, io) {
                break;
            }
            match link.framer.advance(&io.input()[at..]) {
                Ok(advance) => {
                    let range = at..at + advance.consumed;
                    at = range.end;
                    self.take_piece(link, io, expected, range, advance);
                    if link.failure.is_some() {
                        // The node has not admitted the proxy: what follows is not meant for clients.
                        break;
                    }
                }
                Err(error) => {
                    link.failure = Some(format!("its bytes are no reply: {error}"));
                    io.abort();
                    break;
                }
            }
        }
        io.consume(at);
        self.free_own(link, io);
        self.refresh_slots(io);
        if io.input_ended() {
            link.failure.get_or_insert_with(|| "it closed the connection".to_owned());
            io.abort();
        }
    }

    /// Whether the client of the next reply has no room for it; the connection is then not read until it has.
    #[inline]
    fn must_hold(&mut self, link: &mut Link, expected: &Expected, io: &mut Io<'_>) -> bool {
        let Some(client) = self.clients.get_mut(expected.client).filter(|client| client.is_over) else { return false };
        let is_next = matches!(expected.role, Role::Reply(number) if client.queue.is_head(number));
        let is_over = match expected.role {
            Role::Reply(_) if is_next => {
                io.neighbour(client.id).is_some_and(|at| at.unsent() > 2 * self.config.limits.client_bytes_max)
            }
            Role::Reply(_) => client.queue.kept_bytes() > 2 * self.config.limits.client_bytes_max,
            _ => false,
        };
        if is_over {
            io.pause_input();
            client.holds.push(link.id);
            let unsent = is_next.then(|| Wires::unsent(io, client.id));
            link.held = Some(Held { client: client.key, since_ns: self.lp.now_ns(), unsent });
            Wires::notify_writable(io, client.id);
        }
        is_over
    }

    /// Handles a piece of a reply, or its end.
    #[inline]
    fn take_piece(
        &mut self,
        link: &mut Link,
        io: &mut Io<'_>,
        expected: Expected,
        range: Range<usize>,
        advance: Advance,
    ) {
        if self.cluster.is_some() && self.take_error(link, io, &expected, &range, advance) {
            return;
        }
        match expected.role {
            Role::Reply(number) => self.take_reply(link, io, &expected, number, range, advance.is_complete),
            Role::Part { gather, part } => self.take_part(io, &expected, (gather, part), range, advance.is_complete),
            Role::Dropped => {}
            Role::Handshake(step) => self.take_step(link, io, step, range, advance.is_complete),
        }
        if advance.is_complete {
            self.reply_is_complete(link, io, &expected);
        }
    }

    /// The end of a reply: counts it, and resumes its client.
    #[inline]
    fn reply_is_complete(&mut self, link: &mut Link, io: &mut Io<'_>, expected: &Expected) {
        link.expected.pop_front();
        link.copies.drop_front(expected.copied);
        self.reserved_bytes -= expected.reserved as usize;
        if let Role::Handshake(_) = expected.role {
            return;
        }
        let is_error = link.framer.kind() == Some(ReplyKind::Error);
        let took_ns = self.lp.now_ns().saturating_sub(expected.sent_ns);
        self.counters.answered(link.node, expected.command, took_ns, is_error);
        if self.config.ejection.is_some() {
            self.nodes[usize::from(link.node)].answered();
        }
        if self.config.slow.is_some_and(|slow| Duration::from_nanos(took_ns) >= slow) {
            self.log_slow(link.node, expected, took_ns);
        }
        if let Some(client) = self.clients.get_mut(expected.client) {
            let limits = &self.config.limits;
            client.request_bytes -= expected.bytes as usize;
            client.window.replied(link.framer.bytes(), limits.commands_max, limits.client_bytes_max);
            client.progressed(limits, self.is_pressed, io);
        }
    }

    /// In a cluster an error may redirect the request to another node. `true`: this piece belongs to an error, and was handled.
    fn take_error(
        &mut self,
        link: &mut Link,
        io: &mut Io<'_>,
        expected: &Expected,
        range: &Range<usize>,
        advance: Advance,
    ) -> bool {
        let is_begin = link.framer.bytes() == advance.consumed as u64;
        let is_error = match is_begin {
            true => io.input()[range.start] == b'-',
            false => !link.handshake.is_empty(),
        };
        if !is_error || matches!(expected.role, Role::Handshake(_)) {
            return false;
        }
        link.handshake.extend_from_slice(&io.input()[range.clone()]);
        if !advance.is_complete {
            return true;
        }
        let reply = std::mem::take(&mut link.handshake);
        if !self.follow(link, io, expected, &reply) {
            self.answer_whole(expected, &reply, io);
        }
        self.reply_is_complete(link, io, expected);
        true
    }

    #[inline]
    fn take_reply(
        &mut self,
        _link: &mut Link,
        io: &mut Io<'_>,
        expected: &Expected,
        number: u32,
        range: Range<usize>,
        is_complete: bool,
    ) {
        let Some(client) = self.clients.get_mut(expected.client) else { return };
        let kept = client.queue.kept_bytes();
        if client.queue.is_head(number) {
            let Some((input, mut neighbour)) = io.input_and_neighbour(client.id) else { return };
            client.queue.forward(&input[range], is_complete, neighbour.output(), &mut self.pool);
            client.is_over |= client.is_full(neighbour.unsent(), &self.config.limits);
        } else {
            client.queue.keep(number, &io.input()[range], is_complete, &mut self.pool);
            client.is_over |= client.is_full(0, &self.config.limits);
        }
        self.kept_bytes = self.kept_bytes + client.queue.kept_bytes() - kept;
    }

    fn take_part(
        &mut self,
        io: &mut Io<'_>,
        expected: &Expected,
        (gather, part): (u16, u16),
        range: Range<usize>,
        is_complete: bool,
    ) {
        let Some(mut client) = self.clients.lend(expected.client) else { return };
        if let Some(gather) = client.gathers.get_mut(usize::from(gather)).and_then(Option::as_mut) {
            gather.receive(part, &io.input()[range.clone()], is_complete, self.config.limits.joined_bytes_max);
            self.kept_bytes += range.len();
        }
        self.finish_gather(&mut client, gather, io);
        self.clients.take_back(expected.client, client);
    }

    fn take_step(&mut self, link: &mut Link, io: &mut Io<'_>, step: Step, range: Range<usize>, is_complete: bool) {
        link.handshake.extend_from_slice(&io.input()[range]);
        if !is_complete {
            return;
        }
        let reply = std::mem::take(&mut link.handshake);
        self.take_whole_step(link, io, step, &reply);
    }

    /// Handles the reply to a step of the handshake.
    pub(super) fn take_whole_step(&mut self, link: &mut Link, io: &mut Io<'_>, step: Step, reply: &[u8]) {
        let view = link.framer.view(reply);
        match (step, view) {
            // The proxy's own table suffices.
            (Step::Command, ReplyView::Error(_)) => self.has_asked_commands = false,
            (Step::Command, view) => self.table.learn(&view),
            (Step::Slots, ReplyView::Error(text)) => tracing::warn!("CLUSTER SLOTS: {}", String::from_utf8_lossy(text)),
            (Step::Slots, view) => self.take_slots(link, &view, io),
            (_, ReplyView::Error(text)) => {
                link.failure = Some(format!("it refused {step:?}: {}", String::from_utf8_lossy(text)));
                io.abort();
            }
            _ => {}
        }
    }

    /// Logs a slow command.
    #[cold]
    fn log_slow(&self, node: u16, expected: &Expected, took_ns: u64) {
        let (node, command) = (&self.nodes[usize::from(node)].config.name, &self.table.get(expected.command).name);
        tracing::warn!(command, node, milliseconds = took_ns / 1_000_000, "slow command");
    }

    /// A client that blocked node connections is gone: remembers for how long they were blocked by it, unless it was short.
    pub(super) fn note_stall(&mut self, client: Key) {
        let (now_ns, short) = (self.lp.now_ns(), self.config.limits.stall_max / STALL_PART);
        let is_stall = |held: Held| held.client == client && Duration::from_nanos(now_ns - held.since_ns) > short;
        for link in self.links.iter_mut().filter(|link| link.held.is_some_and(is_stall)) {
            link.stalled_ns = now_ns;
        }
    }

    /// A node connection has ended. Clients that wait for its replies are answered at the end of the tick.
    fn link_closed(&mut self, key: Key, reason: Closed) {
        let Some(mut link) = self.links.remove(key) else { return };
        let lane = &mut self.lanes[usize::from(link.lane)];
        if lane.link(link.node) == key {
            lane.set_link(link.node, Key::NONE);
        }
        if link.expected.iter().any(|expected| expected.role == Role::Handshake(Step::Command)) {
            self.has_asked_commands = false;
        }
        self.idle_links.retain(|idle| *idle != key);
        if link.is_own {
            self.own_links -= 1;
            self.counters.own_connections.set(self.own_links as u64);
        }
        // Connections of closed clients and of nodes removed from the list end without a failure.
        let is_missed = self.nodes[usize::from(link.node)].is_listed && !link.is_own;
        let is_failure = is_missed || matches!(reason, Closed::Unconnected(_));
        let reason = link.failure.take().unwrap_or_else(|| end_of(reason));
        if is_failure {
            self.node_failed(link.node, reason.clone());
            if link.is_connected && !link.is_beginning() {
                // The connection was in use: the node may be tried again at once.
                self.nodes[usize::from(link.node)].succeeded();
            }
        }
        let (node, owner, expected) = (link.node, link.owner, std::mem::take(&mut link.expected));
        self.broken.push(Broken { node, owner, expected, reason, is_subscribed: link.is_subscribed });
    }
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
