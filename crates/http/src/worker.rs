//! What one loop's connections share: the composer, scratch buffers, counters, and the service's own state.
//!
//! All of it lives on the loop's thread. The cells are never borrowed across a call into the service, except `local`,
//! which the service itself is given and through which it cannot come back here.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use reactor::Loop;

use crate::access_log::Entry;
use crate::composer::Composer;
use crate::crowd::Crowd;
use crate::latency::{Measure, Series};
use crate::metrics::Metrics;
use crate::plain::Seen;
use crate::reader::Gathering;
use crate::settings::Settings;
use crate::status::Status;

/// Spare buffers kept of each kind; more are given back to the allocator.
const SPARES_MAX: usize = 64;
/// A buffer over this size is not kept.
const SPARE_BYTES_MAX: usize = 8 << 10;

/// The part that does not know the service.
pub(crate) struct Worker {
    pub(crate) lp: Loop,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) composer: RefCell<Composer>,
    /// Lines of header fields that the service adds to the reply in hand.
    pub(crate) fields: RefCell<Vec<u8>>,
    /// The series of the request in hand.
    pub(crate) series: Cell<Series>,
    /// What it remembers of plain heads.
    pub(crate) seen: RefCell<Seen>,
    /// The loop's connections.
    pub(crate) crowd: RefCell<Crowd>,
    buffers: RefCell<Vec<Vec<u8>>>,
    #[expect(clippy::vec_box, reason = "a connection holds a pointer; unboxing would move the whole at each change")]
    gatherings: RefCell<Vec<Box<Gathering>>>,
}

impl Worker {
    pub(crate) fn new(lp: Loop, settings: Arc<Settings>, metrics: Arc<Metrics>) -> Self {
        Worker {
            lp,
            metrics,
            composer: RefCell::new(Composer::new(settings.date)),
            settings,
            fields: RefCell::default(),
            series: Cell::default(),
            seen: RefCell::default(),
            crowd: RefCell::default(),
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

    /// Begins to measure a request: it has waited since the loop's turn began.
    #[inline]
    pub(crate) fn measure(&self, series: Series) -> Measure {
        Measure { began_ns: self.lp.now_ns(), series }
    }

    /// Counts a reply, and writes its line of the access log.
    #[inline]
    pub(crate) fn replied(&self, status: Status, bytes: usize, measure: Measure, log: Option<Box<Entry>>) {
        let took_ns = self.lp.precise_now_ns().saturating_sub(measure.began_ns);
        self.metrics.count_reply(status.0);
        self.metrics.latencies.count(measure.series, status.0, took_ns);
        if let Some(entry) = log
            && let Some(access_log) = &self.settings.access_log
        {
            access_log.write(&entry, status, bytes);
        }
    }
}
