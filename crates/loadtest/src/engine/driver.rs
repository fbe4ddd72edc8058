//! Drives a loop's generator apart from its connections: due moments, new connections, timeouts, the end.

use super::client::Client;
use super::generator::{Generator, Pace, SlotNo};
use super::plan::Plan;
use super::report::{Done, Report};
use super::saturation::Saturation;
use super::slice::histogram;
use crate::profile::{Moments, Profile};
use reactor::{ConnectionId, LoopContext, LoopState, Outgoing};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Interval between checks for timeouts, and thus their largest delay.
const SWEEP_NS_MAX: u64 = 100_000_000;
const SWEEP_NS_MIN: u64 = 10_000_000;
/// Pause before a source that is behind is asked again.
const STARVED_PAUSE_NS: u64 = 50_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Signals between the loops and the thread that started them.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Number of loops whose connections are open.
    pub(super) ready: AtomicUsize,
    /// The first planned moment, on the loops' clock; 0: not known yet.
    pub(super) start_ns: AtomicU64,
    /// Whether the run must end.
    pub(super) stop: AtomicBool,
}

/// The load, in the form that a loop needs at its start.
#[derive(Clone, Debug)]
pub(super) enum Load {
    Open { profile: Arc<Profile>, loops: u64 },
    Closed { duration_ns: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Connections are being made.
    Opening {
        is_ready: bool,
    },
    /// The first moment is known.
    Starting {
        start_ns: u64,
    },
    Running,
    Done,
}

/// See the module.
pub(super) struct Driver {
    generator: Rc<RefCell<Generator>>,
    signals: Arc<Signals>,
    load: Load,
    to: Outgoing,
    loop_index: usize,
    stage: Stage,
    sweep_ns: u64,
    next_sweep_ns: u64,
    next_beat_ns: u64,
    saturation: Saturation,
    /// Emptied at each sweep; kept to reuse its storage.
    overdue: Vec<ConnectionId>,
}

impl Driver {
    pub(super) fn new(
        generator: Generator,
        signals: Arc<Signals>,
        load: Load,
        to: Outgoing,
        (loop_index, timeout_ns): (usize, u64),
    ) -> Self {
        Self {
            generator: Rc::new(RefCell::new(generator)),
            signals,
            load,
            to,
            loop_index,
            stage: Stage::Opening { is_ready: false },
            sweep_ns: (timeout_ns / 20).clamp(SWEEP_NS_MIN, SWEEP_NS_MAX),
            next_sweep_ns: 0,
            next_beat_ns: 0,
            saturation: Saturation::default(),
            overdue: Vec::new(),
        }
    }

    fn connect(&mut self, at: &mut LoopContext<'_>) {
        let mut generator = self.generator.borrow_mut();
        loop {
            // The clock is read only if a connection is begun: this runs in each tick.
            let Some(slot) = generator.begin_connection(at.lp().now_ns()) else { return };
            let client = Client::new(Rc::clone(&self.generator), slot, generator.gathers());
            match at.connect(self.to.clone(), Box::new(client)) {
                Ok(id) => generator.name_connection(slot, id),
                Err(failure) => generator.connection_ended(slot, Some(failure.to_string())),
            }
        }
    }

    /// Moves on to the next stage if possible. `true`: the load runs.
    fn advance(&mut self, at: &mut LoopContext<'_>) -> bool {
        if let Stage::Opening { is_ready } = self.stage {
            if !is_ready && self.generator.borrow().has_opened() {
                self.stage = Stage::Opening { is_ready: true };
                self.signals.ready.fetch_add(1, Ordering::AcqRel);
            }
            let start_ns = self.signals.start_ns.load(Ordering::Acquire);
            if start_ns != 0 {
                self.stage = Stage::Starting { start_ns };
                at.set_timer(Some(start_ns));
            }
        }
        self.stage == Stage::Running
    }

    /// The first planned moment has come.
    fn begin(&mut self, start_ns: u64, at: &mut LoopContext<'_>) {
        let mut generator = self.generator.borrow_mut();
        generator.ledger.begin(start_ns);
        let pace = match &self.load {
            Load::Open { profile, loops } => {
                let moments = Moments::new(Arc::clone(profile), self.loop_index as u64, *loops);
                Pace::Open(Plan::new(moments, start_ns))
            }
            Load::Closed { duration_ns } => Pace::Closed { end_ns: start_ns + duration_ns },
        };
        generator.begin(pace);
        self.stage = Stage::Running;
        (self.next_sweep_ns, self.next_beat_ns) = (start_ns + self.sweep_ns, start_ns + SECOND_NS);
        self.saturation.begin(start_ns);
        if matches!(self.load, Load::Closed { .. }) {
            self.refill(&mut generator, at);
        }
    }

