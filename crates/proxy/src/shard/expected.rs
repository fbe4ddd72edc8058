//! What a node connection expects: for each request that was sent, which client waits for the reply.

use super::slab::Key;
use crate::commands::CommandId;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The client; [`Key::NONE`] of what the proxy itself asked for.
    pub(crate) client: Key,
    pub(crate) role: Role,
    pub(crate) command: CommandId,
    /// Bytes of the request.
    pub(crate) bytes: u32,
    /// Bytes that its reply will have, as far as the client's replies so far tell.
    pub(crate) reserved: u32,
    /// Bytes of it that its node connection keeps a copy of, to send it on: of a cluster's requests alone.
    pub(crate) copied: u32,
    /// How often it was sent on.
    pub(crate) redirects: u8,
    /// When it was sent, by the loop's clock.
    pub(crate) sent_ns: u64,
}

impl Expected {
    /// What the proxy itself asks a node for.
    pub(crate) fn of_proxy(role: Role, command: CommandId, sent_ns: u64) -> Expected {
        Expected { client: Key::NONE, role, command, bytes: 0, reserved: 0, copied: 0, redirects: 0, sent_ns }
    }
}

/// What the reply is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The client's reply of this number.
    Reply(u32),
    /// A part of a joined reply.
    Part { gather: u16, part: u16 },
    /// A reply that the client does not want (CLIENT REPLY OFF), or that belongs to a request of the proxy's on its behalf.
    Dropped,
    /// A step of the connection's own beginning.
    Handshake(Step),
}

/// What a node connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Auth,
    Hello,
    Select,
    /// READONLY: a cluster's replica then answers reads.
    ReadOnly,
    Command,
    /// CLUSTER SLOTS, also later.
    Slots,
}
