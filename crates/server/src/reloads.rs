//! Who asks for another configuration, and how many were taken: the way to the thread of `reload`.

use crate::failure::{ErrorRules, Failure, Kind};
use crate::refusal;
use http::{LateReply, Reply};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

/// Requests that may wait for the one that is being done.
pub(crate) const WAITING_MAX: usize = 8;

/// What the thread is asked for.
pub(crate) enum Ask {
    Reload(Option<LateReply>),
    Stop,
}

/// The way to the thread, and what it has done.
#[derive(Default)]
pub(crate) struct Reloads {
    pub(crate) asks: OnceLock<SyncSender<Ask>>,
    pub(crate) done: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Reloads {
    /// Answers when it is done or refused.
    pub(crate) fn ask(&self, reply: Reply<'_>) {
        let Some(asks) = self.asks.get() else {
            return refusal::fail(&Failure::new(Kind::Unavailable, "the server is starting"), reply);
        };
        let refused = match asks.try_send(Ask::Reload(Some(reply.later()))) {
            Ok(()) => return,
            Err(TrySendError::Full(ask) | TrySendError::Disconnected(ask)) => ask,
        };
        if let Ask::Reload(Some(late)) = refused {
            let busy = Failure::new(Kind::Busy, "other reloads wait already");
            refusal::refuse(&ErrorRules::default(), late, &busy);
        }
    }

    /// The same without an answer but in the log.
    pub(crate) fn ask_by_signal(&self) {
        // Where so many wait the file will be read after this moment all the same.
        let _ = self.asks.get().map(|asks| asks.try_send(Ask::Reload(None)));
    }

    /// How many were done, and refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}
