//! The ledger of a loop's bytes.
//!
//! Buffers of connections, of clients and of nodes, are counted by the reactor. Everything else that is held for a client is counted by
//! its [`Client::held_bytes`]: replies that wait for earlier ones, parts of joined replies, its name, its subscriptions, commands that
//! are held back in a transaction. [`Ledger::enter`] passes that sum on to the reactor, so the reactor's sum is the loop's: past
//! `--total-bytes-max` it closes the connections that hold most for longest, and from half of it on clients wait.

use super::client::Client;
use super::connections::Connections;
use super::slab::Key;

/// Divisor of the memory bound above which clients begin to wait; replies in flight come on top.
const PRESSURE_PART: usize = 2;
/// Divisor of the memory bound that gives what one client may hold while others wait behind its reply: some such clients have room, beside
/// those that wait.
const CLIENT_PART: usize = 4;
/// Clients that wait because of memory are read again once less than this many eighths of the bound is held.
const CALM_PARTS_OF_8: usize = 7;

/// The bytes that one loop holds for its clients, and their bounds.
pub(crate) struct Ledger {
    /// Bytes held for clients, beside the buffers of connections.
    kept_bytes: usize,
    /// Bytes held by all connections of the loop, at the end of the last tick.
    held_bytes: usize,
    /// Estimated bytes of expected replies, from their clients' earlier replies.
    pub(crate) reserved_bytes: usize,
    /// Bound on the unread bytes of one client while others wait behind its reply.
    pub(crate) client_bytes_max: usize,
    /// Bound on `held_bytes` and `reserved_bytes` together above which clients wait.
    pressure_bytes: usize,
    /// Whether all clients together hold more than permitted.
    is_pressed: bool,
    /// Clients that are not read until less is held.
    starved: Vec<Key>,
}

impl Ledger {
    /// The ledger of a loop that may hold this many bytes.
    pub(crate) fn new(bytes_max: usize) -> Ledger {
        Ledger {
            kept_bytes: 0,
            held_bytes: 0,
            reserved_bytes: 0,
            client_bytes_max: bytes_max / CLIENT_PART,
            pressure_bytes: bytes_max / PRESSURE_PART,
            is_pressed: false,
            starved: Vec::new(),
        }
    }

    /// Enters what is held for a client now.
    #[inline]
    pub(crate) fn enter(&mut self, client: &mut Client, connections: &mut impl Connections) {
        let held = client.held_bytes();
        if held != client.entered_bytes {
            self.kept_bytes = self.kept_bytes + held - client.entered_bytes;
            client.entered_bytes = held;
            connections.keep(client.id, held);
        }
    }

    /// A client is gone, and its connection with it.
    pub(crate) fn remove(&mut self, client: &Client) {
        self.kept_bytes -= client.entered_bytes;
    }

    /// Bytes held for clients, beside the buffers of connections.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether clients that hold something wait.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.is_pressed || self.held_bytes + self.reserved_bytes > self.pressure_bytes
    }

    /// A client waits until less is held.
    pub(crate) fn starve(&mut self, client: Key) {
        self.is_pressed = true;
        self.starved.push(client);
    }

    /// Notes what all connections of the loop hold. Returns the clients that may be read again.
    pub(crate) fn look(&mut self, held_bytes: usize) -> Vec<Key> {
        self.held_bytes = held_bytes;
        let held = held_bytes + self.reserved_bytes;
        self.is_pressed = match self.is_pressed {
            true => held > self.pressure_bytes / 8 * CALM_PARTS_OF_8,
            false => held > self.pressure_bytes,
        };
        if self.is_pressed { Vec::new() } else { std::mem::take(&mut self.starved) }
    }
}
