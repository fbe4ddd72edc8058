//! A client: its requests, the replies that it waits for, its state.

pub(super) mod reply_queue;
pub(super) mod subscription_state;
pub(super) mod transaction_state;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reactor::{Accept, Closed, ConnectionId, Io, Loop, MemoryPart, Protocol};
use resp::codec::{ProtocolVersion, RequestFramer};

use crate::config::ProxyLimits;
use crate::shard::Shard;
use crate::shard::client::reply_queue::ReplyQueue;
use crate::shard::client::subscription_state::Subscriptions;
use crate::shard::client::transaction_state::TransactionState;
use crate::shard::connections::Connections;
use crate::shard::gather::Gather;
use crate::shard::pending::{PendingRequest, Role};
use crate::shard::slab::Key;
use crate::shard::window::Window;

/// What a client is doing: over which node connections its commands go. The transitions:
///
/// | from | by | to |
/// |---|---|---|
/// | shared | WATCH, MULTI, with nothing in flight | transaction |
/// | shared | a command that may block, with nothing in flight | blocked |
/// | shared | a large request, or SELECT of an untried database, with nothing in flight | reserved |
/// | transaction | EXEC, DISCARD, UNWATCH sent to the node | reserved |
/// | transaction | the same without a node | shared |
/// | blocked, reserved | the last request in flight is answered, or the connection is lost | shared |
/// | any | QUIT, the end of its input, bytes that are no request, the end of the proxy | closing |
///
/// Subscriptions are no state: under RESP3 a subscriber may be in any. Under RESP2 it gives subscribers' commands only.
pub(crate) enum State {
    /// Those that all clients share.
    Shared,
    /// A reserved one, until nothing is in flight.
    Reserved(Key),
    /// A reserved one on which its command may block.
    Blocked(Key),
    /// A reserved one, once the node is known; commands of other nodes go over shared ones before MULTI.
    Transaction(Box<TransactionState>),
    /// It is disconnected once nothing is in flight; the connection that was reserved for it.
    Closing(Option<Key>),
}

impl State {
    /// The connection that is reserved for it, except those of subscriptions.
    pub(crate) fn connection(&self) -> Option<Key> {
        match self {
            State::Shared => None,
            State::Reserved(connection) | State::Blocked(connection) => Some(*connection),
            State::Transaction(state) => state.connection(),
            State::Closing(connection) => *connection,
        }
    }
}

/// Whether a client's input is read, or what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    On,
    /// Too many of its commands or bytes are unanswered.
    WaitsForRoom,
    /// Its next command must wait until nothing is in flight.
    WaitsForAnswers,
    /// All clients together hold too much.
    WaitsForMemory,
    /// The node of its next bytes has too much to take, or too many replies to give.
    WaitsForNode,
}

/// The front of a client's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// A request of which the framer has read this many bytes.
    Arriving(usize),
    /// A complete request of this many bytes, which waits.
    Complete(usize),
    /// The rest of a large request: it is passed on while it arrives, to this connection, or dropped if it was refused.
    Upload(Option<Key>),
}

/// A node connection that is not read because of a client.
pub(crate) struct Hold {
    pub(crate) connection: ConnectionId,
    /// If its reply is not the client's next one: the number of the next one then. Otherwise the client has too much unsent.
    pub(crate) next: Option<u32>,
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
    /// Its number for CLIENT ID.
    pub(crate) number: u64,
    pub(crate) framer: RequestFramer,
    pub(crate) front: Front,
    pub(crate) queue: ReplyQueue,
    /// Joined replies, indexed by their numbers.
    pub(crate) gathers: Vec<Option<Box<Gather>>>,
    pub(crate) pool: u16,
    pub(crate) version: ProtocolVersion,
    /// Requests that nodes have not answered, whether or not their replies are wanted.
    pub(crate) in_flight: u32,
    /// Bytes of these requests.
    pub(crate) request_bytes: usize,
    /// Bytes of parts of joined replies.
    pub(crate) gathered_bytes: usize,
    /// Bytes of its name, its subscriptions, and of commands held back in a transaction.
    pub(crate) lasting_bytes: usize,
    /// What the ledger has of it.
    pub(crate) entered_bytes: usize,
    pub(crate) window: Window,
    pub(crate) reading: Reading,
    /// Node connections that are not read because it has no room.
    pub(crate) holds: Vec<Hold>,
    pub(crate) is_authenticated: bool,
    pub(crate) replies: Replies,
    pub(crate) state: State,
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    pub(crate) name: Vec<u8>,
    /// Time of its last request, on the loop's clock.
    pub(crate) active_ns: u64,
}

impl Client {
    fn new(key: Key, id: ConnectionId, is_authenticated: bool, limits: &ProxyLimits) -> Client {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Client {
            key,
            id,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            framer: RequestFramer::new(resp::codec::FrameLimits::default()),
            front: Front::Arriving(0),
            queue: ReplyQueue::default(),
            gathers: Vec::new(),
            pool: 0,
            version: ProtocolVersion::Resp2,
            in_flight: 0,
            request_bytes: 0,
            gathered_bytes: 0,
            lasting_bytes: 0,
            entered_bytes: 0,
            window: Window::new(limits.commands_max),
            reading: Reading::On,
            holds: Vec::new(),
            is_authenticated,
            replies: Replies::On,
            state: State::Shared,
            subscriptions: None,
            name: Vec::new(),
            active_ns: 0,
        }
    }

