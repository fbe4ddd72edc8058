//! A queue of long transactions. Preparing a transaction on a loop can turn out to take too long: a large document is checked by its
//! schema, or a large stored document is read. Such transactions run one after the other on a thread that exists only while the queue is
//! not empty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Transactions that may wait. Any beyond are dropped, and their requests answered 500.
const WAITING_MAX: usize = 1_000;

type Job = Box<dyn FnOnce(&docs::DocumentDatabase) + Send>;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct JobQueue {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// A thread is working on the queue.
    is_served: bool,
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job. May be called on a thread of the store; does not wait.
    pub(crate) fn push(self: &Arc<JobQueue>, docs: &docs::DocumentDatabase, job: Job) {
        let mut waiting = self.lock();
        if waiting.jobs.len() >= WAITING_MAX {
            drop(waiting);
            tracing::warn!("a long transaction is dropped: {WAITING_MAX} wait");
            return drop(job);
        }
        waiting.jobs.push_back(job);
        if std::mem::replace(&mut waiting.is_served, true) {
            return;
        }
        drop(waiting);
        let (line, docs) = (Arc::clone(self), docs.clone());
        let served = std::thread::Builder::new().name("long-writes".to_owned()).spawn(move || line.serve(&docs));
        if let Err(error) = served {
            tracing::error!(%error, "there is no thread for long transactions");
            let mut waiting = self.lock();
            waiting.is_served = false;
            let dropped = std::mem::take(&mut waiting.jobs);
            drop(waiting);
            drop(dropped);
        }
    }

    fn serve(&self, docs: &docs::DocumentDatabase) {
        executor::give_way();
        while let Some(job) = self.next() {
            // A panic of the closure drops its responder, which answers the request; the thread continues.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(docs)));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        let next = waiting.jobs.pop_front();
        waiting.is_served = next.is_some();
        next
    }
}
