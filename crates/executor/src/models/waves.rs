//! Waves: a number of threads start, one for each task, and all of them must end before the next wave
//! starts.
//!
//! The slowest task of a wave delays the next one: a wave takes as long as its longest wait.

use super::thread_per_task::ThreadPerTask;
use crate::back_pressure::Refused;
use crate::coroutine::BoxCoroutine;
use crate::executor::{Drained, Executor};
use crate::metrics::ExecutorMetrics;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// Runs tasks in waves of threads.
pub struct Waves {
    size: usize,
    threads: ThreadPerTask,
    /// Number of tasks in the current wave. Locked by a submitter that waits for the wave's end.
    started: Mutex<usize>,
}

impl Waves {
    /// Waves of `size` threads, at least 1.
    pub fn new(name: String, size: usize) -> Self {
        let size = size.max(1);
        Self { size, threads: ThreadPerTask::new(name, size), started: Mutex::new(0) }
    }

    /// A place for one more task in the current wave. None: a full wave is running.
    fn try_place(&self) -> Option<MutexGuard<'_, usize>> {
        let mut started = match self.started.try_lock() {
            Ok(started) => started,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if *started == self.size {
            if self.threads.inside() > 0 {
                return None;
            }
            *started = 0;
        }
        Some(started)
    }
}

impl Executor for Waves {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let Some(mut started) = self.try_place() else { return Err(self.threads.refuse(task)) };
        self.threads.try_submit(task)?;
        *started += 1;
        Ok(())
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if *started == self.size {
            self.threads.wait_empty();
            *started = 0;
        }
        self.threads.submit(task)?;
        *started += 1;
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Drained {
        self.threads.drain(deadline)
    }

    fn metrics(&self) -> ExecutorMetrics {
        self.threads.metrics()
    }
}
