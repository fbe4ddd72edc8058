//! Limits and deadlines of a server, with their defaults.

use std::time::Duration;

/// Upper bound of `fields_max`: the slices of the fields live on the stack.
pub(crate) const FIELDS_MAX: usize = 128;

/// Limits of a client, and the status of a reply when one is exceeded. What all clients together may hold is limited by the
/// reactor (`held_bytes_max`, `arriving_bytes_max` of its settings).
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Bytes of a request head, from the method to the blank line: 431. The reactor's read buffer must hold as many.
    pub head_bytes_max: usize,
    /// Bytes of a request target: 414.
    pub target_bytes_max: usize,
    /// Header fields of a request, at most 128: 431.
    pub fields_max: usize,
    /// Bytes of a request body after its chunks are joined: 413.
    pub body_bytes_max: usize,
    /// Unanswered requests of one connection; at the limit the connection is not read until a reply has left.
    pub pipelined_max: usize,
    /// Bytes of replies that wait behind an unanswered request of their connection; above it no more requests are read.
    pub held_bytes_max: usize,
    /// Open connections from one address, over all loops; more are closed at once, whatever places there are.
    pub connections_per_address_max: usize,
    /// Open connections of the server, over all loops. If more arrive, addresses with more than the same share for each lose some.
    pub connections_max: usize,
    /// Further open connections, for which there is no place: they are answered vital requests ([`crate::Service::is_vital`]), and
    /// others as soon as there is a place; 503 after [`Deadlines::crowded`]. More are closed at once. As many again are for
    /// servers beside ([`crate::HttpServer::beside`]). The reactor must allow as many connections, and as many beyond for the
    /// listeners of servers beside.
    pub connections_reserved: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            head_bytes_max: 16 << 10,
            target_bytes_max: 8 << 10,
            fields_max: 100,
            body_bytes_max: 8 << 20,
            pipelined_max: 128,
            held_bytes_max: 256 << 10,
            connections_per_address_max: 16 << 10,
            connections_max: 64 << 10,
            connections_reserved: 0,
        }
    }
}

/// How long a client may take to send a request. The time for receiving the reply is limited by the reactor's `send_behind_max`.
/// All deadlines use the loop's coarse clock, so they are exact to a few hundredths of a second.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// From accept, or from the first byte of a later request, to the end of its head: 408, or a close without reply if no byte
    /// has arrived.
    pub head: Duration,
    /// How long a body may be behind its minimum rate, from the end of its head on: 408. A pause may be as long as that, and a
    /// body that arrives at the rate has all the time it needs.
    pub body: Duration,
    /// The minimum rate of a body, in bytes a second: each byte makes up for the time that it may take at this rate.
    pub body_rate_min: u64,
    /// From the last reply to the first byte of the next request: a close without reply.
    pub idle: Duration,
    /// Used only while no further connection may be open and others wait. A connection is closed after this time without a new request,
    /// without a complete head, or below the minimum rate of receiving its reply. A body below its rate has four times as long.
    pub crowded: Duration,
    /// Time for the first request of a new connection after the server began to drain, and for the rest of a body in pieces.
    pub drain_grace: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            head: Duration::from_secs(15),
            body: Duration::from_secs(30),
            body_rate_min: 64 << 10,
            idle: Duration::from_secs(75),
            crowded: Duration::from_secs(1),
            drain_grace: Duration::from_millis(500),
        }
    }
}