    /// Whether its commands with one key can take the fast path.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.state, State::Shared)
            && self.is_authenticated
            && self.replies == Replies::On
            && !self.is_subscriber()
    }

    /// Bytes that are held for it, beside the buffers of its connection.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.unread_bytes() + self.lasting_bytes
    }

    /// Bytes of replies that it cannot be given yet.
    #[inline]
    fn unread_bytes(&self) -> usize {
        self.queue.kept_bytes() + self.gathered_bytes
    }

    /// Whether more of its commands may be sent.
    #[inline]
    pub(crate) fn has_room(&self, limits: &ProxyLimits) -> bool {
        self.queue.len() < self.window.commands()
            && self.request_bytes < limits.client_bytes_max
            && self.unread_bytes() < limits.client_bytes_max
    }

    /// Whether enough is answered to resume reading it.
    fn may_go_on(&self, limits: &ProxyLimits, is_pressed: bool) -> bool {
        match self.reading {
            // The node connection says when.
            Reading::On | Reading::WaitsForNode => false,
            Reading::WaitsForAnswers => self.in_flight == 0,
            Reading::WaitsForRoom => {
                self.queue.len() <= self.window.commands() / 2
                    && self.request_bytes <= limits.client_bytes_max / 2
                    && self.unread_bytes() <= limits.client_bytes_max / 2
            }
            Reading::WaitsForMemory => !is_pressed || self.in_flight == 0,
        }
    }

    /// A request is answered, or lost.
    #[inline]
    pub(crate) fn settle(&mut self, request: &PendingRequest) {
        self.in_flight -= 1;
        self.request_bytes -= request.bytes as usize;
    }

    /// A reply has arrived or was sent: resumes what waited for that.
    #[inline]
    pub(crate) fn progressed(&mut self, limits: &ProxyLimits, is_pressed: bool, connections: &mut impl Connections) {
        if self.reading != Reading::On && self.may_go_on(limits, is_pressed) {
            self.go_on(connections);
        }
        if !self.holds.is_empty() {
            self.release_holds(limits, connections);
        }
        if matches!(self.state, State::Closing(_)) && self.in_flight == 0 {
            connections.finish(self.id);
        }
    }

    /// Has its input read again.
    pub(crate) fn go_on(&mut self, connections: &mut impl Connections) {
        self.reading = Reading::On;
        connections.wake(self.id);
    }

    pub(crate) fn set_name(&mut self, name: &[u8]) {
        self.lasting_bytes = self.lasting_bytes - self.name.len() + name.len();
        self.name = name.to_vec();
    }

    /// Begins its end: it is disconnected once nothing is in flight.
    pub(crate) fn close(&mut self) {
        self.state = State::Closing(self.state.connection());
    }

    /// Whether a node may be silent on this connection: its command blocks there, or its request has not arrived yet.
    pub(crate) fn keeps_silent(&self, connection: Key) -> bool {
        matches!(self.state, State::Blocked(own) if own == connection) || self.front == Front::Upload(Some(connection))
    }

    /// Whether these bytes of replies are too many to read more of the same kind: sent ones, or those that wait for earlier ones.
    pub(crate) fn is_full(bytes: usize, limits: &ProxyLimits) -> bool {
        bytes > 2 * limits.client_bytes_max
    }

    /// Resumes node connections that were not read because of it, if it has room now, or if its next reply may come over them.
    fn release_holds(&mut self, limits: &ProxyLimits, connections: &mut impl Connections) {
        let is_sent = !Client::is_full(connections.unsent(self.id), limits);
        let (is_given, head) = (!Client::is_full(self.queue.kept_bytes(), limits), self.queue.head());
        self.holds.retain(|hold| {
            let is_over = hold.next.map_or(is_sent, |next| is_given || next != head);
            if is_over {
                connections.resume(hold.connection);
            }
            !is_over
        });
    }

    /// The number of the reply that a request of this client leads to.
    pub(crate) fn awaits_as(&self, request: &PendingRequest) -> Option<u32> {
        match request.role {
            _ if request.client != self.key => None,
            Role::Reply(number) => Some(number),
            Role::Part { gather, .. } => self.gathers.get(usize::from(gather))?.as_ref().map(|gather| gather.number),
            Role::Dropped | Role::Handshake(_) => None,
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
            client.progressed(&shard.config.limits, shard.ledger.is_pressed(), io);
        }
        // The input may be unread without a pause; no other event would resume it.
        self.input(io);
    }

    fn timer(&mut self, io: &mut Io<'_>) {
        let Some(idle_max) = self.idle_max else { return };
        let shard = &mut *self.shard.borrow_mut();
        let Some(client) = shard.clients.get_mut(self.key) else { return io.abort() };
        let is_busy = client.in_flight > 0 || client.subscriptions.is_some();
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
        let is_blocked = matches!(client.state, State::Blocked(_));
        client.close();
        io.pause_input();
        if client.in_flight == 0 || is_blocked {
            io.finish();
        }
    }

    fn hoards(&mut self, _part: MemoryPart, io: &mut Io<'_>) {
        io.cut();
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
