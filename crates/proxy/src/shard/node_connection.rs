//! A connection to a node: the requests sent on it, and the receivers of their replies.
//!
//! Nodes answer in the order of requests, so a queue of pending requests suffices to find the receiver of each reply. Clients of a loop
//! share one connection to each node for each protocol and database (a [`Pool`]); a connection may also be reserved for one
//! client for a time.
//!
//! Shared connections speak the protocol of their clients, RESP2 or RESP3, so that a reply is passed on unchanged. A conversion
//! would have to know every command: under RESP3 Redis changes not only the types but also the shape of some replies.

use std::collections::VecDeque;

use reactor::ConnectionId;
use resp::codec::{FrameLimits, ProtocolVersion, ReplyFramer, write_command};

use super::client::Client;
use super::copies::Copies;
use super::pending::{PendingRequest, Role, Step};
use super::slab::Key;
use super::window::Average;
use crate::commands::CommandId;
use crate::config::ProxyConfig;

/// No connection has this id: generations begin with 1.
const NOT_OPENED: ConnectionId = ConnectionId { loop_index: u16::MAX, slot: u32::MAX, generation: 0 };
/// Bytes of replies, by the average of those so far, that may be in flight on a shared connection. They fill the node's output buffer if
/// the proxy reads more slowly than the node answers, for whichever clients: also for those that are gone.
const REPLY_BYTES_IN_FLIGHT_MAX: u64 = 16 << 20;
/// Depth of a node's nested replies; a client without a proxy may have another limit, so this is far above any that is used.
const REPLY_DEPTH_MAX: usize = 1 << 16;
/// How long a node that refused a connection's set-up is not asked again for a connection of the same pool.
const REFUSED_PAUSE_NS: u64 = 200_000_000;

/// Steps of the handshake beyond those that the pool and the configuration require.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeSteps {
    /// Whether the loop still needs a node's table of commands.
    pub(crate) wants_commands: bool,
    /// Whether the node belongs to a cluster.
    pub(crate) wants_slots: bool,
    /// Whether replicas answer reads on it.
    pub(crate) reads_replicas: bool,
}

/// A pool's connection to a node.
#[derive(Clone)]
struct PoolEntry {
    connection: Key,
    /// Until when the node's refusal of a set-up stands, and its words.
    refused_until_ns: u64,
    refusal: String,
}

/// Shared connections of one protocol and one database.
pub(crate) struct Pool {
    pub(crate) version: ProtocolVersion,
    pub(crate) database: u32,
    /// Indexed by node.
    entries: Vec<PoolEntry>,
}

impl Pool {
    pub(crate) fn new(version: ProtocolVersion, database: u32) -> Pool {
        Pool { version, database, entries: Vec::new() }
    }

    /// The shared connection to a node; [`Key::NONE`] if there is none.
    #[inline]
    pub(crate) fn connection(&self, node: u16) -> Key {
        self.entries.get(usize::from(node)).map_or(Key::NONE, |entry| entry.connection)
    }

    pub(crate) fn set_connection(&mut self, node: u16, connection: Key) {
        self.entry(node).connection = connection;
    }

    /// Removes a connection that is its node's shared one.
    pub(crate) fn forget(&mut self, node: u16, connection: Key) {
        if self.connection(node) == connection {
            self.set_connection(node, Key::NONE);
        }
    }

    /// The node has refused the set-up of a connection.
    pub(crate) fn refused(&mut self, node: u16, now_ns: u64, refusal: String) {
        let entry = self.entry(node);
        (entry.refused_until_ns, entry.refusal) = (now_ns + REFUSED_PAUSE_NS, refusal);
    }

    /// The node's refusal, while it stands.
    pub(crate) fn refusal(&self, node: u16, now_ns: u64) -> Option<&str> {
        let entry = self.entries.get(usize::from(node))?;
        (now_ns < entry.refused_until_ns).then_some(entry.refusal.as_str())
    }

    fn entry(&mut self, node: u16) -> &mut PoolEntry {
        let node = usize::from(node);
        if self.entries.len() <= node {
            let none = PoolEntry { connection: Key::NONE, refused_until_ns: 0, refusal: String::new() };
            self.entries.resize(node + 1, none);
        }
        &mut self.entries[node]
    }
}

/// Why the proxy closes a node connection.
#[derive(Debug)]
pub(crate) enum End {
    /// It is not needed any more.
    Unneeded,
    /// The node has refused a step of its set-up. The node can be reached: other connections may be set up.
    Refused(String),
    /// The node does not answer, or not in RESP.
    Failed(String),
}

/// A client for which a connection is not read until the client has read more; others may wait behind its reply.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) client: Key,
    /// Bytes that it had been sent when the connection was paused first.
    pub(crate) sent_before: u64,
    /// Checks at which the connection was paused.
    pub(crate) looks: u32,
}

