//! Pending requests of a node connection: for each request sent, the client that waits.

use super::slab::Key;
use crate::commands::CommandId;

/// Bytes that a pending request holds beside its own, for its records.
pub(crate) const RECORD_BYTES: usize = 64;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    /// The client; [`Key::NONE`] for requests of the proxy itself.
    pub(crate) client: Key,
    pub(crate) role: Role,
    pub(crate) command: CommandId,
    /// Bytes that its client is charged with until it is answered.
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

impl PendingRequest {
    /// A client's request of this many bytes.
    #[inline]
    pub(crate) fn new(client: Key, role: Role, command: CommandId, bytes: usize, sent_ns: u64) -> PendingRequest {
        let bytes = (bytes + RECORD_BYTES) as u32;
        PendingRequest { client, role, command, bytes, reserved: 0, copied: 0, redirects: 0, sent_ns }
    }

    /// A request of the proxy itself.
    pub(crate) fn of_proxy(role: Role, command: CommandId, sent_ns: u64) -> PendingRequest {
        PendingRequest { bytes: 0, ..PendingRequest::new(Key::NONE, role, command, 0, sent_ns) }
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
    /// A request of the proxy itself on a node connection.
    Handshake(Step),
}

/// Requests of the proxy itself on a node connection.
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
    /// PING on a subscriber's connection, which is silent otherwise.
    Ping,
}
