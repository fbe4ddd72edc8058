//! The engine: applies a planned load to a server, and records the outcome.
//!
//! Each thread runs one event loop of the reactor. A loop has its share of the connections and plans its share of the moments, so
//! that loops share nothing while they run.
//!
//! ```text
//!  source --reader thread--> feed ---> generator, driver, clients (on the loop) ---> slices ---> collector (the calling thread)
//!                                                   |                                              ^
//!                                                   +--- replies ---> observer's thread --- corrections
//! ```
//!
//! Invariants:
//!
//! - Each request of the open model has a planned moment from which its latency counts. Nothing that the server does delays the
//!   plan.
//! - A loop takes no lock and, in steady state, allocates nothing for a request. It waits for no other thread: if the collector
//!   or the observer is behind, slices are kept and replies go unchecked, which is counted.
//! - Memory is bounded, however long the run: slices by the timeout (a request ends within two timeouts of its moment), rows by
//!   [`INTERVALS_MAX`](crate::recording::INTERVALS_MAX), requests read ahead by batches.
//!
//! Code map: `plan` (moments), `generator` (decisions), `driver` and `client` (their execution on the loop), `feed` (requests),
//! `users` (of a scenario), `ended`, `ledger`, `slice` and `by_tag` (recording), `observing` (replies to compare), `request_log`, `collector`, `validity`, `progress`, `room`.

mod by_tag;
mod client;
mod collector;
mod driver;
mod ended;
mod feed;
mod generator;
mod ledger;
mod observing;
mod plan;
mod progress;
mod report;
mod request_log;
pub mod room;
mod saturation;
mod slice;
mod users;
mod validity;

use crate::live::RunProgress;
use crate::profile::Profile;
use crate::recording::{Latencies, PassCounts, Recording, Validity};
use crate::scenario::Scenario;
use crate::source::{Observer, RequestSource, SourceError, TagNames};
use crate::statuses::StatusSet;
use by_tag::ByTag;
use collector::{Collector, row_seconds};
use driver::{Driver, Load as LoopLoad, Signals};
use feed::{Failure, Feed, Spread};
use generator::{Generator, Terms};
use ledger::{Ledger, Rows};
use observing::{Found, Observing};
use progress::Pulses;
use reactor::{Outgoing, Reactor, RunningReactor, TlsClient};
use report::{REPORTS_MAX, Report};
use slice::{Slice, histogram};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use users::{Passes, Users};
use validity::Figures;

pub use request_log::RequestLog;

/// Time from the readiness of all loops to the first planned moment: each loop must learn the moment.
const START_LEAD_NS: u64 = 5_000_000;
/// Time slice of a loop of the open model. A loop whose requests are due interrupts a server on the same core at once; with the
/// system's slice it waits for up to 3 ms.
const OPEN_TIME_SLICE: Duration = Duration::from_micros(100);
/// The start waits for connections at most for the timeout plus this.
const OPENING_EXTRA: Duration = Duration::from_secs(1);
/// Interval at which the calling thread checks [`Stop`].
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The interval while connections are opened.
const LOOK_EVERY_OPENING: Duration = Duration::from_millis(1);
/// Largest number of slices on their way back to a loop.
const RETURNED_SLICES_MAX: usize = 4;

/// The model of the load.
#[derive(Clone, Debug)]
pub enum Load {
    /// Requests at planned moments, on as many connections as needed, up to `LoadSettings::connections`.
    Open {
        /// The moments.
        profile: Arc<Profile>,
        /// Number of connections that are made before the start.
        connections_at_start: u32,
    },
    /// Each connection sends its next request after a reply.
    Closed {
        /// Length of the load.
        duration: Duration,
    },
    /// A closed load: each connection stands for one user and sends the requests of the scenario one after the other.
    Users {
        /// Length of the load.
        duration: Duration,
        /// What each of them does.
        scenario: Arc<Scenario>,
    },
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct LoadSettings {
    /// The server, as the user wrote it.
    pub target: String,
    /// Its address.
    pub address: SocketAddr,
    /// The trusted certificates. `None`: HTTP without TLS.
    pub tls: Option<TlsClient>,
    /// The model of the load.
    pub load: Load,
    /// Number of connections: exact in the closed model, the largest in the open model.
    pub connections: u32,
    /// Largest number of requests in flight on a connection.
    pub pipeline: u32,
    /// Whether each request uses a new connection.
    pub new_connections: bool,
    /// Time after which a request without a reply is lost, and its connection closed.
    pub timeout: Duration,
    /// Number of loops.
    pub threads: usize,
    /// Statuses that are right for requests whose source names none.
    pub expected: StatusSet,
}

/// Callback for the progress of a run.
pub type Show = Box<dyn FnMut(&RunProgress)>;

/// Observers of a run.
#[derive(Default)]
pub struct Watchers {
    /// Examines each reply.
    pub observer: Option<Box<dyn Observer>>,
    /// Called once a second, on the calling thread.
    pub progress: Option<Show>,
    /// Writes each request that has ended.
    pub log: Option<RequestLog>,
}

/// Ends a run early, from any thread. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Plans no more requests; those in flight are awaited.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// Its recording.
    pub recording: Recording,
    /// Why the source failed, if it did: the recording covers the requests before.
    pub failure: Option<SourceError>,
    /// Requests that are not in the log, because it could not keep up.
    pub unlogged: u64,
    /// Why the log is incomplete, if writing failed.
    pub log_failure: Option<String>,
    /// The first values that users of a scenario did not find in replies.
    pub missing_values: Vec<String>,
}

