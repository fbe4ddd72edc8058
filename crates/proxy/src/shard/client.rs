//! A client: what it has sent, which replies it waits for, in which state it is.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Accept, Closed, ConnectionId, Io, Loop, Protocol};
use resp::codec::{ReplyWriter, RequestFramer, Version};

use super::Shard;
use super::gather::Gather;
use super::reply_queue::ReplyQueue;
use super::slab::Key;
use super::subscription::Subscriptions;
use super::transaction::TransactionState;
use super::window::Window;
use super::wires::Wires;
use crate::config::Limits;

/// Why a client's input is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    No,
    /// Too much of it is unanswered.
    Room,
    /// Its next command needs that all before it are answered.
    Empty,
    /// All clients together hold too much.
    Total,
}

/// Which connections its commands go to.
pub(crate) enum Mode {
    /// Those that all clients share.
    Plain,
    /// One of its own, since WATCH or MULTI.
    Transaction(Box<TransactionState>),
    /// One of its own, until all is answered.
    Own(Key),
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// The next command's reply is dropped.
    SkipNext,
}

/// See the module.
pub(crate) struct Client {
    pub(crate) key: Key,
    pub(crate) id: ConnectionId,
    pub(crate) framer: RequestFramer,
    /// Bytes at the front of the input that the framer has seen.
    pub(crate) scanned: usize,
    /// A complete request of so many bytes is at the front of the input, and waits.
    pub(crate) framed: Option<usize>,
    pub(crate) queue: ReplyQueue,
    /// Joined replies by their numbers.
    pub(crate) gathers: Vec<Option<Box<Gather>>>,
    pub(crate) lane: u16,
    pub(crate) version: Version,
    /// Of unanswered requests.
    pub(crate) request_bytes: usize,
    pub(crate) window: Window,
    pub(crate) waits: Waits,
    /// Its input is paused, not only left alone.
    pub(crate) is_paused: bool,
    /// It is closed once all is answered.
    pub(crate) ends: bool,
    /// It has more output, or more kept replies, than it may have.
    pub(crate) is_over: bool,
    /// Node connections that are not read for its sake.
    pub(crate) holds: Vec<ConnectionId>,
    pub(crate) is_authenticated: bool,
    pub(crate) replies: Replies,
    pub(crate) mode: Mode,
    /// A command of it may wait on its node, on its own connection.
    pub(crate) is_blocked: bool,
    /// A large request is passed on to this connection while it arrives.
    pub(crate) stream: Option<Key>,
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    pub(crate) name: Vec<u8>,
    /// When its last request came, by the loop's clock.
    pub(crate) active_ns: u64,
}

impl Client {
    fn new(key: Key, id: ConnectionId, is_authenticated: bool, limits: &Limits) -> Client {
        Client {
            key,
            id,
            framer: RequestFramer::new(resp::codec::Limits::default()),
            scanned: 0,
            framed: None,
            queue: ReplyQueue::default(),
            gathers: Vec::new(),
            lane: 0,
            version: Version::Resp2,
            request_bytes: 0,
            window: Window::new(limits.commands_max),
            waits: Waits::No,
            is_paused: false,
            ends: false,
            is_over: false,
            holds: Vec::new(),
            is_authenticated,
            replies: Replies::On,
            mode: Mode::Plain,
            is_blocked: false,
            stream: None,
            subscriptions: None,
            name: Vec::new(),
            active_ns: 0,
        }
    }

