//! Work that would hold a loop: it runs on a pool, and its reply comes late. Where the reply is watched (`http`'s
//! `Reply::later_watched`), work whose client has gone meanwhile is not begun.

use crate::failure::{ErrorRules, Failure, Kind};
use crate::refusal;
use executor::{Pool, Refused};
use http::{Client, LateReply};
use std::sync::Arc;
use std::time::Instant;

/// A reply that a job of the pool owes. Dropped before the job began (the queue is full, or the server ends) it says so
/// with 503; what a job drops half-way is a bug, and answered 500.
struct Owed {
    late: Option<LateReply>,
    errors: Arc<ErrorRules>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(late) = self.late.take() {
            let busy = Failure::new(Kind::Busy, "too many requests wait for a thread");
            refusal::refuse(&self.errors, late, &busy);
        }
    }
}

/// Hands work to a pool. `errors` tell how a full queue is answered.
pub(crate) fn run(
    pool: &Pool,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let mut owed = Owed { late: Some(late), errors: Arc::clone(errors) };
    let job = move || {
        if let Some(late) = owed.late.take() {
            // What nobody waits for any more is not begun: what is said to a connection that is gone reaches nobody.
            if late.presence().client() != Client::Gone {
                work(late);
            }
        }
    };
    if let Err(Refused::Full(job) | Refused::Draining(job)) = pool.try_submit(Box::new(job)) {
        // Answers: see `Owed`.
        drop(job);
    }
}

/// The same for work whose time ends at a certain moment, waiting included: what has not begun by then is not begun.
pub(crate) fn run_until(
    ends: Instant,
    pool: &Pool,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let for_late = Arc::clone(errors);
    run(pool, errors, late, move |late| {
        if Instant::now() < ends {
            return work(late);
        }
        let told = "no thread was free as long as a query may take (`[server] query_seconds`)";
        refusal::refuse(&for_late, late, &Failure::new(Kind::Busy, told));
    });
}
