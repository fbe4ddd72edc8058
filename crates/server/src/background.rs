//! Work that would hold a loop: it runs on a pool, and its reply comes late. Where the reply is watched (`http`'s
//! `Reply::later_watched`), work whose client has gone meanwhile is not begun.

use crate::failure::{ErrorRules, Failure, Kind};
use crate::query_pool::{Place, QueryPool};
use crate::refusal;
use executor::{Executor, Job, Line, once};
use http::{Client, LateReply};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// A reply that a job of the pool owes. Dropped before the job began (the queue is full, or the server ends) it says so
/// with 503; what a job drops half-way is a bug, and answered 500.
struct Owed {
    late: Option<LateReply>,
    errors: Arc<ErrorRules>,
    /// What is said then.
    full: Cow<'static, str>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(late) = self.late.take() {
            let busy = Failure::new(Kind::Busy, std::mem::take(&mut self.full));
            refusal::refuse(&self.errors, late, &busy);
        }
    }
}

/// Hands work to an executor. `errors` tell how a full queue is answered.
pub(crate) fn run(
    executor: &dyn Executor,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    submit(
        (|job| executor.try_submit(once(job)).map_err(drop), "too many requests wait for a thread".into()),
        errors,
        late,
        work,
    );
}

fn submit(
    (try_submit, full): (impl FnOnce(Job) -> Result<(), ()>, Cow<'static, str>),
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let mut owed = Owed { late: Some(late), errors: Arc::clone(errors), full };
    let job = move || {
        if let Some(late) = owed.late.take() {
            // What nobody waits for any more is not begun: what is said to a connection that is gone reaches nobody.
            if late.presence().client() != Client::Gone {
                work(late);
            }
        }
    };
    // A job that is refused is dropped there, which answers: see `Owed`.
    let _ = try_submit(Box::new(job));
}

/// Hands work of `/_/` to the pool of queries. Its time ends at a certain moment, waiting included: what has not begun by then is not begun.
pub(crate) fn run_until(
    ends: Instant,
    pool: &QueryPool,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let work = within(ends, errors, work);
    submit((|job| pool.try_submit(Line::First, job).map_err(drop), QueryPool::is_full()), errors, late, work);
}

/// The same for a declared query or steps, which have a place in the line.
pub(crate) fn run_declared(
    ends: Instant,
    (pool, place): (&QueryPool, Place),
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let work = within(ends, errors, work);
    let full = "too many requests wait for a thread".into();
    submit((|job| pool.try_submit(Line::Second, job).map_err(drop), full), errors, late, move |late| {
        drop(place);
        work(late);
    });
}

fn within(
    ends: Instant,
    errors: &Arc<ErrorRules>,
    work: impl FnOnce(LateReply) + Send + 'static,
) -> impl FnOnce(LateReply) + Send + 'static {
    let errors = Arc::clone(errors);
    move |late| {
        if Instant::now() < ends {
            return work(late);
        }
        let told = "no thread was free as long as a query may take (`[server] query_seconds`)";
        refusal::refuse(&errors, late, &Failure::new(Kind::Busy, told));
    }
}
