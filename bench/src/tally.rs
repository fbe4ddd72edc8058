//! What was seen: latencies from the planned moments, the client's own lateness, failures.

use hdrhistogram::Histogram;

/// Longest time told apart, in nanoseconds; longer ones count as this.
const LONGEST_NS: u64 = 60_000_000_000;

pub(crate) struct Tally {
    latency_ns: Histogram<u64>,
    lateness_ns: Histogram<u64>,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds and digits are in order");
        Tally { latency_ns: histogram(), lateness_ns: histogram(), failed: 0 }
    }

    pub(crate) fn note_latency(&mut self, nanoseconds: u64) {
        self.latency_ns.saturating_record(nanoseconds);
    }

    pub(crate) fn note_lateness(&mut self, nanoseconds: u64) {
        self.lateness_ns.saturating_record(nanoseconds);
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.latency_ns.add(&other.latency_ns).expect("equal bounds");
        self.lateness_ns.add(&other.lateness_ns).expect("equal bounds");
        self.failed += other.failed;
    }

    /// One line of JSON: times in microseconds.
    pub(crate) fn json(&self, seconds: f64) -> String {
        let at = |histogram: &Histogram<u64>, quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        format!(
            "{{\"answered\":{},\"failed\":{},\"rate\":{:.0},\"p50_us\":{:.1},\"p90_us\":{:.1},\"p99_us\":{:.1},\
             \"p999_us\":{:.1},\"max_us\":{:.1},\"late_p99_us\":{:.1}}}",
            self.latency_ns.len(),
            self.failed,
            self.latency_ns.len() as f64 / seconds,
            at(&self.latency_ns, 0.5),
            at(&self.latency_ns, 0.9),
            at(&self.latency_ns, 0.99),
            at(&self.latency_ns, 0.999),
            at(&self.latency_ns, 1.0),
            at(&self.lateness_ns, 0.99),
        )
    }
}
