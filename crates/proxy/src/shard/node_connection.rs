//! A connection to a node: the requests sent on it, and the receivers of their replies.
//!
//! Nodes answer in the order of requests, so a queue of expected replies suffices to find the receiver of each. Clients of a loop
//! share one connection to each node for each protocol and database (a [`Lane`]); a connection may also be reserved for one
//! client for a time.
//!
//! Shared connections speak the protocol of their clients, RESP2 or RESP3, so that a reply is passed on unchanged. A conversion
//! would have to know every command: under RESP3 Redis changes not only the types but also the shape of some replies.

use std::collections::VecDeque;

use reactor::ConnectionId;
use resp::codec::{ProtocolVersion, ReplyFramer, write_command};

use super::copies::Copies;
use super::expected::{Expected, Role, Step};
use super::slab::Key;
use crate::commands::CommandId;
use crate::config::ProxyConfig;

/// No connection has this id: generations begin with 1.
const NOT_OPENED: ConnectionId = ConnectionId { loop_index: u16::MAX, slot: u32::MAX, generation: 0 };

/// Steps of the handshake beyond those that the lane and the configuration require.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeSteps {
    /// Whether the loop still needs a node's table of commands.
    pub(crate) wants_commands: bool,
    /// Whether the node belongs to a cluster.
    pub(crate) wants_slots: bool,
    /// Whether replicas answer reads on it.
    pub(crate) reads_replicas: bool,
}

/// Shared connections of one protocol and one database.
pub(crate) struct Lane {
    pub(crate) version: ProtocolVersion,
    pub(crate) database: u32,
    /// Indexed by node; [`Key::NONE`] if there is none.
    pub(crate) links: Vec<Key>,
}

impl Lane {
    pub(crate) fn link(&self, node: u16) -> Key {
        self.links.get(usize::from(node)).copied().unwrap_or(Key::NONE)
    }

    pub(crate) fn set_link(&mut self, node: u16, link: Key) {
        let node = usize::from(node);
        if self.links.len() <= node {
            self.links.resize(node + 1, Key::NONE);
        }
        self.links[node] = link;
    }
}

/// A client that has no room for the next reply of a node connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) client: Key,
    pub(crate) since_ns: u64,
    /// The client's unsent bytes at that moment. `None`: its replies wait for the replies of other nodes.
    pub(crate) unsent: Option<usize>,
}

/// See the module.
pub(crate) struct Link {
    pub(crate) key: Key,
    pub(crate) id: ConnectionId,
    pub(crate) node: u16,
    pub(crate) lane: u16,
    pub(crate) expected: VecDeque<Expected>,
    pub(crate) framer: ReplyFramer,
    /// Whether it is a reserved connection.
    pub(crate) is_own: bool,
    /// The client that it is reserved for; [`Key::NONE`] for a shared one, and for an idle reserved one.
    pub(crate) owner: Key,
    /// Received part of a handshake reply, or of a channel's message.
    pub(crate) handshake: Vec<u8>,
    pub(crate) is_connected: bool,
    /// Why the proxy closes it.
    pub(crate) failure: Option<String>,
    /// If it is not read: why.
    pub(crate) held: Option<Held>,
    /// Until when a client that was disconnected has blocked it; zero: none has.
    pub(crate) stalled_ns: u64,
    /// Whether its replies are messages of channels.
    pub(crate) is_subscribed: bool,
    /// Copies of unanswered requests, in a cluster.
    pub(crate) copies: Copies,
    /// Whether a complete message waits for its client.
    pub(crate) has_message: bool,
}

impl Link {
    /// A connection that is about to be opened; its id is set then.
    pub(crate) fn new(key: Key, (node, lane): (u16, u16), owner: Key) -> Link {
        Link {
            key,
            id: NOT_OPENED,
            node,
            lane,
            expected: VecDeque::new(),
            framer: ReplyFramer::new(resp::codec::FrameLimits::default()),
            is_own: owner != Key::NONE,
            owner,
            handshake: Vec::new(),
            is_connected: false,
            failure: None,
            held: None,
            stalled_ns: 0,
            is_subscribed: false,
            copies: Copies::default(),
            has_message: false,
        }
    }

    /// Appends the requests of the handshake.
    pub(crate) fn begin(
        &mut self,
        config: &ProxyConfig,
        lane: &Lane,
        begin: HandshakeSteps,
        now_ns: u64,
        output: &mut Vec<u8>,
    ) {
        let database = lane.database.to_string();
        let password = config.node_password.as_ref().map(|password| password.0.as_str());
        let mut ask = |step, arguments: &[&str]| {
            write_command(output, arguments);
            let role = Role::Handshake(step);
            self.expected.push_back(Expected::of_proxy(role, CommandId(0), now_ns));
        };
        if let Some(password) = password {
            ask(Step::Auth, &["AUTH", password]);
        }
        if lane.version == ProtocolVersion::Resp3 {
            ask(Step::Hello, &["HELLO", "3"]);
        }
        if lane.database != 0 {
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
        self.expected.iter().any(|expected| lets_in(expected.role))
    }
}
