//! One run: all requests of a plan through one model, from the first submission to the last reply.

use crate::control::{Control, Differs};
use crate::statistics::LatencyPercentiles;
use crate::trace::{Moments, Timeline, Trace};
use crate::usage::{self, Usage};
use crate::workload::{SimulatedReply, Workload};
use executor::{Coroutine, CoroutineProgress, Drained, ExecutorStartError, Model};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit of a run.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// The requests of a run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The steps of the requests.
    pub workload: Arc<Workload>,
    /// Ids 0 to `requests` - 1.
    pub requests: u32,
    /// Largest number of tasks that wait in a model's queue; in event loops, of all unfinished
    /// tasks.
    pub queue_max: usize,
}

/// Results of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunResults {
    /// From the first submission to the last reply, in seconds.
    pub wall: f64,
    /// Requests per second.
    pub rate: f64,
    /// Processor time in user space, in seconds.
    pub user: f64,
    /// Processor time in the kernel, in seconds.
    pub system: f64,
    /// Number of times that a thread gave up its core because it had to wait.
    pub voluntary_switches: u64,
    /// Number of times that the kernel took a core from a thread.
    pub involuntary_switches: u64,
    /// Largest number of threads at the same time, including the submitter.
    pub threads_peak: u64,
    /// Largest resident memory above that at the beginning, in bytes, if the kernel reports it.
    pub memory_peak: Option<u64>,
    /// From submission to reply.
    pub latency: LatencyPercentiles,
    /// The control values, which have been checked.
    pub control: Control,
    /// Running and waiting tasks over time.
    pub timeline: Timeline,
}

/// Why a run has no results.
#[derive(Debug)]
pub enum RunError {
    /// The model did not start.
    Start(ExecutorStartError),
    /// Requests were not finished after an hour.
    Unfinished {
        /// Requests that had not begun, or were suspended.
        queued: usize,
        /// Requests that were running.
        running: usize,
    },
    /// Requests were lost, duplicated or cut off.
    Differs(Box<Differs>),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Unfinished { queued, running } => {
                write!(f, "after {} s {queued} requests wait and {running} run", RUN_MAX.as_secs())
            }
            Self::Differs(differs) => differs.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

/// The parts that all requests of a run share. In one [`Arc`], because the submitter and all threads of the model count its handles,
/// and each such count moves a cache line between cores.
struct Shared {
    workload: Arc<Workload>,
    trace: Trace,
}

/// A request in an executor.
struct Request {
    id: u32,
    place: usize,
    reply: SimulatedReply,
    moments: Moments,
    /// Begin of the current wait; none before the first resumption.
    suspended: Option<u64>,
    shared: Arc<Shared>,
    waits: Duration,
    yields: u32,
}

impl Request {
    fn new(id: u32, shared: &Arc<Shared>) -> Self {
        Self {
            id,
            place: 0,
            reply: SimulatedReply::default(),
            moments: Moments { submitted: shared.trace.now(), ..Moments::default() },
            suspended: None,
            shared: Arc::clone(shared),
            waits: Duration::ZERO,
            yields: 0,
        }
    }

    fn note_resumption(&mut self) {
        let now = self.shared.trace.now();
        let Some(since) = self.suspended.take() else {
            self.moments.began = now;
            return;
        };
        let longest = self.moments.wait_ended - self.moments.wait_began;
        if now - since >= longest {
            (self.moments.wait_began, self.moments.wait_ended) = (since, now);
        }
    }

    fn end(&mut self) {
        self.moments.ended = self.shared.trace.now();
        self.shared.trace.end(self.id, self.moments, self.reply.result, (self.waits, self.yields));
        self.reply = SimulatedReply::default();
    }
}

impl Coroutine for Request {
    fn resume(&mut self) -> CoroutineProgress {
        self.note_resumption();
        let progress = self.shared.workload.advance(self.id, &mut self.place, &mut self.reply);
        match progress {
            CoroutineProgress::Done => self.end(),
            CoroutineProgress::Yield => {
                self.yields += 1;
                self.suspended = Some(self.shared.trace.now());
            }
            CoroutineProgress::Wait(_) => {
                self.waits += self.shared.workload.asked_at(self.id, self.place);
                self.suspended = Some(self.shared.trace.now());
            }
        }
        progress
    }
}

/// Runs the plan through a model and checks the control values.
pub fn run(model: Model, plan: &RunPlan) -> Result<RunResults, RunError> {
    let expected = Control::of(&plan.workload, plan.requests);
    let executor = model.start("lab", plan.queue_max).map_err(RunError::Start)?;
    let is_peak_known = usage::reset_peak();
    let (resident, before) = (usage::resident_bytes(), Usage::now());
    let shared = Arc::new(Shared { workload: Arc::clone(&plan.workload), trace: Trace::new(plan.requests) });
    let trace = &shared.trace;
    let began = Instant::now();
    for id in 0..plan.requests {
        // Refused only by an executor that drains, and this one is drained below.
        if executor.submit(Box::new(Request::new(id, &shared))).is_err() {
            break;
        }
    }
    let drained = executor.drain(began + RUN_MAX);
    let (wall, used) = (began.elapsed(), Usage::now().since(before));
    let peak = usage::peak_bytes().filter(|_| is_peak_known).zip(resident);
    if let Drained::Left { queued, running } = drained {
        return Err(RunError::Unfinished { queued, running });
    }
    let control = trace.control().check(expected).map_err(|differs| RunError::Differs(Box::new(differs)))?;
    Ok(RunResults {
        wall: wall.as_secs_f64(),
        rate: f64::from(plan.requests) / wall.as_secs_f64(),
        user: used.user.as_secs_f64(),
        system: used.system.as_secs_f64(),
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        threads_peak: executor.metrics().threads_peak + 1,
        memory_peak: peak.map(|(peak, resident)| peak.saturating_sub(resident)),
        latency: LatencyPercentiles::of(&trace.latencies()),
        control,
        timeline: trace.timeline(wall),
    })
}
