//! Whether the client of a long query is still there: checked while rows are computed, so that a query ends with its client even
//! if no row has been sent yet.
//!
//! A client that has only ended its half of the connection may still read its reply, and looks to a server like one that has
//! closed its socket. Its query gets a little more time: a request piped through a program that ends its half at once is mostly
//! done by then. While others wait for a thread, it gets a tenth of that.

use crate::failure::{Failure, Kind};
use crate::query_pool::QueryPool;
use http::{Client, LateReply, Presence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a query continues after its client has ended its half.
const ENDED_MAX: Duration = Duration::from_secs(1);
/// The same while others wait for its thread.
const ENDED_MAX_CROWDED: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(crate) struct Watch {
    presence: Presence,
    /// The pool whose thread works for the reply.
    pool: Option<Arc<QueryPool>>,
    /// When its half was first seen ended.
    ended: OnceLock<Instant>,
}

impl Watch {
    /// For a watched reply for which a thread of the pool works.
    pub(crate) fn of(late: &LateReply, pool: &Arc<QueryPool>) -> Watch {
        Watch { presence: late.presence(), pool: Some(Arc::clone(pool)), ended: OnceLock::new() }
    }

    /// For a reply for which a thread of another kind works.
    pub(crate) fn elsewhere(late: &LateReply) -> Watch {
        Watch { presence: late.presence(), pool: None, ended: OnceLock::new() }
    }

    /// The state of the client.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Whether the client is considered gone.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        match self.presence.client() {
            Client::Here => false,
            Client::Ended => {
                let ended = now.saturating_duration_since(*self.ended.get_or_init(|| now));
                ended > ENDED_MAX || ended > ENDED_MAX_CROWDED && self.do_others_wait()
            }
            Client::Gone => true,
        }
    }

    #[cold]
    fn do_others_wait(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.metrics().queued > 0)
    }

    /// The failure of an ended query, for a client that may still read.
    pub(crate) fn failure(&self, failure: Failure) -> Failure {
        if failure.kind != Kind::OutOfTime || !self.is_over(Instant::now()) {
            return failure;
        }
        let told = "the client ended its side of the connection while its query ran: keep it open until the reply";
        Failure::new(Kind::Invalid, told)
    }
}
