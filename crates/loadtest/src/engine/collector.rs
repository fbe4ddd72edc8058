//! The collector: adds up the loops' slices to rows of time, parts of the profile, and the whole run.
//!
//! A row or part keeps its histograms only until each loop has moved past it; then its percentiles are computed and the storage
//! is released. So the memory of a run grows only by a line of numbers for each row, and there are at most [`INTERVALS_MAX`]
//! rows.

use super::ended::Correction;
use super::observing::Corrections;
use super::slice::{Counts, Slice, histogram};
use crate::recording::{INTERVALS_MAX, Interval, Percentiles, Phase, RequestCounts};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Length of a row in seconds, for a run of a known length.
pub(super) fn row_seconds(run_seconds: f64) -> u32 {
    (run_seconds / INTERVALS_MAX as f64).ceil().max(1.0) as u32
}

/// Some requests.
pub(super) struct Sum {
    pub(super) counts: Counts,
    pub(super) latency: Histogram<u64>,
    pub(super) service: Histogram<u64>,
}

impl Sum {
    fn new() -> Self {
        Self { counts: Counts::default(), latency: histogram(), service: histogram() }
    }

    fn add(&mut self, slice: &Slice) {
        self.counts.add(&slice.counts);
        self.latency.add(&slice.latency).expect("the same bounds");
        self.service.add(&slice.service).expect("the same bounds");
    }

    fn summary(&self) -> Summary {
        let (latency, service) = (Percentiles::of(&self.latency), Percentiles::of(&self.service));
        Summary { counts: self.counts.clone(), latency, service }
    }
}

/// A sum without its histograms.
#[derive(Clone, Debug, Default)]
struct Summary {
    counts: Counts,
    latency: Percentiles,
    service: Percentiles,
}

/// Sums by an ascending number: rows, or parts.
struct Series {
    open: BTreeMap<u32, Sum>,
    done: BTreeMap<u32, Summary>,
}

impl Series {
    fn new() -> Self {
        Self { open: BTreeMap::new(), done: BTreeMap::new() }
    }

    fn add(&mut self, number: u32, slice: &Slice) {
        self.open.entry(number).or_insert_with(Sum::new).add(slice);
    }

    /// Closes the numbers below this one: no loop has more for them.
    fn close_below(&mut self, number: u32) {
        while let Some(first) = self.open.first_entry().filter(|first| *first.key() < number) {
            let (number, sum) = first.remove_entry();
            self.done.insert(number, sum.summary());
        }
    }

    fn finish(mut self) -> BTreeMap<u32, Summary> {
        self.close_below(u32::MAX);
        self.done
    }
}

/// See the module.
pub(super) struct Collector {
    total: Sum,
    rows: Series,
    parts: Series,
    /// The current row and part of each loop.
    reached: Vec<(u32, u32)>,
}

impl Collector {
    pub(super) fn new(loops: usize) -> Self {
        Self { total: Sum::new(), rows: Series::new(), parts: Series::new(), reached: vec![(0, 0); loops] }
    }

    pub(super) fn add(&mut self, loop_index: usize, slice: &Slice) {
        self.total.add(slice);
        self.rows.add(slice.row, slice);
        self.parts.add(slice.part, slice);
        self.reach(loop_index, (slice.row, slice.part));
    }

    /// A loop has ended.
    pub(super) fn loop_done(&mut self, loop_index: usize) {
        self.reach(loop_index, (u32::MAX, u32::MAX));
    }

    fn reach(&mut self, loop_index: usize, at: (u32, u32)) {
        self.reached[loop_index] = at;
        self.rows.close_below(self.reached.iter().map(|(row, _)| *row).min().unwrap_or(0));
        self.parts.close_below(self.reached.iter().map(|(_, part)| *part).min().unwrap_or(0));
    }

    /// Ends the collection, and applies the observer's corrections.
    pub(super) fn finish(self, corrections: &Corrections) -> Collected {
        let (mut total, mut rows, mut parts) = (self.total, self.rows.finish(), self.parts.finish());
        for ((row, part), correction) in corrections {
            correct(&mut total.counts, correction);
            for summary in [rows.get_mut(row), parts.get_mut(part)].into_iter().flatten() {
                correct(&mut summary.counts, correction);
            }
        }
        Collected { total, rows, parts }
    }
}

fn correct(counts: &mut Counts, correction: &Correction) {
    counts.right = counts.right + correction.found_right - correction.found_wrong;
    counts.wrong = counts.wrong + correction.found_wrong - correction.found_right;
    counts.right_ns = counts.right_ns.saturating_add_signed(correction.right_ns);
}

