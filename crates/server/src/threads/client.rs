//! Whether the client of a long query is still connected, and its token still permits the query. This is checked while rows are computed, so that a query ends with its
//! client even if no row has been sent yet.
//!
//! A client that shuts down only its sending side may still read its reply, but the server cannot tell it from a client that has
//! closed its socket. So the query continues for up to [`ENDED_MAX`] (a tenth of that while other queries wait for a thread).
//! That is enough for most requests from programs that shut down their side right after sending.

use super::query_pool::QueryPool;
use crate::access::token::Permit;
use crate::failure::{Failure, FailureKind};
use http::{ClientState, LateReply, Presence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a query continues after its client has shut down its sending side.
const ENDED_MAX: Duration = Duration::from_secs(1);
/// The same while other queries wait for the thread.
const ENDED_MAX_CROWDED: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(crate) struct ClientWatch {
    presence: Presence,
    permit: Permit,
    /// The pool whose thread computes the reply.
    pool: Option<Arc<QueryPool>>,
    /// When the end of the client's sending side was first seen.
    ended: OnceLock<Instant>,
}

impl ClientWatch {
    /// For a watched reply that a thread of the pool computes.
    pub(crate) fn of(late: &LateReply, permit: &Permit, pool: &Arc<QueryPool>) -> ClientWatch {
        ClientWatch { pool: Some(Arc::clone(pool)), ..ClientWatch::elsewhere(late, permit) }
    }

    /// For a watched reply that a thread of another kind computes.
    pub(crate) fn elsewhere(late: &LateReply, permit: &Permit) -> ClientWatch {
        ClientWatch { presence: late.presence(), permit: permit.clone(), pool: None, ended: OnceLock::new() }
    }

    /// The state of the client.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Whether the client is considered gone, or may not have its reply any more.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.permit.check().is_err() || self.is_gone(now)
    }

    fn is_gone(&self, now: Instant) -> bool {
        match self.presence.client() {
            ClientState::Here => false,
            ClientState::Ended => {
                let ended = now.saturating_duration_since(*self.ended.get_or_init(|| now));
                ended > ENDED_MAX || ended > ENDED_MAX_CROWDED && self.do_others_wait()
            }
            ClientState::Gone => true,
        }
    }

    #[cold]
    fn do_others_wait(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.metrics().queued > 0)
    }

    /// The failure of an ended query, for a client that may still read.
    pub(crate) fn failure(&self, failure: Failure) -> Failure {
        if failure.kind != FailureKind::OutOfTime {
            return failure;
        }
        if let Err(refused) = self.permit.check() {
            return refused;
        }
        if !self.is_gone(Instant::now()) {
            return failure;
        }
        let detail = "the client ended its side of the connection while its query ran: keep it open until the reply";
        Failure::new(FailureKind::Invalid, detail)
    }

    /// The outcome of a query, if its client still has the permission to read it.
    pub(crate) fn permitted<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        self.permit.check().and(outcome)
    }
}
