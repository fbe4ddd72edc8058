//! Expected replies of a node connection: for each request sent, the client that waits.

use super::slab::Key;
use crate::commands::CommandId;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The client; [`Key::NONE`] for requests of the proxy itself.
    pub(crate) client: Key,
    pub(crate) role: Role,
    pub(crate) command: CommandId,
    /// Bytes of the request.
    pub(crate) bytes: u32,
    /// Estimated size of its reply in bytes, from the client's replies so far.
    pub(crate) reserved: u32,
    /// Bytes of the request that the node connection keeps a copy of, for redirections; zero outside a cluster.
    pub(crate) copied: u32,
    /// Number of redirections so far.
    pub(crate) redirects: u8,
    /// Time of sending, on the loop's clock.
    pub(crate) sent_ns: u64,
}

impl Expected {
    /// A request of the proxy itself.
    pub(crate) fn of_proxy(role: Role, command: CommandId, sent_ns: u64) -> Expected {
        Expected { client: Key::NONE, role, command, bytes: 0, reserved: 0, copied: 0, redirects: 0, sent_ns }
    }
}

/// The use of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The client's reply of this number.
    Reply(u32),
    /// A part of a joined reply.
    Part { gather: u16, part: u16 },
    /// A reply that is not passed on: after CLIENT REPLY OFF, or to a request that the proxy sent on the client's behalf.
    Dropped,
    /// A step of the connection's handshake.
    Handshake(Step),
}

/// Steps of a node connection's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Auth,
    Hello,
    Select,
    /// READONLY: a cluster's replica then answers reads.
    ReadOnly,
    Command,
    /// CLUSTER SLOTS, also sent later.
    Slots,
}