/// Why a run without requests is not valid.
const NO_REQUESTS: &str = "the run had no requests, so nothing was measured";

/// Runs a load to its end, or to [`Stop`]. Blocks. Fails if threads, descriptors or a loop do.
pub fn run(
    settings: &LoadSettings,
    source: Box<dyn RequestSource>,
    watchers: Watchers,
    stop: &Stop,
) -> io::Result<Finished> {
    let Watchers { observer, progress, log } = watchers;
    let started = start(settings, source, (observer, log), progress.is_some())?;
    started.collect(settings, progress, stop)
}

/// The parts from which a loop is set up.
struct Parts {
    terms: Terms,
    feed: Feed,
    users: Option<Users>,
    ledger: Ledger,
    observing: Option<Observing>,
}

/// The threads of a run.
struct Started {
    running: RunningReactor,
    signals: Arc<Signals>,
    reports: Receiver<Report>,
    returns: Vec<SyncSender<Slice>>,
    failure: Failure,
    tags: Option<Arc<TagNames>>,
    observer: Option<JoinHandle<Found>>,
    broken: Arc<AtomicBool>,
}

fn start(
    settings: &LoadSettings,
    source: Box<dyn RequestSource>,
    (observer, mut log): (Option<Box<dyn Observer>>, Option<RequestLog>),
    has_pulse: bool,
) -> io::Result<Started> {
    let loops = settings.loops();
    let spread = if settings.profile().is_some() { Spread::InTurn } else { Spread::WhereRoomIs };
    let tags = source.tags();
    let (feeds, failure) = feed::start(source, loops, spread)?;
    if let Some(log) = &mut log {
        log.name_tags(tags.clone());
    }
    let (observing, observer) = match observing::start(observer, log, loops)? {
        Some((ends, thread)) => (ends.into_iter().map(Some).collect(), Some(thread)),
        None => ((0..loops).map(|_| None).collect::<Vec<_>>(), None),
    };
    let rows = Rows {
        row_ns: u64::from(row_seconds(settings.seconds())) * 1_000_000_000,
        has_pulse,
        has_tags: tags.is_some(),
    };
    let (sender, reports) = sync_channel(REPORTS_MAX);
    let (mut parts, mut returns) = (Vec::new(), Vec::new());
    for (index, (feed, observing)) in feeds.into_iter().zip(observing).enumerate() {
        let (give_back, returned) = sync_channel(RETURNED_SLICES_MAX);
        let ledger = Ledger::new(index, rows, sender.clone(), returned);
        let users = match &settings.load {
            Load::Users { scenario, .. } => Some(Users::new(Arc::clone(scenario), index, loops)),
            Load::Open { .. } | Load::Closed { .. } => None,
        };
        parts.push(Mutex::new(Some(Parts { terms: settings.terms(index), feed, users, ledger, observing })));
        returns.push(give_back);
    }
    let signals = Arc::new(Signals::default());
    let running = start_loops(settings, parts, &signals)?;
    let broken = Arc::new(AtomicBool::new(false));
    let by_loop = Arc::clone(&broken);
    running.on_broken(move || by_loop.store(true, Ordering::Relaxed));
    Ok(Started { running, signals, reports, returns, failure, tags, observer, broken })
}

