//! State shared by one loop's connections: the composer, scratch buffers and counters.
//!
//! It lives on the loop's thread. Of its cells only `seen` is borrowed across a call of the service (`takes_pieces`, `foresee`).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use reactor::Loop;

use crate::access_log::Entry;
use crate::connection::crowd::Crowd;
use crate::method::Method;
use crate::metrics::HttpMetrics;
use crate::metrics::latency::{Measure, Series};
use crate::metrics::slow::SlowRequest;
use crate::metrics::uncounted::{Run, Uncounted};
use crate::parsing::plain::SeenHead;
use crate::parsing::reader::Gathering;
use crate::presence::Watched;
use crate::reply::composer::Composer;
use crate::reply::part::Splices;
use crate::settings::HttpSettings;
use crate::status::Status;

/// Spare buffers kept of each kind; others are freed.
const SPARES_MAX: usize = 64;
/// A buffer over this size is not kept.
const SPARE_BYTES_MAX: usize = 8 << 10;

/// The part that is independent of the service.
pub(crate) struct Worker {
    pub(crate) lp: Loop,
    pub(crate) settings: Arc<HttpSettings>,
    /// Latency from which on a request is slow.
    slow_ns: u64,
    pub(crate) metrics: Arc<HttpMetrics>,
    pub(crate) composer: RefCell<Composer>,
    /// Lines of header fields that the service adds to the current reply.
    pub(crate) fields: RefCell<Vec<u8>>,
    /// Pieces of the current reply that are not copied.
    pub(crate) splices: RefCell<Splices>,
    /// The series of the current request.
    pub(crate) series: Cell<Series>,
    /// The cache of plain heads.
    pub(crate) seen: RefCell<SeenHead>,
    /// The loop's connections.
    pub(crate) crowd: RefCell<Crowd>,
    /// Replies of the current turn whose latency is not counted yet.
    uncounted: RefCell<Uncounted>,
    buffers: RefCell<Vec<Vec<u8>>>,
    #[expect(clippy::vec_box, reason = "a connection holds a pointer; unboxing would move the whole at each change")]
    gatherings: RefCell<Vec<Box<Gathering>>>,
}

impl Worker {
    pub(crate) fn new(lp: Loop, settings: Arc<HttpSettings>, metrics: Arc<HttpMetrics>) -> Self {
        Worker {
            lp,
            metrics,
            slow_ns: settings.slow_log.as_ref().map_or(u64::MAX, |log| nanoseconds(log.after())),
            composer: RefCell::new(Composer::new(settings.date)),
            settings,
            fields: RefCell::default(),
            splices: RefCell::default(),
            series: Cell::default(),
            seen: RefCell::default(),
            crowd: RefCell::default(),
            uncounted: RefCell::default(),
            buffers: RefCell::default(),
            gatherings: RefCell::default(),
        }
    }

    /// Begins a connection's turn: the date may have changed.
    #[inline]
    pub(crate) fn tick(&self) {
        self.composer.borrow_mut().tick(self.lp.now_ns());
    }

    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < SPARES_MAX && (1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    pub(crate) fn take_gathering(&self) -> Box<Gathering> {
        self.gatherings.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_gathering(&self, gathering: Box<Gathering>) {
        let mut gatherings = self.gatherings.borrow_mut();
        if gatherings.len() < SPARES_MAX && gathering.is_worth_keeping() {
            gatherings.push(gathering);
        }
    }

    /// Begins to measure a request: it has waited since the loop's tick began.
    #[inline]
    pub(crate) fn measure(&self, method: Option<Method>, series: Series) -> Measure {
        Measure { began_ns: self.lp.now_ns(), method, series }
    }

    /// Counts one reply, and reports it if it is slow.
    pub(crate) fn count(&self, status: Status, measure: Measure, watched: Option<&Watched>) {
        self.count_run(Run { status, measure, replies: 1 }, self.lp.precise_now_ns(), watched);
    }

    /// Counts a reply that leaves with this turn, at the turn's end.
    #[inline]
    pub(crate) fn count_with_turn(&self, status: Status, measure: Measure) {
        let has_room = self.uncounted.borrow_mut().add(status, measure);
        if !has_room {
            self.count_turn();
            self.uncounted.borrow_mut().add(status, measure);
        }
    }

    /// The turn ends: counts its replies.
    #[inline]
    pub(crate) fn count_turn(&self) {
        let mut uncounted = self.uncounted.borrow_mut();
        if !uncounted.is_empty() {
            let clock_ns = self.lp.precise_now_ns();
            uncounted.drain(|run| self.count_run(run, clock_ns, None));
        }
    }

    fn count_run(&self, run: Run, clock_ns: u64, watched: Option<&Watched>) {
        let Run { status, measure, replies } = run;
        let took_ns = clock_ns.saturating_sub(measure.began_ns);
        self.metrics.count_replies(status.0, replies);
        self.metrics.latencies.count(measure.series, status.0, took_ns, replies);
        if took_ns >= self.slow_ns {
            (0..replies).for_each(|_| self.report_slow(status, measure, took_ns, watched));
        }
    }

    #[cold]
    fn report_slow(&self, status: Status, measure: Measure, took_ns: u64, watched: Option<&Watched>) {
        let Measure { method, series, .. } = measure;
        let (took, work) = (Duration::from_nanos(took_ns), watched.and_then(Watched::work));
        if let Some(log) = &self.settings.slow_log {
            log.report(&SlowRequest { method, series, status, took, work });
        }
    }

    /// Writes the access log's line of a reply.
    #[inline]
    pub(crate) fn log(&self, status: Status, bytes: usize, log: Option<Box<Entry>>) {
        if let Some(entry) = log
            && let Some(access_log) = &self.settings.access_log
        {
            access_log.write(&entry, status, bytes);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
