//! A connection to a node: what was sent on it, and whose the replies are.
//!
//! Nodes answer in the order of requests, so a queue of what is expected is all that it takes to know whose a reply is. Clients of a loop share
//! one connection to each node for each protocol and database (a [`Lane`]); a connection may also belong to one client for a time.
//!
//! Shared connections speak the protocol of their clients, RESP2 or RESP3: a reply passes as it is. Converting would need to know every
//! command, for Redis gives some replies another shape under RESP3, not only other types.

use std::collections::VecDeque;

use reactor::ConnectionId;
use resp::codec::{ReplyFramer, Version, write_command};

use super::cluster::Copies;
use super::expected::{Expected, Role, Step};
use super::slab::Key;
use crate::commands::CommandId;
use crate::config::Config;

/// No connection has it: generations begin with 1.
const NOT_OPENED: ConnectionId = ConnectionId { loop_index: u16::MAX, slot: u32::MAX, generation: 0 };

/// What a node connection begins with beside what its lane and the configuration ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// The loop knows only its own table of commands yet.
    pub(crate) wants_commands: bool,
    /// It is a cluster's.
    pub(crate) wants_slots: bool,
    /// Replicas are to answer reads on it.
    pub(crate) reads_replicas: bool,
}

/// Shared connections of one protocol and one database.
pub(crate) struct Lane {
    pub(crate) version: Version,
    pub(crate) database: u32,
    /// By node; [`Key::NONE`] where there is none.
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

/// See the module.
pub(crate) struct Link {
    pub(crate) key: Key,
    pub(crate) id: ConnectionId,
    pub(crate) node: u16,
    pub(crate) lane: u16,
    pub(crate) expected: VecDeque<Expected>,
    pub(crate) framer: ReplyFramer,
    /// One of those that belong to one client for a time.
    pub(crate) is_own: bool,
    /// The client that it belongs to; [`Key::NONE`] of a shared one, and of one that no client has.
    pub(crate) owner: Key,
    /// The reply to a step of the beginning, or a message of a channel, as far as it has come.
    pub(crate) handshake: Vec<u8>,
    pub(crate) is_connected: bool,
    /// Why it is closed by the proxy.
    pub(crate) failure: Option<String>,
    /// Not read, because this client has no room for the next reply, since then.
    pub(crate) held: Option<(Key, u64)>,
    /// Its replies are messages of channels.
    pub(crate) is_subscribed: bool,
    /// Of unanswered requests, in a cluster.
    pub(crate) copies: Copies,
    /// A complete message waits for its client.
    pub(crate) has_message: bool,
}

impl Link {
    /// One that is about to be opened: it gets its id then.
    pub(crate) fn new(key: Key, (node, lane): (u16, u16), owner: Key) -> Link {
        Link {
            key,
            id: NOT_OPENED,
            node,
            lane,
            expected: VecDeque::new(),
            framer: ReplyFramer::new(resp::codec::Limits::default()),
            is_own: owner != Key::NONE,
            owner,
            handshake: Vec::new(),
            is_connected: false,
            failure: None,
            held: None,
            is_subscribed: false,
            copies: Copies::default(),
            has_message: false,
        }
    }

    /// Requests with which it begins.
    pub(crate) fn begin(&mut self, config: &Config, lane: &Lane, begin: Begin, now_ns: u64, output: &mut Vec<u8>) {
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
        if lane.version == Version::Resp3 {
            ask(Step::Hello, &["HELLO", "3"]);
        }
        if lane.database != 0 {
            ask(Step::Select, &["SELECT", &database]);
        }
        if begin.reads_replicas {
            // A master takes it as well, and it may become a replica later.
            ask(Step::ReadOnly, &["READONLY"]);
        }
        if begin.wants_commands {
            ask(Step::Command, &["COMMAND"]);
        }
        if begin.wants_slots {
            ask(Step::Slots, &["CLUSTER", "SLOTS"]);
        }
    }

    /// Whether the node has yet to let it in: a wrong password ends it there, each time.
    pub(crate) fn is_beginning(&self) -> bool {
        let lets_in = |role| matches!(role, Role::Handshake(Step::Auth | Step::Hello | Step::Select | Step::ReadOnly));
        self.expected.iter().any(|expected| lets_in(expected.role))
    }
}
