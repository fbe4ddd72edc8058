//! Reports of the loops to the collector.

use super::by_tag::ByTag;
use super::slice::Slice;
use super::users::Passes;
use hdrhistogram::Histogram;

/// Largest number of reports that wait for the collector. Loops never wait for it: see
/// [`super::ledger::Ledger::hand_over`].
pub(super) const REPORTS_MAX: usize = 64;

/// One report of a loop.
#[derive(Debug)]
pub(super) enum Report {
    /// A slice whose requests have all ended.
    Slice { loop_index: usize, slice: Box<Slice> },
    /// A second has passed.
    Pulse(Box<Pulse>),
    /// The loop's part of the run is over.
    Done { loop_index: usize, done: Box<Done> },
}

/// Events in a loop in one second, by the moments at which they happened.
#[derive(Debug)]
pub(super) struct Pulse {
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// Requests without a reply.
    pub(super) lost: u64,
    /// Requests without a right answer.
    pub(super) errors: u64,
    pub(super) in_flight: u64,
    pub(super) latency: Histogram<u64>,
}

impl Pulse {
    pub(super) fn new(latency: Histogram<u64>) -> Self {
        Self { sent: 0, answered: 0, lost: 0, errors: 0, in_flight: 0, latency }
    }
}

/// Figures that a loop knows at its end.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) sending_error: Histogram<u64>,
    /// On the loop's clock, in nanoseconds.
    pub(super) last_reply_ns: u64,
    /// Whole seconds that the loop ran, and those in which its thread was saturated.
    pub(super) seconds: u32,
    pub(super) saturated_seconds: u32,
    /// Replies that were dropped because the observer's queue was full.
    pub(super) unchecked: u64,
    /// Requests that were dropped because the log's queue was full.
    pub(super) unlogged: u64,
    /// Results by tag, if requests have tags.
    pub(super) by_tag: Option<ByTag>,
    /// Connections on which bytes arrived although no request was in flight.
    pub(super) unasked: u64,
    /// Passes of a scenario's users.
    pub(super) passes: Option<Passes>,
}
