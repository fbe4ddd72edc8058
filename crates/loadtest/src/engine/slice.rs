//! A slice: the outcomes of one loop's requests that were planned in one row of time and one part of the profile.
//!
//! Loops record into slices, and hand a slice over to the collector once all its requests have ended. So a loop records without a
//! lock, a request counts in the row of its planned moment however late its reply arrives, and a second's histograms are merged
//! on another thread.

use crate::rating::Rating;
use crate::recording::{Failures, LONGEST_NS, RequestCounts};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Significant digits of the recorded times.
const DIGITS: u8 = 3;

/// An empty histogram of nanoseconds. About 230 KB.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are in order, and the digits few")
}

/// Counts of requests; they become a [`RequestCounts`] with the timeout.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) planned: u64,
    pub(super) right: u64,
    pub(super) wrong: u64,
    pub(super) late: u64,
    pub(super) failures: Failures,
    pub(super) statuses: Statuses,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    /// Sum of the latencies of right answers.
    pub(super) right_ns: u128,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.planned += other.planned;
        self.right += other.right;
        self.wrong += other.wrong;
        self.late += other.late;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.right_ns += other.right_ns;
        other.statuses.0.iter().for_each(|(status, count)| self.statuses.add(*status, *count));
        let (failures, more) = (&mut self.failures, &other.failures);
        failures.closed += more.closed;
        failures.timeout += more.timeout;
        failures.malformed += more.malformed;
        failures.surplus += more.surplus;
        failures.unsent += more.unsent;
        for (reason, count) in &more.connect {
            *failures.connect.entry(reason.clone()).or_default() += count;
        }
    }

    pub(super) fn answered(&self) -> u64 {
        self.right + self.wrong + self.late
    }

    /// Requests whose bytes were sent.
    pub(super) fn sent(&self) -> u64 {
        self.planned - self.failures.unsent - self.failures.connect.values().sum::<u64>()
    }

    /// Requests that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.answered() + self.failures.total()
    }

    /// The outcome, with the rating for this timeout.
    pub(super) fn outcome(&self, timeout: Duration) -> RequestCounts {
        let rating = Rating::new(self.right_ns, self.planned - self.right);
        let statuses: BTreeMap<u16, u64> = self.statuses.0.iter().copied().collect();
        RequestCounts {
            planned: self.planned,
            sent: self.sent(),
            answered: self.answered(),
            right: self.right,
            wrong: self.wrong,
            late: self.late,
            failures: self.failures.clone(),
            statuses,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            rating: rating.seconds(timeout),
        }
    }
}

/// Replies by status: so few that a linear search is faster than a map. At most as many as there are statuses of three digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statuses(Vec<(u16, u64)>);

impl Statuses {
    #[inline]
    pub(super) fn add(&mut self, status: u16, count: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == status) {
            Some((_, counted)) => *counted += count,
            None => self.0.push((status, count)),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// Index of the row of time.
    pub(super) row: u32,
    /// Index of the part of the profile.
    pub(super) part: u32,
    pub(super) counts: Counts,
    pub(super) latency: Histogram<u64>,
    pub(super) service: Histogram<u64>,
}

impl Slice {
    pub(super) fn new(row: u32, part: u32) -> Self {
        Self { row, part, counts: Counts::default(), latency: histogram(), service: histogram() }
    }

    /// Reuses the storage for other requests.
    pub(super) fn reuse(&mut self, row: u32, part: u32) {
        (self.row, self.part, self.counts) = (row, part, Counts::default());
        self.latency.reset();
        self.service.reset();
    }

    /// Whether all its requests have ended.
    pub(super) fn is_done(&self) -> bool {
        self.counts.ended() == self.counts.planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_to_an_outcome_whose_sums_hold() {
        let mut connect = BTreeMap::new();
        connect.insert("connection refused".to_owned(), 2);
        let failures = Failures { connect, closed: 3, timeout: 4, malformed: 5, surplus: 7, unsent: 6 };
        let mut counts = Counts { planned: 57, right: 20, wrong: 7, late: 3, failures, ..Counts::default() };
        counts.right_ns = 5_500_000_000;
        counts.statuses.add(200, 20);
        let mut twice = counts.clone();
        twice.add(&counts);
        let outcome = twice.outcome(Duration::from_secs(2));
        assert_eq!(outcome.planned, outcome.answered + outcome.failures.total());
        assert_eq!(outcome.sent, outcome.planned - 4 - 12);
        assert_eq!(outcome.statuses[&200], 40);
        // By hand: 11 s of right answers, and 2 s for each of the 74 others.
        assert_eq!(outcome.rating, 159.0);
    }
}
