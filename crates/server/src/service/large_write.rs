//! The queue of writes that are not prepared on a loop: large ones, and those that turned out to take too long there.

use crate::reads::cold::{ColdReads, Sessions};
use docs::{DocumentDatabase, Submission, WriteError};
use executor::{GivingUp, once};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Large writes that wait for a thread. One is prepared at a time, on one of the threads for cold reads, so never behind a long
/// query. Bound: each was counted as waiting when it was taken (`write::admit`).
#[derive(Default)]
pub(crate) struct LargeWrites {
    line: Mutex<Line>,
    begun: AtomicU64,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<(DocumentDatabase, Submission)>,
    /// A job of the pool serves the queue.
    is_served: bool,
}

impl LargeWrites {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of writes that a thread has begun to prepare; each is counted before it is answered.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Number of waiting writes.
    pub(crate) fn queued(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Queues a write, and has one of the threads for cold reads serve the queue.
    pub(super) fn take(self: &Arc<Self>, cold: &ColdReads, database: &DocumentDatabase, submission: Submission) {
        let mut line = self.lock();
        line.waiting.push_back((database.clone(), submission));
        if !std::mem::replace(&mut line.is_served, true) {
            drop(line);
            let server = Server { line: Arc::clone(self), sessions: Arc::clone(&cold.sessions), is_over: false };
            // A refused task is dropped, which answers all that wait: see `Server`.
            drop(cold.pool.try_submit(once(move || server.serve())));
        }
    }

    /// The next write; `None` ends the job.
    fn next(&self) -> Option<(DocumentDatabase, Submission)> {
        let mut line = self.lock();
        let next = line.waiting.pop_front();
        line.is_served = next.is_some();
        next
    }
}

/// A job that serves the queue. However it ends, the writes left in the queue are answered.
struct Server {
    line: Arc<LargeWrites>,
    sessions: Arc<Sessions>,
    /// The queue was empty: a later write gets a job of its own.
    is_over: bool,
}

impl Server {
    fn serve(mut self) {
        let _giving_up = GivingUp::begin();
        while let Some((database, submission)) = self.line.next() {
            self.line.begun.fetch_add(1, Ordering::Relaxed);
            let mut submission = Some(submission);
            // If no reader is free, there is no session, and the write is given back.
            let _ = self.sessions.with(&database, |session| {
                // Work for a client that has gone is not begun.
                if let Some(submission) = submission.take_if(|submission| !submission.is_over()) {
                    database.write_submission(session, submission);
                }
                Ok(())
            });
            refuse_busy(submission);
        }
        self.is_over = true;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        while !self.is_over
            && let Some((_, submission)) = self.line.next()
        {
            refuse_busy(Some(submission));
        }
    }
}

pub(super) fn refuse_busy(submission: Option<Submission>) {
    if let Some(submission) = submission {
        (submission.done)(Err(WriteError::Busy));
    }
}