fn start_loops(
    settings: &LoadSettings,
    parts: Vec<Mutex<Option<Parts>>>,
    signals: &Arc<Signals>,
) -> io::Result<RunningReactor> {
    let mut reactor = Reactor::new(reactor::ReactorSettings {
        loops: parts.len(),
        outgoing_max: settings.connections as usize,
        connect_max: settings.timeout,
        time_slice: matches!(settings.load, Load::Open { .. }).then_some(OPEN_TIME_SLICE),
        ..reactor::ReactorSettings::default()
    })?;
    let (load, signals, loops) = (settings.load.clone(), Arc::clone(signals), parts.len() as u64);
    let to = Outgoing { tls: settings.tls.clone(), ..Outgoing::to(settings.address) };
    reactor.set_up(move |setup| {
        let lp = setup.lp().clone();
        let taken = parts[lp.index()].lock().unwrap_or_else(PoisonError::into_inner).take();
        let Parts { terms, feed, users, ledger, observing } = taken.expect("each loop is set up once");
        let load = match &load {
            Load::Open { profile, .. } => LoopLoad::Open { profile: Arc::clone(profile), loops },
            Load::Closed { duration } | Load::Users { duration, .. } => {
                LoopLoad::Closed { duration_ns: nanoseconds(*duration) }
            }
        };
        let (loop_index, timeout_ns) = (lp.index(), terms.timeout_ns);
        let generator = Generator::new(terms, lp, feed, users, ledger, observing);
        let driver = Driver::new(generator, Arc::clone(&signals), load, to.clone(), (loop_index, timeout_ns));
        setup.add_state(Box::new(driver));
    });
    reactor.start()
}

impl Started {
    /// Waits until the connections are open, as far as possible, and sets the first moment. Returns it as Unix time and on the
    /// loops' clock.
    fn begin(&self, settings: &LoadSettings, stop: &Stop) -> (SystemTime, u64) {
        let begun = Instant::now();
        while self.signals.ready.load(Ordering::Acquire) < self.returns.len()
            && begun.elapsed() < settings.timeout + OPENING_EXTRA
            && !stop.is_asked()
        {
            std::thread::sleep(LOOK_EVERY_OPENING);
        }
        let loops = self.running.loops();
        let start_ns = loops[0].precise_now_ns() + START_LEAD_NS;
        self.signals.start_ns.store(start_ns, Ordering::Release);
        // Each loop checks the signal when it wakes.
        loops.iter().for_each(|lp| lp.run(Box::new(|_| {})));
        (SystemTime::now() + Duration::from_nanos(START_LEAD_NS), start_ns)
    }