/// The sums of a run.
pub(super) struct Collected {
    total: Sum,
    rows: BTreeMap<u32, Summary>,
    parts: BTreeMap<u32, Summary>,
}

impl Collected {
    pub(super) fn outcome(&self, timeout: Duration) -> RequestCounts {
        self.total.counts.outcome(timeout)
    }

    pub(super) fn latency_p50_ns(&self) -> u64 {
        self.total.latency.value_at_quantile(0.5)
    }

    /// The histograms of the whole run: latency, service time.
    pub(super) fn into_histograms(self) -> (Histogram<u64>, Histogram<u64>) {
        (self.total.latency, self.total.service)
    }

    /// A row for each `row_seconds` from the start, including rows without requests.
    pub(super) fn intervals(&self, row_seconds: u32) -> Vec<Interval> {
        let rows = self.rows.last_key_value().map_or(0, |(last, _)| last + 1);
        let empty = Summary::default();
        (0..rows).map(|row| interval(row * row_seconds, self.rows.get(&row).unwrap_or(&empty))).collect()
    }

    /// A phase for each part, given its name, beginning and end.
    pub(super) fn phases(&self, parts: &[(String, f64, f64)], timeout: Duration) -> Vec<Phase> {
        let empty = Summary::default();
        let phase = |(part, (name, from, to)): (usize, &(String, f64, f64))| {
            let sum = self.parts.get(&(part as u32)).unwrap_or(&empty);
            let (outcome, latency, service) = (sum.counts.outcome(timeout), sum.latency, sum.service);
            Phase { name: name.clone(), from: *from, to: *to, outcome, latency, service }
        };
        parts.iter().enumerate().map(phase).collect()
    }
}

fn interval(at: u32, summary: &Summary) -> Interval {
    let counts = &summary.counts;
    Interval {
        at,
        planned: counts.planned,
        sent: counts.sent(),
        right: counts.right,
        wrong: counts.wrong + counts.late,
        failed: counts.failures.total(),
        latency: summary.latency,
        service: summary.service,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(row: u32, part: u32, right: u64, latency_ns: u64) -> Slice {
        let mut slice = Slice::new(row, part);
        slice.counts = Counts { planned: right, right, right_ns: u128::from(right * latency_ns), ..Counts::default() };
        slice.latency.record_n(latency_ns, right).unwrap();
        slice
    }

    const TIMEOUT: Duration = Duration::from_secs(2);

    #[test]
    fn rows_and_parts_add_up_over_loops_and_those_that_all_have_passed_keep_no_histogram() {
        let mut collector = Collector::new(2);
        collector.add(0, &slice(0, 0, 1, 10));
        collector.add(0, &slice(2, 1, 2, 20));
        assert_eq!(collector.rows.open.len(), 2, "the other loop may have more of row 0");
        collector.add(1, &slice(0, 0, 4, 30));
        collector.add(1, &slice(2, 1, 8, 40));
        assert_eq!((collector.rows.open.len(), collector.parts.open.len()), (1, 1));
        collector.loop_done(0);
        collector.loop_done(1);
        let collected = collector.finish(&Corrections::new());
        let rows: Vec<(u32, u64)> = collected.intervals(1).iter().map(|row| (row.at, row.right)).collect();
        assert_eq!(rows, [(0, 5), (1, 0), (2, 10)]);
        let parts = [("a".to_owned(), 0.0, 1.0), ("b".to_owned(), 1.0, 2.0), ("c".to_owned(), 2.0, 3.0)];
        let phases: Vec<u64> = collected.phases(&parts, TIMEOUT).iter().map(|phase| phase.outcome.right).collect();
        assert_eq!((phases, collected.outcome(TIMEOUT).planned), (vec![5, 10, 0], 15));
    }

    #[test]
    fn what_the_observer_found_changes_row_part_sum_and_rating() {
        let mut collector = Collector::new(1);
        collector.add(0, &slice(3, 0, 10, 1_000_000_000));
        let correction = Correction { found_right: 0, found_wrong: 2, right_ns: -2_000_000_000 };
        let collected = collector.finish(&Corrections::from([((3, 0), correction)]));
        let outcome = collected.outcome(TIMEOUT);
        assert_eq!((outcome.right, outcome.wrong, outcome.rating), (8, 2, 12.0));
        assert_eq!(collected.intervals(1)[3].wrong, 2);
        assert_eq!(collected.phases(&[("a".to_owned(), 0.0, 1.0)], TIMEOUT)[0].outcome.rating, 12.0);
    }

    #[test]
    fn a_long_run_has_longer_rows() {
        assert_eq!([0.5, 3600.0, 3601.0, 10_000.0].map(row_seconds), [1, 1, 2, 3]);
    }
}