    /// Lets all connections of a closed load send that can: at the start, and after the source was behind.
    fn refill(&self, generator: &mut Generator, at: &mut LoopContext<'_>) {
        let ready: Vec<(SlotNo, ConnectionId)> = generator.ready().collect();
        for (slot, id) in ready {
            let now_ns = at.lp().precise_now_ns();
            if let Some(connection) = at.connection(id) {
                generator.fill(slot, now_ns, now_ns, connection.into_output());
            }
        }
    }

    /// Sends the requests that are due, and does the periodic work that is due.
    fn run(&mut self, at: &mut LoopContext<'_>) {
        let now_ns = at.lp().precise_now_ns();
        self.send_due(now_ns, at);
        self.connect(at);
        if now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns + self.sweep_ns;
            self.sweep(now_ns, at);
        }
        if now_ns >= self.next_beat_ns {
            self.next_beat_ns += SECOND_NS;
            self.saturation.beat(now_ns);
            let mut generator = self.generator.borrow_mut();
            let in_flight = generator.in_flight();
            generator.ledger.beat(in_flight);
        }
        self.set_timer(now_ns, at);
    }

    fn send_due(&mut self, now_ns: u64, at: &mut LoopContext<'_>) {
        let mut generator = self.generator.borrow_mut();
        generator.come_due(now_ns);
        if generator.is_starving() {
            generator.ask_again();
            if matches!(self.load, Load::Closed { .. }) {
                self.refill(&mut generator, at);
            }
        }
        while let Some((slot, id)) = generator.next_rested(now_ns) {
            let now_ns = at.lp().precise_now_ns();
            if let Some(connection) = at.connection(id) {
                generator.fill(slot, now_ns, now_ns, connection.into_output());
            }
        }
        while let Some((slot, id)) = generator.next_free() {
            let now_ns = at.lp().precise_now_ns();
            // A connection that is not found is about to end; the generator is informed in this tick.
            if let Some(connection) = at.connection(id) {
                generator.send_due(slot, now_ns, connection.into_output());
            }
        }
    }

    fn sweep(&mut self, now_ns: u64, at: &mut LoopContext<'_>) {
        self.overdue.clear();
        let mut generator = self.generator.borrow_mut();
        generator.overdue(now_ns, &mut self.overdue);
        if let Some(observing) = &mut generator.observing {
            observing.flush();
        }
        for id in &self.overdue {
            if let Some(mut connection) = at.connection(*id) {
                connection.abort();
            }
        }
    }

    fn set_timer(&self, now_ns: u64, at: &mut LoopContext<'_>) {
        let generator = self.generator.borrow();
        let due_ns = generator.next_due_ns().unwrap_or(u64::MAX);
        let again_ns = if generator.is_starving() { now_ns + STARVED_PAUSE_NS } else { u64::MAX };
        at.set_timer(Some(due_ns.min(again_ns).min(self.next_sweep_ns).min(self.next_beat_ns)));
    }

    /// Ends the loop's part: reports to the collector, once that has taken all slices.
    fn finish(&mut self) {
        let mut generator = self.generator.borrow_mut();
        if !generator.ledger.hand_over(true) {
            return;
        }
        let ledger = &mut generator.ledger;
        let sending_error = std::mem::replace(&mut ledger.sending_error, histogram());
        let last_reply_ns = ledger.last_reply_ns();
        let (seconds, saturated_seconds) = self.saturation.seconds();
        let by_tag = ledger.by_tag.take();
        let (unchecked, unlogged) = generator.observing.take().map_or((0, 0), |mut observing| {
            observing.flush();
            (observing.unchecked, observing.unlogged)
        });
        let (unasked, passes) = (generator.unasked, generator.take_passes());
        let done = Done {
            sending_error,
            last_reply_ns,
            seconds,
            saturated_seconds,
            unchecked,
            unlogged,
            by_tag,
            unasked,
            passes,
        };
        // The collector takes reports until each loop is done, so a full queue soon has room.
        generator.ledger.report_done(Report::Done { loop_index: self.loop_index, done: Box::new(done) });
        self.stage = Stage::Done;
    }
}

impl LoopState for Driver {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        self.connect(at);
    }

    fn timer(&mut self, at: &mut LoopContext<'_>) {
        if let Stage::Starting { start_ns } = self.stage {
            self.begin(start_ns, at);
        }
        if self.stage == Stage::Running {
            self.run(at);
        }
    }

    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        if !self.advance(at) {
            if matches!(self.stage, Stage::Opening { .. }) {
                self.connect(at);
            }
            return;
        }
        if self.signals.stop.load(Ordering::Relaxed) {
            self.generator.borrow_mut().end();
        }
        self.connect(at);
        let is_over = {
            let mut generator = self.generator.borrow_mut();
            generator.ledger.hand_over(false);
            generator.is_over()
        };
        if is_over {
            self.finish();
        }
    }
}
