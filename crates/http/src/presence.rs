//! Whether the client of a late reply is still there: for work that may no longer be needed.
//!
//! A client that has ended its half of the connection may still read (RFC 9112, section 9.6), or may have closed its socket: the
//! server cannot distinguish the two until it sends. So both states are reported, and the code that works for the reply decides.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// Known state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// It may send more.
    Here,
    /// It sends no more; whether it still reads is unknown.
    Ended,
    /// Its connection is closed, or its reply has left.
    Gone,
}

const CLIENTS: [ClientState; 3] = [ClientState::Here, ClientState::Ended, ClientState::Gone];

/// The known state of a reply's client, for any thread. The client of a reply that is not watched is always
/// [`ClientState::Here`].
#[derive(Clone, Debug, Default)]
pub struct Presence(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    client: AtomicU8,
    work: OnceLock<Box<str>>,
}

impl Presence {
    /// The state known now.
    pub fn client(&self) -> ClientState {
        // No other memory is read because of this value.
        CLIENTS[usize::from(self.0.client.load(Ordering::Relaxed)).min(CLIENTS.len() - 1)]
    }

    /// Records the work done for the reply, for the log of slow requests. The first note stays.
    pub fn note_work(&self, work: impl Into<Box<str>>) {
        let _ = self.0.work.set(work.into());
    }

    /// Records the client's state; it never goes back.
    fn note(&self, client: ClientState) {
        self.0.client.fetch_max(client as u8, Ordering::Relaxed);
    }
}

/// The slot's side: dropped with the slot.
pub(crate) struct Watched(pub(crate) Presence);

impl Watched {
    /// The recorded work for the reply.
    pub(crate) fn work(&self) -> Option<&str> {
        self.0.0.work.get().map(AsRef::as_ref)
    }

    pub(crate) fn ended(&self) {
        self.0.note(ClientState::Ended);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.note(ClientState::Gone);
    }
}