/// A connection to a node: shared by clients, or reserved for one.
pub(crate) struct NodeConnection {
    pub(crate) key: Key,
    pub(crate) id: ConnectionId,
    pub(crate) node: u16,
    pub(crate) pool: u16,
    pub(crate) pending: VecDeque<PendingRequest>,
    pub(crate) framer: ReplyFramer,
    /// Whether it is a reserved connection.
    pub(crate) is_own: bool,
    /// The client that it is reserved for; [`Key::NONE`] for a shared one, and for an idle reserved one.
    pub(crate) owner: Key,
    /// Received part of a handshake reply, of an error in a cluster, or of a channel's message.
    pub(crate) partial: Vec<u8>,
    pub(crate) is_connected: bool,
    pub(crate) end: Option<End>,
    /// Whether it is not read, because the client of its next reply has no room.
    pub(crate) is_paused: bool,
    /// The last client for which it was paused.
    pub(crate) holder: Option<Holder>,
    /// When it was last read, paused or given a request after a silence.
    pub(crate) active_ns: u64,
    /// Whether its replies are messages of channels.
    pub(crate) is_subscribed: bool,
    /// Copies of unanswered requests, in a cluster.
    pub(crate) copies: Copies,
    /// Whether a complete message waits for its client.
    pub(crate) has_message: bool,
    /// Size of its replies.
    reply_bytes: Average,
    /// Clients whose next request waits until fewer bytes of replies are in flight.
    pub(crate) waiting: Vec<Key>,
}

impl NodeConnection {
    /// A connection that is about to be opened; its id is set then.
    pub(crate) fn new(key: Key, node: u16, pool: u16, owner: Key) -> NodeConnection {
        NodeConnection {
            key,
            id: NOT_OPENED,
            node,
            pool,
            pending: VecDeque::new(),
            framer: ReplyFramer::new(FrameLimits { depth_max: REPLY_DEPTH_MAX, ..FrameLimits::default() }),
            is_own: owner != Key::NONE,
            owner,
            partial: Vec::new(),
            is_connected: false,
            end: None,
            is_paused: false,
            holder: None,
            active_ns: 0,
            is_subscribed: false,
            copies: Copies::default(),
            has_message: false,
            reply_bytes: Average::default(),
            waiting: Vec::new(),
        }
    }

    /// Records a request that was sent for a client: the only place where one becomes pending, wanted or not.
    #[inline]
    pub(crate) fn expect(&mut self, client: &mut Client, request: PendingRequest) {
        client.in_flight += 1;
        client.request_bytes += request.bytes as usize;
        self.pending.push_back(request);
    }

    /// Records a reply that is complete.
    #[inline]
    pub(crate) fn answered(&mut self, request: &PendingRequest) {
        self.pending.pop_front();
        self.copies.drop_front(request.copied);
        if !matches!(request.role, Role::Handshake(_)) {
            self.reply_bytes.add(self.framer.bytes());
        }
    }

    /// Whether as many bytes of replies are in flight as may be.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() as u64 * self.reply_bytes.get() > REPLY_BYTES_IN_FLIGHT_MAX
    }

    /// Whether so much has been answered that requests which wait may be sent.
    #[inline]
    pub(crate) fn has_room_again(&self) -> bool {
        self.pending.len() as u64 * self.reply_bytes.get() <= REPLY_BYTES_IN_FLIGHT_MAX / 2
    }

    /// Appends the requests of the handshake.
    pub(crate) fn begin(
        &mut self,
        config: &ProxyConfig,
        pool: &Pool,
        begin: HandshakeSteps,
        now_ns: u64,
        output: &mut Vec<u8>,
    ) {
        let database = pool.database.to_string();
        let password = config.node_password.as_ref().map(|password| password.0.as_str());
        let mut ask = |step, arguments: &[&str]| {
            write_command(output, arguments);
            let role = Role::Handshake(step);
            self.pending.push_back(PendingRequest::of_proxy(role, CommandId(0), now_ns));
        };
        match (password, config.node_user.as_deref()) {
            (Some(password), Some(user)) => ask(Step::Auth, &["AUTH", user, password]),
            (Some(password), None) => ask(Step::Auth, &["AUTH", password]),
            (None, _) => {}
        }
        if pool.version == ProtocolVersion::Resp3 {
            ask(Step::Hello, &["HELLO", "3"]);
        }
        if pool.database != 0 {
            ask(Step::Select, &["SELECT", &database]);
        }
        if begin.reads_replicas {
            // A master accepts it as well, and may become a replica later.
            ask(Step::ReadOnly, &["READONLY"]);
        }
        if begin.wants_commands {
            ask(Step::Command, &["COMMAND"]);
        }
        if begin.wants_slots {
            ask(Step::Slots, &["CLUSTER", "SLOTS"]);
        }
    }

    /// Whether the node has not admitted it yet: with a wrong password every attempt ends here.
    pub(crate) fn is_beginning(&self) -> bool {
        let lets_in = |role| matches!(role, Role::Handshake(Step::Auth | Step::Hello | Step::Select | Step::ReadOnly));
        self.pending.iter().any(|request| lets_in(request.role))
    }

    /// How long the node owes a reply, by the loop's clock, without having sent anything.
    pub(crate) fn silent_ns(&self, now_ns: u64) -> u64 {
        let since = self.pending.front().map(|request| request.sent_ns.max(self.active_ns));
        since.map_or(0, |since| now_ns.saturating_sub(since))
    }
}
