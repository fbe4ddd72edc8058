//! Work that would block a loop: it runs on a pool, and its reply is late. If the reply is watched (`http`'s
//! `Reply::later_watched`), work whose client has gone meanwhile is not begun.

use super::query_pool::{QueryPool, QueuePlace};
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use executor::{Executor, Job, give_way, once};
use http::{ClientState, LateReply};
use std::sync::Arc;
use std::time::Instant;

/// The reply of a pool's job. If it is dropped before the job began (the queue is full, or the server ends), it answers 503; a
/// job that drops its reply half-way is a bug, and the answer is 500.
struct Owed {
    late: Option<LateReply>,
    errors: Arc<ErrorRules>,
}

/// Text of the 503.
const FULL: &str = "too many requests wait for a thread";

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(late) = self.late.take() {
            refusal::refuse(&self.errors, late, &Failure::new(FailureKind::Busy, FULL));
        }
    }
}

/// Passes work to an executor. `errors` determine the answer if the queue is full.
pub(crate) fn run(
    executor: &dyn Executor,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    submit(|job| executor.try_submit(once(job)).map_err(drop), errors, late, work);
}

fn submit(
    try_submit: impl FnOnce(Job) -> Result<(), ()>,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let mut owed = Owed { late: Some(late), errors: Arc::clone(errors) };
    let job = move || {
        if let Some(late) = owed.late.take() {
            // If the client has gone, the work is not begun: an answer would reach nobody.
            if late.presence().client() != ClientState::Gone {
                work(late);
            }
        }
    };
    // A refused job is dropped, which answers: see `Owed`.
    let _ = try_submit(Box::new(job));
}

/// Passes work of `/_/` to the pool of queries. Its time limit includes the wait: work that has not begun by `ends` is not begun.
pub(crate) fn run_until(
    ends: Instant,
    pool: &QueryPool,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    match pool.general_place(late.host()) {
        Ok(place) => run_placed(ends, (pool, place), errors, late, work),
        Err(failure) => refusal::refuse(errors, late, &failure),
    }
}

/// Passes work that has a place in its queue to the pool of queries, within the same time limit.
pub(crate) fn run_placed(
    ends: Instant,
    (pool, place): (&QueryPool, QueuePlace),
    errors: &Arc<ErrorRules>,
    late: LateReply,
    work: impl FnOnce(LateReply) + Send + 'static,
) {
    let (work, place) = (within(ends, errors, work), Arc::new(place));
    let of_job = Arc::clone(&place);
    submit(
        |job| pool.try_submit(&place, job).map_err(drop),
        errors,
        late,
        move |late| {
            drop(of_job);
            work(late);
        },
    );
}

/// Work on a thread of queries that is not begun after `ends`.
fn within(
    ends: Instant,
    errors: &Arc<ErrorRules>,
    work: impl FnOnce(LateReply) + Send + 'static,
) -> impl FnOnce(LateReply) + Send + 'static {
    let errors = Arc::clone(errors);
    move |late| {
        // A scan may take a core for seconds: a loop's next request must not wait behind it.
        give_way();
        if Instant::now() < ends {
            return work(late);
        }
        let told = "no thread was free within the time of a query (`[server] query_seconds`)";
        refusal::refuse(&errors, late, &Failure::new(FailureKind::Busy, told));
    }
}
