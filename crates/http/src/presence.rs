//! Whether the client of a late reply is still there: for work that nobody may want any more.
//!
//! A client that has ended its half of the connection may still read (RFC 9112, section 9.6), or may have closed its socket:
//! to this side the two look alike until something is sent. So both are told, and whoever works for the reply decides.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// It may send more.
    Here,
    /// It sends no more; whether it reads nobody knows.
    Ended,
    /// Its connection is no more.
    Gone,
}

const CLIENTS: [Client; 3] = [Client::Here, Client::Ended, Client::Gone];

/// Tells what is known of a reply's client, from any thread. Of a reply that is not watched the client is always there.
#[derive(Clone, Debug, Default)]
pub struct Presence(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    client: AtomicU8,
    work: OnceLock<Box<str>>,
}

impl Presence {
    /// What is known now.
    pub fn client(&self) -> Client {
        // Nothing else is read by what it says.
        CLIENTS[usize::from(self.0.client.load(Ordering::Relaxed)).min(CLIENTS.len() - 1)]
    }

    /// Notes what the work for the reply was, for the log of slow requests. The first note stays.
    pub fn note_work(&self, work: impl Into<Box<str>>) {
        let _ = self.0.work.set(work.into());
    }

    /// Notes what has become of the client; nothing comes back.
    fn note(&self, client: Client) {
        self.0.client.fetch_max(client as u8, Ordering::Relaxed);
    }
}

/// A slot's end of it: dropped with the slot.
pub(crate) struct Watched(pub(crate) Presence);

impl Watched {
    /// What is noted of the work for the reply.
    pub(crate) fn work(&self) -> Option<&str> {
        self.0.0.work.get().map(AsRef::as_ref)
    }

    pub(crate) fn ended(&self) {
        self.0.note(Client::Ended);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.note(Client::Gone);
    }
}
