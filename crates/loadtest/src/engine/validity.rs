//! Whether a run measured the server or the generator.
//!
//! In the open model the generator must send at the planned moments. Two conditions apply to all its loops together:
//!
//! - The 99th percentile of the sending error (of requests for which a connection was free) is at most [`SENDING_ERROR_NS_MAX`],
//!   or a tenth of the median latency if that is more. The error is part of each latency, so it must be small compared with what
//!   is measured; and an ordinary kernel may delay a woken thread by a millisecond, whichever tool runs on it. Each report shows
//!   the error beside the latencies.
//! - At most one second in twenty, summed over the threads of all loops, was saturated. A saturated thread cannot follow the
//!   plan, so the plan was not measured.
//!
//! In the closed model there is no plan.

use super::report::Done;
use crate::recording::Validity;
use hdrhistogram::Histogram;

/// See the module.
const SENDING_ERROR_NS_MAX: u64 = 1_000_000;
/// One in this many seconds may be saturated.
const SATURATED_ONE_IN: u32 = 20;

/// The figures of all loops.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) sending_error: Histogram<u64>,
    pub(super) latency_p50_ns: u64,
    pub(super) seconds: u32,
    pub(super) saturated_seconds: u32,
}

impl Figures {
    /// Adds a loop's figures.
    pub(super) fn add(&mut self, done: &Done) {
        self.sending_error.add(&done.sending_error).expect("the same bounds");
        self.seconds += done.seconds;
        self.saturated_seconds += done.saturated_seconds;
    }

    /// The verdict on an open run.
    pub(super) fn judge(&self, threads: usize) -> Validity {
        let error_ns = self.sending_error.value_at_quantile(0.99);
        let bound_ns = SENDING_ERROR_NS_MAX.max(self.latency_p50_ns / 10);
        if self.saturated_seconds * SATURATED_ONE_IN > self.seconds {
            let (saturated, all) = (self.saturated_seconds, self.seconds);
            return Validity::Invalid(format!(
                "the generator had no processor time to spare in {saturated} of {all} seconds of its {threads} threads: use \
                 more --threads on more cores, keep other work from them, or plan a lower rate"
            ));
        }
        if error_ns > bound_ns {
            let [error, bound] = [error_ns, bound_ns].map(|ns| ns as f64 / 1e6);
            return Validity::Invalid(format!(
                "the generator sent 1 request in 100 more than {error:.2} ms late, although a connection was free; at most \
                 {bound:.2} ms are allowed. Keep other work from its cores (the server too), or plan a lower rate"
            ));
        }
        Validity::Valid
    }
}

#[cfg(test)]
mod tests {
    use super::super::slice::histogram;
    use super::*;

    fn figures(error_us: u64, latency_p50_ms: u64, seconds: u32, saturated_seconds: u32) -> Figures {
        let mut sending_error = histogram();
        sending_error.record_n(1_000, 980).unwrap();
        sending_error.record_n(error_us * 1_000, 20).unwrap();
        Figures { sending_error, latency_p50_ns: latency_p50_ms * 1_000_000, seconds, saturated_seconds }
    }

    #[track_caller]
    fn check(figures: Figures, expected: &str) {
        match figures.judge(2) {
            Validity::Valid => assert_eq!(expected, ""),
            Validity::Invalid(reason) => assert!(!expected.is_empty() && reason.contains(expected), "{reason}"),
        }
    }

    #[test]
    fn a_generator_that_is_late_or_at_its_limit_makes_the_run_invalid() {
        check(figures(900, 1, 10, 0), "");
        check(figures(1_200, 1, 10, 0), "1.20 ms late");
        // A tenth of a median of 20 ms allows 2 ms.
        check(figures(1_200, 20, 10, 0), "");
        check(figures(10, 1, 20, 1), "");
        check(figures(10, 1, 20, 2), "in 2 of 20 seconds of its 2 threads");
    }
}
