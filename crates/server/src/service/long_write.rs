//! Writes that turned out to take too long on their loop: because of their document's check by a JSON Schema, or the size of the
//! stored document that they change. The thread for large writes continues them ([`super::large_write`]).
//!
//! From the moment when its loop gave it up, such a write is alone among the requests of its connection, so none overtakes it.

use super::Shared;
use super::large_write;
use docs::{CancelCheck, DocumentDatabase, Submission, TakeLong};
use reactor::Loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Takes such writes from one loop.
pub(crate) struct LongWrites {
    /// Held weakly: a thread of the store, which may be the last owner of this value, must not end the threads behind the loops.
    shared: Weak<Shared>,
    /// Whether the server has stopped. Their clients are not watched: the check of a short document takes less than a tenth of a
    /// second, one merge some tenths.
    over: CancelCheck,
    /// Whether a write was given up since the last call of `take_note`.
    is_noted: AtomicBool,
}

impl LongWrites {
    pub(crate) fn new(shared: &Arc<Shared>) -> Arc<LongWrites> {
        let (queries, loops) = (Arc::clone(&shared.queries), Arc::clone(&shared.loops));
        let over = move || {
            executor::let_others(Instant::now(), || loops.iter().any(Loop::waits));
            queries.is_stopped()
        };
        Arc::new(LongWrites { shared: Arc::downgrade(shared), over: Arc::new(over), is_noted: AtomicBool::new(false) })
    }

    /// Whether the call that has just ended gave a write up.
    #[inline]
    pub(crate) fn take_note(&self) -> bool {
        // Written on the loop that reads it.
        self.is_noted.load(Ordering::Relaxed) && self.is_noted.swap(false, Ordering::Relaxed)
    }
}

impl TakeLong for LongWrites {
    fn note(&self) {
        self.is_noted.store(true, Ordering::Relaxed);
    }

    fn take(&self, database: &DocumentDatabase, submission: Submission) {
        match self.shared.upgrade() {
            Some(shared) => {
                let submission = Submission { over: Some(Arc::clone(&self.over)), ..submission };
                let not_taken = shared.take_large(database, submission, true);
                debug_assert!(not_taken.is_none(), "a write that is not for a loop is taken");
            }
            None => large_write::refuse_busy(Some(submission)),
        }
    }
}
