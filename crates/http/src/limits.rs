//! Limits, deadlines and switches of a server, with their defaults.

use std::time::Duration;

/// Most header fields that any setting can allow: their slices live on the stack of the call.
pub(crate) const FIELDS_MAX: usize = 128;

/// What a server gives a client at most, and how it answers when that is not enough. What all clients together may hold is the
/// reactor's to bound (`held_bytes_max`, `arriving_bytes_max` of its settings).
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
            pipelined_max: 128,
            held_bytes_max: 256 << 10,
            connections_per_address_max: 16 << 10,
            connections_max: 64 << 10,
        }
    }
}

/// How long a client may take to ask; how long to take what it is answered is the reactor's `send_behind_max`. All count on the loop's coarse clock, so they are exact to a few hundredths of a second.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// From accept, or from the first byte of a later request, to the end of its head: 408, or a silent close where no
    /// byte had come.
    pub head: Duration,
    /// How long a body may be behind its least rate, from the end of its head on: 408. So a pause may be as long, and a body that
    /// arrives at the rate gets the time it needs.
    pub body: Duration,
    /// The least rate of a body, in bytes a second: each byte gives back the time that it may take at this rate.
    pub body_rate_min: u64,
    /// From the last reply to the first byte of the next request: a silent close.
    pub idle: Duration,
    /// Where no more connections may be open and somebody waits for one: how long a client may have one for which it has not begun
    /// a request, or not ended a head, or how long it may be behind the least rate of taking its replies; four times as long for a body
    /// behind its rate. Then as above.
    pub crowded: Duration,
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
            drain_grace: Duration::from_millis(500),
        }
    }
}
