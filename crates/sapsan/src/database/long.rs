//! A queue of long transactions. Preparing a transaction on a loop can turn out to take too long: a large document is checked by its
//! schema, or a large stored document is read. Such transactions run one after the other on a thread that exists only while the queue is
//! not empty.

use docs::LongTransaction;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Transactions that may wait. Any beyond are refused as busy.
const WAITING_MAX: usize = 1_000;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct JobQueue {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<LongTransaction>,
    /// A thread is working on the queue.
    is_served: bool,
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job. May be called on a thread of the store; does not wait.
    pub(crate) fn push(self: &Arc<JobQueue>, docs: &docs::DocumentDatabase, job: LongTransaction) {
        let mut waiting = self.lock();
        if waiting.jobs.len() >= WAITING_MAX {
            drop(waiting);
            tracing::warn!("a long transaction is refused: {WAITING_MAX} wait");
            return job(None);
        }
        waiting.jobs.push_back(job);
        if std::mem::replace(&mut waiting.is_served, true) {
            return;
        }
        drop(waiting);
        let (queue, docs) = (Arc::clone(self), docs.clone());
        let served = std::thread::Builder::new().name("long-writes".to_owned()).spawn(move || queue.serve(&docs));
        if let Err(error) = served {
            tracing::error!(%error, "there is no thread for long transactions");
            let mut waiting = self.lock();
            waiting.is_served = false;
            let refused = std::mem::take(&mut waiting.jobs);
            drop(waiting);
            refused.into_iter().for_each(|job| job(None));
        }
    }

    fn serve(&self, docs: &docs::DocumentDatabase) {
        executor::give_way();
        while let Some(job) = self.next() {
            // A panic of the closure drops its responder, which answers the request; the thread continues.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(Some(docs))));
        }
    }

    fn next(&self) -> Option<LongTransaction> {
        let mut waiting = self.lock();
        let next = waiting.jobs.pop_front();
        waiting.is_served = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_finds_no_room_is_refused_and_what_waits_runs() {
        let folder = tempfile::tempdir().unwrap();
        let database = crate::Database::open(folder.path(), "").unwrap();
        let (docs, queue) = (&database.inner.docs, Arc::<JobQueue>::default());
        let (go, wait) = channel::<()>();
        let (sender, ran) = channel();
        let (began, begun) = channel();
        queue.push(
            docs,
            Box::new(move |_| {
                began.send(()).unwrap();
                wait.recv().unwrap();
            }),
        );
        begun.recv().unwrap();
        for number in 0..=WAITING_MAX {
            let sender = sender.clone();
            queue.push(docs, Box::new(move |database| sender.send((number, database.is_some())).unwrap()));
        }
        let patience = std::time::Duration::from_secs(20);
        assert_eq!(ran.recv_timeout(patience).unwrap(), (WAITING_MAX, false), "the last one found no room");
        go.send(()).unwrap();
        for number in 0..WAITING_MAX {
            assert_eq!(ran.recv_timeout(patience).unwrap(), (number, true));
        }
    }
}