    /// Whether its commands of one key need no second look.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.mode, Mode::Plain)
            && self.is_authenticated
            && self.replies == Replies::On
            && !self.is_subscriber()
    }

    /// Whether more of its commands may be sent on.
    #[inline]
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        self.queue.len() < self.window.commands()
            && self.request_bytes < limits.client_bytes_max
            && self.queue.kept_bytes() < limits.client_bytes_max
    }

    /// Whether enough was answered to go on reading it.
    fn may_go_on(&self, limits: &Limits, is_pressed: bool) -> bool {
        match self.waits {
            Waits::No => false,
            Waits::Empty => self.queue.is_empty(),
            Waits::Room => {
                self.queue.len() <= self.window.commands() / 2
                    && self.request_bytes <= limits.client_bytes_max / 2
                    && self.queue.kept_bytes() <= limits.client_bytes_max / 2
            }
            Waits::Total => !is_pressed || self.queue.is_empty(),
        }
    }

    /// A reply has come, or left: goes on with what waited for it.
    #[inline]
    pub(crate) fn progressed(&mut self, limits: &Limits, is_pressed: bool, wires: &mut impl Wires) {
        if self.waits != Waits::No && self.may_go_on(limits, is_pressed) {
            self.waits = Waits::No;
            self.wake(wires);
        }
        if self.is_over {
            self.look_at_holds(limits, wires);
        }
        if self.ends && self.queue.is_empty() {
            wires.finish(self.id);
        }
    }

    /// Has its input looked at again.
    pub(crate) fn wake(&mut self, wires: &mut impl Wires) {
        match std::mem::take(&mut self.is_paused) {
            true => wires.resume(self.id),
            false => wires.notify_writable(self.id),
        }
    }

    /// Whether it may be given no more of replies for now.
    pub(crate) fn is_full(&self, unsent: usize, limits: &Limits) -> bool {
        unsent > 2 * limits.client_bytes_max || self.queue.kept_bytes() > 2 * limits.client_bytes_max
    }

    /// Has the nodes read again that were not, if there is room now.
    pub(crate) fn look_at_holds(&mut self, limits: &Limits, wires: &mut impl Wires) {
        let unsent = wires.unsent(self.id);
        self.is_over = self.is_full(unsent, limits);
        if !self.is_over {
            self.holds.drain(..).for_each(|link| wires.resume(link));
        }
    }

    /// Adds a joined reply, and gives its number.
    pub(crate) fn add_gather(&mut self, gather: Gather) -> u16 {
        let free = self.gathers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.gathers.push(None);
            self.gathers.len() - 1
        });
        self.gathers[free] = Some(Box::new(gather));
        free as u16
    }

    /// Whether its commands are no others than those of subscribers: RESP2 has no other way to tell messages from replies.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.version == Version::Resp2 && self.subscriptions.as_ref().is_some_and(|all| !all.is_empty())
    }
}

/// A client's connection.
pub(crate) struct ClientProtocol {
    key: Key,
    shard: Rc<RefCell<Shard>>,
    idle_max: Option<Duration>,
}

impl Protocol for ClientProtocol {
    fn opened(&mut self, io: &mut Io<'_>) {
        io.set_timer(self.idle_max);
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let shard = &mut *self.shard.borrow_mut();
        match shard.clients.lend(self.key) {
            Some(mut client) => {
                shard.serve(&mut client, io);
                shard.clients.take_back(self.key, client);
            }
            None => io.abort(),
        }
    }

    fn writable(&mut self, io: &mut Io<'_>) {
        {
            let shard = &mut *self.shard.borrow_mut();
            let Some(client) = shard.clients.get_mut(self.key) else { return io.abort() };
            client.look_at_holds(&shard.config.limits, io);
            client.progressed(&shard.config.limits, shard.is_pressed, io);
        }
        // It may have been left alone without a pause: nothing else calls for it.
        self.input(io);
    }

    fn timer(&mut self, io: &mut Io<'_>) {
        let Some(idle_max) = self.idle_max else { return };
        let shard = &mut *self.shard.borrow_mut();
        let Some(client) = shard.clients.get_mut(self.key) else { return io.abort() };
        let is_busy = !client.queue.is_empty() || client.subscriptions.is_some();
        let idle = Duration::from_nanos(io.lp().now_ns().saturating_sub(client.active_ns));
        match idle_max.checked_sub(idle).filter(|left| !left.is_zero()) {
            Some(left) => io.set_timer(Some(left)),
            None if is_busy => io.set_timer(Some(idle_max)),
            None => io.finish(),
        }
    }

    fn drain(&mut self, io: &mut Io<'_>) {
        let shard = &mut *self.shard.borrow_mut();
        let Some(client) = shard.clients.get_mut(self.key) else { return io.finish() };
        // What it has sent is answered; a subscriber, or one that waits in a blocking command, is not waited for.
        client.ends = true;
        io.pause_input();
        if client.queue.is_empty() || client.is_blocked {
            io.finish();
        }
    }

    fn closed(&mut self, reason: Closed) {
        self.shard.borrow_mut().client_closed(self.key, reason);
    }
}

/// Makes the clients of a loop.
pub(crate) struct Clients {
    pub(crate) shard: Rc<RefCell<Shard>>,
}

impl Accept for Clients {
    fn accept(&mut self, _peer: SocketAddr, id: ConnectionId, lp: &Loop) -> Option<Box<dyn Protocol>> {
        let shard = &mut *self.shard.borrow_mut();
        let (config, now_ns) = (&shard.config, lp.now_ns());
        let is_authenticated = config.password.is_none();
        let key = shard.clients.insert(|key| Client::new(key, id, is_authenticated, &config.limits));
        if let Some(client) = shard.clients.get_mut(key) {
            client.active_ns = now_ns;
        }
        shard.counters.clients.add(1);
        Some(Box::new(ClientProtocol { key, shard: Rc::clone(&self.shard), idle_max: config.idle_timeout }))
    }
}

/// Bytes of a reply that the proxy makes.
pub(crate) fn written(version: Version, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
    let mut reply = Vec::new();
    write(&mut ReplyWriter::new(&mut reply, version));
    reply
}