    fn collect(self, settings: &LoadSettings, mut progress: Option<Show>, stop: &Stop) -> io::Result<Finished> {
        let loops = self.returns.len();
        let (started, start_ns) = self.begin(settings, stop);
        let mut collector = Collector::new(loops);
        let mut pulses = Pulses::new(loops, settings.profile().cloned(), settings.seconds());
        let mut end = RunEnd::default();
        while end.loops_done < loops && !self.broken.load(Ordering::Relaxed) {
            if stop.is_asked() {
                self.signals.stop.store(true, Ordering::Relaxed);
            }
            match self.reports.recv_timeout(LOOK_EVERY) {
                Ok(Report::Slice { loop_index, slice }) => {
                    collector.add(loop_index, &slice);
                    // It is dropped if the loop has enough.
                    let _ = self.returns[loop_index].try_send(*slice);
                }
                Ok(Report::Pulse(pulse)) => {
                    if let (Some(now), Some(show)) = (pulses.add(&pulse), &mut progress) {
                        show(&now);
                    }
                }
                Ok(Report::Done { loop_index, done }) => {
                    collector.loop_done(loop_index);
                    end.add(&done);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.running.drain(Duration::ZERO);
        self.running.join()?;
        let found = self.observer.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let unlogged = end.unlogged;
        let missing_values = end.passes.as_mut().map(|passes| std::mem::take(&mut passes.faults)).unwrap_or_default();
        let tags = self.tags.unwrap_or_default();
        let recording = recording(settings, collector, &found, &tags, end, (started, start_ns));
        Ok(Finished { recording, failure, unlogged, log_failure: found.log_failure, missing_values })
    }
}

/// Reports of the loops at their ends.
struct RunEnd {
    loops_done: usize,
    figures: Figures,
    last_reply_ns: u64,
    by_tag: ByTag,
    passes: Option<Passes>,
    unchecked: u64,
    unlogged: u64,
    unasked: u64,
}

impl Default for RunEnd {
    fn default() -> Self {
        let figures = Figures { sending_error: histogram(), latency_p50_ns: 0, seconds: 0, saturated_seconds: 0 };
        let by_tag = ByTag::default();
        Self { loops_done: 0, figures, last_reply_ns: 0, by_tag, passes: None, unchecked: 0, unlogged: 0, unasked: 0 }
    }
}

impl RunEnd {
    fn add(&mut self, done: &report::Done) {
        self.loops_done += 1;
        self.figures.add(done);
        self.last_reply_ns = self.last_reply_ns.max(done.last_reply_ns);
        if let Some(by_tag) = &done.by_tag {
            self.by_tag.add(by_tag);
        }
        if let Some(passes) = &done.passes {
            self.passes.get_or_insert_default().add(passes);
        }
        self.unchecked += done.unchecked;
        self.unlogged += done.unlogged;
        self.unasked += done.unasked;
    }
}

fn recording(
    settings: &LoadSettings,
    collector: Collector,
    found: &Found,
    tags: &TagNames,
    mut end: RunEnd,
    (started, start_ns): (SystemTime, u64),
) -> Recording {
    let collected = collector.finish(&found.corrections);
    end.figures.latency_p50_ns = collected.latency_p50_ns();
    let seconds = end.last_reply_ns.saturating_sub(start_ns) as f64 / 1e9;
    let row_seconds = row_seconds(settings.seconds());
    let (outcome, intervals) = (collected.outcome(settings.timeout), collected.intervals(row_seconds));
    let validity = match settings.load {
        _ if outcome.planned == 0 => Validity::Invalid(NO_REQUESTS.to_owned()),
        Load::Open { .. } => end.figures.judge(settings.loops()),
        Load::Closed { .. } | Load::Users { .. } => Validity::Valid,
    };
    let tags = end.by_tag.results(tags, &found.by_tag, outcome.planned);
    let phases = collected.phases(&settings.phases(seconds), settings.timeout);
    let (latency, service) = collected.into_histograms();
    Recording {
        target: settings.target.clone(),
        load: settings.load_text(),
        started: started.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()),
        seconds,
        outcome,
        latencies: Latencies { latency, service, sending_error: end.figures.sending_error },
        intervals,
        interval_seconds: row_seconds,
        phases,
        tags,
        passes: end.passes.map(|passes| PassCounts { complete: passes.complete, given_up: passes.given_up }),
        server: Vec::new(),
        unchecked: end.unchecked,
        unasked: end.unasked,
        validity,
        is_rated: false,
    }
}

impl LoadSettings {
    fn profile(&self) -> Option<&Arc<Profile>> {
        match &self.load {
            Load::Open { profile, .. } => Some(profile),
            Load::Closed { .. } | Load::Users { .. } => None,
        }
    }

    /// A loop without a connection would have no work.
    fn loops(&self) -> usize {
        self.threads.clamp(1, self.connections.max(1) as usize)
    }

    /// Planned length in seconds.
    fn seconds(&self) -> f64 {
        match &self.load {
            Load::Open { profile, .. } => profile.seconds(),
            Load::Closed { duration } | Load::Users { duration, .. } => duration.as_secs_f64(),
        }
    }

    fn terms(&self, loop_index: usize) -> Terms {
        let loops = self.loops();
        let share = |all: u32| all as usize / loops + usize::from(loop_index < all as usize % loops);
        let connections_max = share(self.connections.max(1));
        let connections_at_start = match &self.load {
            _ if self.new_connections => 0,
            Load::Open { connections_at_start, .. } => share(*connections_at_start).min(connections_max),
            Load::Closed { .. } | Load::Users { .. } => connections_max,
        };
        Terms {
            timeout_ns: nanoseconds(self.timeout),
            pipeline: self.pipeline.max(1) as usize,
            connects_anew: self.new_connections,
            connections_max,
            connections_at_start,
            expected: self.expected,
        }
    }

    /// The load as text.
    pub(crate) fn load_text(&self) -> String {
        let duration = match &self.load {
            Load::Open { profile, .. } => return profile.to_string(),
            Load::Users { duration, .. } => return format!("{} users, {duration:?}", self.connections),
            Load::Closed { duration } => duration,
        };
        let pipelined = if self.pipeline > 1 { format!(", {} pipelined", self.pipeline) } else { String::new() };
        let anew = if self.new_connections { ", a new one for each request" } else { "" };
        format!("{} connections{anew}{pipelined}, {duration:?}", self.connections)
    }

    /// Name, beginning and end of each part, as far as the run of `seconds` got.
    fn phases(&self, seconds: f64) -> Vec<(String, f64, f64)> {
        match &self.load {
            Load::Open { profile, .. } => {
                profile.parts().iter().map(|part| (part.name.clone(), part.from, part.to)).collect()
            }
            Load::Closed { .. } | Load::Users { .. } => vec![(self.load_text(), 0.0, seconds)],
        }
    }
}

/// Saturates at 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
