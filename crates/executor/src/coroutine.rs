//! Coroutines: tasks that declare their waits, so that each model decides what a wait costs.
//!
//! A thread that runs a coroutine to its end sleeps during its waits, inside [`blocking`]. An event loop suspends the coroutine
//! and resumes it when its timer is due. The task is the same for both.

use crate::blocking::blocking;
use std::time::Duration;

/// A closure that runs once and may block.
pub type Job = Box<dyn FnOnce() + Send>;

/// Why a coroutine returned control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoroutineProgress {
    /// The task has ended; it is not resumed again.
    Done,
    /// The task waits: it is resumed after at least this time.
    Wait(Duration),
    /// Other tasks may run first: it is resumed after them.
    Yield,
}

/// A task in pieces: each call of [`resume`](Coroutine::resume) computes up to the next wait.
pub trait Coroutine: Send {
    /// Computes until the task waits, yields or ends. Not called again after [`CoroutineProgress::Done`] or a panic.
    fn resume(&mut self) -> CoroutineProgress;
}

/// A coroutine that a model owns.
pub type BoxCoroutine = Box<dyn Coroutine>;

/// Makes a coroutine of a closure, which runs as a single piece.
pub fn once(job: impl FnOnce() + Send + 'static) -> BoxCoroutine {
    Box::new(Once(Some(job)))
}

struct Once<F>(Option<F>);

impl<F: FnOnce() + Send> Coroutine for Once<F> {
    fn resume(&mut self) -> CoroutineProgress {
        if let Some(job) = self.0.take() {
            job();
        }
        CoroutineProgress::Done
    }
}

/// Runs a coroutine to its end on this thread, which announces the waits and sleeps during them.
///
/// A yield is not announced: the thread stays ready to run, so a model has no reason to let another one begin in its place. The kernel
/// runs the threads that are ready. Announced, each yield cost the IO-aware pool a signal and up to two context switches.
pub fn run_to_end(coroutine: &mut dyn Coroutine) {
    loop {
        match coroutine.resume() {
            CoroutineProgress::Done => return,
            CoroutineProgress::Wait(duration) => blocking(|| std::thread::sleep(duration)),
            CoroutineProgress::Yield => std::thread::yield_now(),
        }
    }
}

/// An element of a thread pool's queue: either kind of task.
pub(crate) enum Work {
    Job(Job),
    Coroutine(BoxCoroutine),
}

impl Work {
    pub(crate) fn run(self) {
        match self {
            Self::Job(job) => job(),
            Self::Coroutine(mut coroutine) => run_to_end(&mut *coroutine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::{Announce, register};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts the announced calls.
    #[derive(Default)]
    struct Announced(AtomicU32);

    impl Announce for Announced {
        fn blocks(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn unblocks(&self) {}
    }

    #[test]
    fn a_closure_is_a_coroutine_of_one_piece() {
        let (done, seen) = std::sync::mpsc::channel();
        let mut coroutine = once(move || done.send(7).unwrap());
        assert_eq!(coroutine.resume(), CoroutineProgress::Done);
        assert_eq!(seen.iter().collect::<Vec<i32>>(), [7]);
    }

    #[test]
    fn a_thread_resumes_a_coroutine_until_it_is_done() {
        struct Pieces(Vec<CoroutineProgress>);
        impl Coroutine for Pieces {
            fn resume(&mut self) -> CoroutineProgress {
                self.0.remove(0)
            }
        }
        let mut pieces = Pieces(vec![
            CoroutineProgress::Yield,
            CoroutineProgress::Wait(Duration::from_nanos(1)),
            CoroutineProgress::Done,
        ]);
        let announced = Arc::new(Announced::default());
        let registered = register(Arc::clone(&announced) as Arc<dyn Announce>);
        run_to_end(&mut pieces);
        drop(registered);
        assert!(pieces.0.is_empty());
        assert_eq!(announced.0.load(Ordering::Relaxed), 1, "the wait is announced, the yield is not");
    }
}
