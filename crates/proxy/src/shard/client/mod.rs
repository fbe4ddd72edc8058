//! A client: its requests, the replies that it waits for, its state.

pub(super) mod reply_queue;
pub(super) mod subscription_state;
pub(super) mod transaction_state;
pub(super) mod window;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Accept, Closed, ConnectionId, Io, Loop, Protocol};
use resp::codec::{ProtocolVersion, RequestFramer};

use crate::config::ProxyLimits;
use crate::shard::Shard;
use crate::shard::client::reply_queue::ReplyQueue;
use crate::shard::client::subscription_state::Subscriptions;
use crate::shard::client::transaction_state::TransactionState;
use crate::shard::client::window::Window;
use crate::shard::gather::Gather;
use crate::shard::slab::Key;
use crate::shard::wires::Wires;

/// Why a client's input is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    No,
    /// Too many of its commands or bytes are unanswered.
    Room,
    /// Its next command must wait until all earlier ones are answered.
    Empty,
    /// All clients together hold too much.
    Total,
}

/// The node connections that a client's commands use.
pub(crate) enum Mode {
    /// Those that all clients share.
    Plain,
    /// One reserved for it, since WATCH or MULTI.
    Transaction(Box<TransactionState>),
    /// One reserved for it, until all its commands are answered.
    Own(Key),
}

/// The setting of CLIENT REPLY.
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
    /// Bytes at the front of the input that the framer has read.
    pub(crate) scanned: usize,
    /// Size of the complete request that waits at the front of the input.
    pub(crate) framed: Option<usize>,
    pub(crate) queue: ReplyQueue,
    /// Joined replies, indexed by their numbers.
    pub(crate) gathers: Vec<Option<Box<Gather>>>,
    pub(crate) lane: u16,
    pub(crate) version: ProtocolVersion,
    /// Bytes of unanswered requests.
    pub(crate) request_bytes: usize,
    pub(crate) window: Window,
    pub(crate) waits: Waits,
    /// Whether reading its socket is paused, in addition to `waits`.
    pub(crate) is_paused: bool,
    /// Whether it is disconnected once all commands are answered.
    pub(crate) ends: bool,
    /// Whether its unsent or waiting replies exceed their bounds.
    pub(crate) is_over: bool,
    /// Node connections that are not read because of it.
    pub(crate) holds: Vec<ConnectionId>,
    pub(crate) is_authenticated: bool,
    pub(crate) replies: Replies,
    pub(crate) mode: Mode,
    /// Whether it has a command that may block on its node, on a connection reserved for it.
    pub(crate) is_blocked: bool,
    /// The connection to which its large request is forwarded while it arrives.
    pub(crate) stream: Option<Key>,
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    pub(crate) name: Vec<u8>,
    /// Time of its last request, on the loop's clock.
    pub(crate) active_ns: u64,
}

impl Client {
    fn new(key: Key, id: ConnectionId, is_authenticated: bool, limits: &ProxyLimits) -> Client {
        Client {
            key,
            id,
            framer: RequestFramer::new(resp::codec::FrameLimits::default()),
            scanned: 0,
            framed: None,
            queue: ReplyQueue::default(),
            gathers: Vec::new(),
            lane: 0,
            version: ProtocolVersion::Resp2,
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

    /// Whether its commands with one key can take the fast path.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.mode, Mode::Plain)
            && self.is_authenticated
            && self.replies == Replies::On
            && !self.is_subscriber()
    }

    /// Whether more of its commands may be sent.
    #[inline]
    pub(crate) fn has_room(&self, limits: &ProxyLimits) -> bool {
        self.queue.len() < self.window.commands()
            && self.request_bytes < limits.client_bytes_max
            && self.queue.kept_bytes() < limits.client_bytes_max
    }

    /// Whether enough is answered to resume reading it.
    fn may_go_on(&self, limits: &ProxyLimits, is_pressed: bool) -> bool {
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

    /// A reply has arrived or was sent: resumes what waited for that.
    #[inline]
    pub(crate) fn progressed(&mut self, limits: &ProxyLimits, is_pressed: bool, wires: &mut impl Wires) {
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

    /// Schedules another pass over its input.
    pub(crate) fn wake(&mut self, wires: &mut impl Wires) {
        match std::mem::take(&mut self.is_paused) {
            true => wires.resume(self.id),
            false => wires.notify_writable(self.id),
        }
    }

    /// Whether no more bytes of replies may be passed to it for now.
    pub(crate) fn is_full(&self, unsent: usize, limits: &ProxyLimits) -> bool {
        unsent > 2 * limits.client_bytes_max || self.queue.kept_bytes() > 2 * limits.client_bytes_max
    }

    /// Resumes node connections that were not read because of it, if it has room now.
    pub(crate) fn look_at_holds(&mut self, limits: &ProxyLimits, wires: &mut impl Wires) {
        let unsent = wires.unsent(self.id);
        self.is_over = self.is_full(unsent, limits);
        if !self.is_over {
            self.holds.drain(..).for_each(|link| wires.resume(link));
        }
    }

    /// Adds a joined reply, and returns its number.
    pub(crate) fn add_gather(&mut self, gather: Gather) -> u16 {
        let free = self.gathers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.gathers.push(None);
            self.gathers.len() - 1
        });
        self.gathers[free] = Some(Box::new(gather));
        free as u16
    }

    /// Whether it may give only commands of subscribers: under RESP2 messages cannot be told from replies otherwise.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.version == ProtocolVersion::Resp2 && self.subscriptions.as_ref().is_some_and(|all| !all.is_empty())
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
        // The input may be unread without a pause; no other event would resume it.
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
        // Its requests are answered first, unless it is a subscriber or waits in a blocking command.
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

/// Accepts the clients of a loop.
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
