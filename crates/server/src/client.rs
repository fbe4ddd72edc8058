//! Whether the client of a long query still wants it: asked while rows are computed, so that a query ends with its client also where no
//! row has left yet.
//!
//! A client that has only ended its half of the connection may still read its reply, and to a server looks as one that has
//! closed its socket. It has a moment more: what a person pipes through a program that ends its half at once is mostly done by
//! then. While others wait for a thread, it has a tenth of that.

use crate::failure::{Failure, Kind};
use crate::query_pool::QueryPool;
use http::{Client, LateReply, Presence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a query goes on whose client sends no more.
const ENDED_MAX: Duration = Duration::from_secs(1);
/// The same while others wait for its thread.
const ENDED_MAX_CROWDED: Duration = Duration::from_millis(100);

/// See the module's text.
pub(crate) struct Watch {
    presence: Presence,
    /// Whose thread it takes.
    pool: Option<Arc<QueryPool>>,
    /// When it was first seen to send no more.
    ended: OnceLock<Instant>,
}

impl Watch {
    /// Of a reply that is watched, for which a thread of the pool works.
    pub(crate) fn of(late: &LateReply, pool: &Arc<QueryPool>) -> Watch {
        Watch { presence: late.presence(), pool: Some(Arc::clone(pool)), ended: OnceLock::new() }
    }

    /// The same of a reply for which a thread of another kind works.
    pub(crate) fn elsewhere(late: &LateReply) -> Watch {
        Watch { presence: late.presence(), pool: None, ended: OnceLock::new() }
    }

    /// What knows of the client.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Whether nobody waits for the reply.
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

    /// What a query that was ended is to a client that may still read.
    pub(crate) fn failure(&self, failure: Failure) -> Failure {
        if failure.kind != Kind::OutOfTime || !self.is_over(Instant::now()) {
            return failure;
        }
        let told = "the client ended its side of the connection while its query ran: keep it open until the reply";
        Failure::new(Kind::Invalid, told)
    }
}
