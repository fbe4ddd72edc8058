//! Limits, deadlines and switches of a server, with their defaults.

use std::time::Duration;

/// Most header fields that any setting can allow: their slices live on the stack of the call.
pub(crate) const FIELDS_MAX: usize = 128;

/// What a server gives a client at most, and how it answers when that is not enough.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request head, from the method to the blank line: 431. The reactor's read buffer must hold as many.
    pub head_bytes_max: usize,
    /// Bytes of a request target: 414.
    pub target_bytes_max: usize,
    /// Header fields of a request, at most 128: 431.
    pub fields_max: usize,
    /// Bytes of a request body after its chunks are joined: 413.
    pub body_bytes_max: usize,
    /// Bytes of bodies that one loop gathers at the same moment over all its connections: 503.
    pub gathered_bytes_max: usize,
    /// Bytes that all connections of one loop hold between their turns: unread input, unsent output, replies that wait
    /// for those before them. Past it requests are answered 503 until clients have taken what is theirs.
    pub buffered_bytes_max: usize,
    /// Unanswered requests of one connection; past it the connection is not read until a reply has left.
    pub pipelined_max: usize,
    /// Bytes of replies that wait behind an unanswered request of their connection; past it no more requests are read.
    pub held_bytes_max: usize,
    /// Open connections from one address, over all loops; more are closed at once.
    pub connections_per_address_max: usize,
    /// Open connections of the server, over all loops; more are closed at once.
    pub connections_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: 16 << 10,
            target_bytes_max: 8 << 10,
            fields_max: 100,
            body_bytes_max: 8 << 20,
            gathered_bytes_max: 64 << 20,
            buffered_bytes_max: 256 << 20,
            pipelined_max: 128,
            held_bytes_max: 256 << 10,
            connections_per_address_max: 16 << 10,
            connections_max: 64 << 10,
        }
    }
}

/// How long a client may take. All count on the loop's coarse clock, so they are exact to a few hundredths of a second.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// From accept, or from the first byte of a later request, to the end of its head: 408, or a silent close where no
    /// byte had come.
    pub head: Duration,
    /// From the end of the head to the end of the body: 408. A body that arrives faster than `body_rate_min` bytes a
    /// second gets the time it needs.
    pub body: Duration,
    /// See `body`.
    pub body_rate_min: u64,
    /// From the last reply to the first byte of the next request: a silent close.
    pub idle: Duration,
    /// Where no more connections may be open and somebody waits for one: how long a client may have one for which it has not begun
    /// a request, or not ended a head; four times as long for a body, beside what `body_rate_min` gives it. Then as above.
    pub crowded: Duration,
    /// Longest time in which a client takes nothing of what waits for it: the connection is cut.
    pub write: Duration,
    /// What a fresh connection still has for its first request after the server began to drain.
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
            write: Duration::from_secs(30),
            drain_grace: Duration::from_millis(500),
        }
    }
}
