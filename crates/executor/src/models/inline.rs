//! Inline: the submitting thread runs the task. No queue, no thread, no parallelism.
//!
//! It has the smallest overhead of all, and is the model of a program that handles requests one
//! after the other.

use crate::admission::Admission;
use crate::back_pressure::Refused;
use crate::blocking::{Announce, register};
use crate::containment::run_contained;
use crate::coroutine::{BoxCoroutine, run_to_end};
use crate::executor::{Drained, Executor};
use crate::metrics::{Counters, Ended, ExecutorMetrics};
use std::sync::Arc;
use std::time::Instant;

/// Runs tasks on the submitting threads. No task is queued, so it is never full.
pub struct Inline {
    name: String,
    admission: Admission,
    counters: Arc<Counters>,
}

impl Inline {
    /// `name` is its name in the log.
    pub fn new(name: String) -> Self {
        // Its bound is the number of submitting threads.
        Self { name, admission: Admission::of_places(usize::MAX), counters: Arc::default() }
    }
}

impl Executor for Inline {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let mut task = self.admission.try_enter(task).inspect_err(|_| self.counters.count_refused())?;
        let began = Instant::now();
        self.counters.count_begun(began, began);
        let registered = register(Arc::clone(&self.counters) as Arc<dyn Announce>);
        let run = move || run_to_end(&mut *task);
        let is_whole = self.admission.mark(|| run_contained(&self.name, run));
        drop(registered);
        self.counters.count_ended(&Ended::now(began, !is_whole));
        self.admission.leave(1);
        Ok(())
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        self.try_submit(task)
    }

    fn drain(&self, deadline: Instant) -> Drained {
        self.admission.close();
        if self.admission.wait_empty_until(deadline) {
            return Drained::Finished;
        }
        Drained::Left { queued: 0, running: self.counters.begun() }
    }

    fn metrics(&self) -> ExecutorMetrics {
        self.counters.read_inside(self.admission.inside())
    }
}
