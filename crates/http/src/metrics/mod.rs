//! Counters of one loop, and their sum.

pub(crate) mod counter;
pub(crate) mod latency;
pub(crate) mod slow;
pub(crate) mod uncounted;

use crate::metrics::counter::Counter;
use crate::metrics::latency::Latencies;

/// Counters of one loop.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    pub(crate) replies: [Counter; 4],
    pub(crate) refusals: Counter,
    pub(crate) panics: Counter,
    pub(crate) fields_left_out: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) accepted: Counter,
    pub(crate) closed: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) made_room: Counter,
    pub(crate) hoarders: Counter,
    pub(crate) latencies: Latencies,
}

impl HttpMetrics {
    #[inline]
    pub(crate) fn count_replies(&self, status: u16, replies: u64) {
        self.replies[usize::from((status / 100).clamp(2, 5)) - 2].add(replies);
    }
}

/// Sums over loops at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsTotal {
    /// Replies with a status of 200 to 299.
    pub replies_2xx: u64,
    /// Replies with a status of 300 to 399.
    pub replies_3xx: u64,
    /// Replies with a status of 400 to 499, refusals included.
    pub replies_4xx: u64,
    /// Replies with a status of 500 to 599, refusals included.
    pub replies_5xx: u64,
    /// Requests refused before the service saw them.
    pub refusals: u64,
    /// Panics of the service.
    pub panics: u64,
    /// Header fields of replies that were left out: malformed, the server's own, or beyond the limit.
    pub fields_left_out: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections closed at once because of a limit.
    pub turned_away: u64,
    /// Connections ended by a deadline, or because they were behind the minimum rate of receiving.
    pub timed_out: u64,
    /// Connections closed because others waited for a slot.
    pub made_room: u64,
    /// Connections closed because they held most of a part of the memory that was short.
    pub hoarders: u64,
}

impl MetricsTotal {
    /// Sums the counters of several loops.
    pub fn of<'m>(loops: impl IntoIterator<Item = &'m HttpMetrics>) -> Self {
        let mut total = MetricsTotal::default();
        for metrics in loops {
            let [two, three, four, five] = &metrics.replies;
            total.replies_2xx += two.get();
            total.replies_3xx += three.get();
            total.replies_4xx += four.get();
            total.replies_5xx += five.get();
            total.refusals += metrics.refusals.get();
            total.panics += metrics.panics.get();
            total.fields_left_out += metrics.fields_left_out.get();
            total.bytes_in += metrics.bytes_in.get();
            total.bytes_out += metrics.bytes_out.get();
            total.accepted += metrics.accepted.get();
            total.open += metrics.accepted.get().saturating_sub(metrics.closed.get());
            total.turned_away += metrics.turned_away.get();
            total.timed_out += metrics.timed_out.get();
            total.made_room += metrics.made_room.get();
            total.hoarders += metrics.hoarders.get();
        }
        total
    }
}
