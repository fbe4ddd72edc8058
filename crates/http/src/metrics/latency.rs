//! Latencies and statuses of replies, by series: the service numbers its series, and assigns each request to one.
//!
//! Each loop has counters of its own, created at its first reply of a series: counting touches no memory that another loop
//! writes. Readers sum them up.

use crate::method::Method;
use crate::metrics::counter::Counter;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Number of series. A request with a higher number counts under [`Series::OTHER`].
pub const SERIES_MAX: usize = 256;
/// Upper bounds of the buckets, in nanoseconds and as text in seconds. One more bucket counts longer times.
pub const BUCKETS: [(u64, &str); 17] = [
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];
/// Bytes of a series on each loop.
pub const SERIES_BYTES: usize = size_of::<SeriesCounters>();

/// Statuses that one series counts separately on one loop: the first ones that occur. Others are counted together.
const STATUSES_MAX: usize = 8;

/// The number of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series(pub u16);

impl Series {
    /// The series of requests for which the service names none.
    pub const OTHER: Series = Series(0);
}

/// Data of a request that is needed to count its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Start of the loop's tick in which the request was read.
    pub(crate) began_ns: u64,
    /// `None` for a request that was refused before it was read.
    pub(crate) method: Option<Method>,
    pub(crate) series: Series,
}

/// The counters of one loop.
#[derive(Debug)]
pub(crate) struct Latencies(Box<[OnceLock<Box<SeriesCounters>>]>);

#[derive(Debug, Default)]
struct SeriesCounters {
    buckets: [Counter; BUCKETS.len() + 1],
    nanoseconds: Counter,
    statuses: [StatusCounter; STATUSES_MAX],
    other_statuses: Counter,
}

/// Number of replies with a status. The status is 0 while unused.
#[derive(Debug, Default)]
struct StatusCounter {
    status: AtomicU16,
    count: Counter,
}

/// The counters of a series, summed over all loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesTotal {
    /// The series.
    pub series: Series,
    /// Replies by their latency, each in one bucket.
    pub buckets: [u64; BUCKETS.len() + 1],
    /// The sum of their latencies.
    pub nanoseconds: u64,
    /// Replies by their status.
    pub statuses: BTreeMap<u16, u64>,
    /// Replies with statuses beyond those.
    pub other_statuses: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies((0..SERIES_MAX).map(|_| OnceLock::new()).collect())
    }
}

impl Latencies {
    /// Counts replies with one latency. Called only by the loop.
    #[inline]
    pub(crate) fn count(&self, series: Series, status: u16, took_ns: u64, replies: u64) {
        let place = usize::from(series.0);
        let place = if place < self.0.len() { place } else { usize::from(Series::OTHER.0) };
        let Some(counters) = self.0.get(place) else { return };
        counters.get_or_init(Box::default).count(status, took_ns, replies);
    }

    /// Sums the counters of several loops, for each series that has counted a reply.
    pub(crate) fn total<'l>(loops: impl IntoIterator<Item = &'l Latencies>) -> Vec<SeriesTotal> {
        let mut totals = BTreeMap::<usize, SeriesTotal>::new();
        for latencies in loops {
            let seen = latencies.0.iter().enumerate();
            for (place, counters) in seen.filter_map(|(place, counters)| Some((place, counters.get()?))) {
                let series = Series(u16::try_from(place).unwrap_or_default());
                counters
                    .add_to(totals.entry(place).or_insert_with(|| SeriesTotal { series, ..SeriesTotal::default() }));
            }
        }
        totals.into_values().collect()
    }
}

impl SeriesCounters {
    #[inline]
    fn count(&self, status: u16, took_ns: u64, replies: u64) {
        let bucket = BUCKETS.iter().position(|(bound_ns, _)| took_ns <= *bound_ns).unwrap_or(BUCKETS.len());
        self.buckets[bucket].add(replies);
        self.nanoseconds.add(took_ns.saturating_mul(replies));
        for counter in &self.statuses {
            let known = counter.status.load(Ordering::Relaxed);
            if known == 0 {
                counter.status.store(status, Ordering::Relaxed);
            }
            if known == 0 || known == status {
                return counter.count.add(replies);
            }
        }
        self.other_statuses.add(replies);
    }

    fn add_to(&self, total: &mut SeriesTotal) {
        total.buckets.iter_mut().zip(&self.buckets).for_each(|(sum, counter)| *sum += counter.get());
        total.nanoseconds += self.nanoseconds.get();
        total.other_statuses += self.other_statuses.get();
        for StatusCounter { status, count } in &self.statuses {
            let status = status.load(Ordering::Relaxed);
            if status > 0 {
                *total.statuses.entry(status).or_default() += count.get();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_in_one_bucket_and_under_its_status_and_loops_are_summed() {
        let (one, other) = (Latencies::default(), Latencies::default());
        for (took_ns, status) in [(0, 200), (50_000, 200), (50_001, 404), (10_000_000_001, 504)] {
            one.count(Series(3), status, took_ns, 1);
            other.count(Series(3), status, took_ns, 1);
        }
        other.count(Series(u16::MAX), 200, 1, 1);
        let totals = Latencies::total([&one, &other]);
        assert_eq!(totals.iter().map(|total| total.series).collect::<Vec<_>>(), [Series::OTHER, Series(3)]);
        let total = &totals[1];
        assert_eq!((total.buckets[0], total.buckets[1], total.buckets[BUCKETS.len()]), (4, 2, 2));
        assert_eq!(total.buckets.iter().sum::<u64>(), 8);
        assert_eq!(total.nanoseconds, 2 * (50_000 + 50_001 + 10_000_000_001));
        assert_eq!(total.statuses, BTreeMap::from([(200, 4), (404, 2), (504, 2)]));
    }

    #[test]
    fn statuses_beyond_the_bound_are_counted_together() {
        let latencies = Latencies::default();
        let most = u16::try_from(STATUSES_MAX).unwrap();
        (0..most + 3).for_each(|n| latencies.count(Series(1), 400 + n, 1, 1));
        latencies.count(Series(1), 400, 1, 1);
        let total = &Latencies::total([&latencies])[0];
        assert_eq!((total.statuses.len(), total.statuses[&400], total.other_statuses), (STATUSES_MAX, 2, 3));
    }

    #[test]
    fn bounds_ascend_and_their_texts_say_the_same() {
        assert!(BUCKETS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (bound_ns, text) in BUCKETS {
            let seconds: f64 = text.parse().unwrap();
            assert!((seconds * 1e9 - bound_ns as f64).abs() < 0.5, "{text}");
        }
    }
}
