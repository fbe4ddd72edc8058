//! The feed of changes: `GET /_/changes` for many consumers, read and encoded once.
//!
//! ```text
//!   log ──► follower ──► window ──► live consumers              one thread, woken by commits
//!      └──► seats ─────► pieces ──► consumers that are behind   the same thread, in turns
//! ```
//!
//! - Each consumer gets every change after its position once, in order: events carry positions, and a consumer copies only events after
//!   its own position.
//! - A consumer's loop pulls. If there is nothing to send, the consumer waits without a timer or a thread until it is nudged.
//! - What is held is counted among the large replies: the chunks of the window, the readers and pieces of consumers that are
//!   behind. A consumer that waits holds nothing. What the follower takes while it works has a part of its own
//!   (`Division::changes_work_bytes`). Unsent bytes of a connection count against the bound of its loop's buffers.
//! - A consumer that is slower than the window is disconnected, and is sent its position.
//!
//! It may import `access` (permits), `config`, `failure`, `threads` and `replies` (media types). It knows no route and no service.

mod consumer;
mod consumer_request;
mod feed_position;
mod follower;
mod hub;
mod window;

pub(crate) use consumer_request::{ConsumerRequest, Form};
pub(crate) use feed_position::FeedPosition;
pub(crate) use hub::{Arrival, FeedNumbers};

use crate::config::memory::{CHANGE_READER_BYTES, CHANGES_CHUNK_BYTES, Division};
use crate::failure::Failure;
use crate::threads::in_flight::InFlight;
use crate::threads::panics::Panics;
use docs::DocumentDatabase;
use follower::{Follower, Sizes};
use hub::Hub;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// See the module's documentation. Ends when it is dropped.
pub(crate) struct Feed {
    hub: Arc<Hub>,
    sizes: Sizes,
    panics: Arc<Panics>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Feed {
    pub(crate) fn new(replies: InFlight, division: &Division, panics: &Arc<Panics>) -> Feed {
        let sizes = Sizes {
            window_bytes: division.changes_window_bytes(),
            seat_bytes: CHANGE_READER_BYTES + CHANGES_CHUNK_BYTES,
        };
        Feed { hub: Arc::new(Hub::new(replies)), sizes, panics: Arc::clone(panics), thread: Mutex::default() }
    }

    /// Starts the thread.
    pub(crate) fn start(&self, database: &DocumentDatabase) -> std::io::Result<()> {
        let (hub, panics) = (Arc::clone(&self.hub), Arc::clone(&self.panics));
        let follower = Follower::new(Arc::clone(&self.hub), database.clone(), self.sizes);
        let thread = std::thread::Builder::new().name("changes".to_owned()).spawn(move || {
            let _life = Life(hub, panics);
            follower.run();
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Continues with a database that has taken over, with the same collections: the old one is released.
    pub(crate) fn move_on(&self, database: &DocumentDatabase) {
        self.hub.move_on(database.clone());
    }

    /// Adds a consumer.
    pub(crate) fn arrive(&self, arrival: impl FnOnce() -> Option<Arrival>) -> Result<(), Failure> {
        self.hub.arrive(arrival)
    }

    /// Notifies all consumers that the server stops, and ends their replies.
    pub(crate) fn end(&self) {
        self.hub.end();
    }

    pub(crate) fn numbers(&self) -> FeedNumbers {
        self.hub.numbers()
    }
}

/// Belongs to the thread. If the thread panics, all consumers end and no more are accepted: they would wait for ever.
struct Life(Arc<Hub>, Arc<Panics>);

impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "there is no feed of changes until the server is started again";
            self.1.note("changes", Some(why.to_owned()));
            self.0.end();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.hub.end();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread was reported by `Life`.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_whose_thread_panicked_takes_no_consumers() {
        let hub = Arc::new(Hub::new(InFlight::new(1 << 20)));
        hub.arrive(|| None).unwrap();
        let (of_thread, panics) = (Arc::clone(&hub), Arc::<Panics>::default());
        let noted = Arc::clone(&panics);
        let thread = std::thread::spawn(move || {
            let _life = Life(of_thread, panics);
            panic!("as a test wants it");
        });
        assert!(thread.join().is_err());
        assert!(hub.arrive(|| None).is_err());
        assert!(noted.message().is_some());
    }
}
