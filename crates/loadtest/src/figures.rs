//! Figures of a recording for every output: percentiles by name, the rate, errors by cause, the validity as a sentence.
//!
//! Table, JSON, page and conditions use them, so that the outputs agree.

use crate::printable::printable;
use crate::quantity::of_distribution;
use crate::recording::{Percentiles, Recording, RequestCounts, Validity};

/// A percentile: its name and its field of [`Percentiles`].
pub(crate) type Column = (&'static str, fn(&Percentiles) -> u64);

/// All percentiles, in order.
pub(crate) const COLUMNS: [Column; 9] = [
    ("mean", |of| of.mean),
    ("p50", |of| of.p50),
    ("p75", |of| of.p75),
    ("p90", |of| of.p90),
    ("p95", |of| of.p95),
    ("p99", |of| of.p99),
    ("p99.9", |of| of.p999),
    ("p99.99", |of| of.p9999),
    ("max", |of| of.max),
];
/// Complete replies per second of the run.
pub(crate) fn answered_per_second(run: &Recording) -> f64 {
    if run.seconds > 0.0 { run.outcome.answered as f64 / run.seconds } else { 0.0 }
}

/// The validity of the run, as a sentence.
pub(crate) fn validity(run: &Recording) -> String {
    match &run.validity {
        Validity::Valid => {
            let late = &run.latencies.sending_error;
            if late.is_empty() && run.outcome.sent == 0 {
                return "Valid: no request was sent, so none was sent late.".to_owned();
            }
            if late.is_empty() {
                return "Valid: a closed load has no plan to keep to.".to_owned();
            }
            let p99 = of_distribution(late.value_at_quantile(0.99), late.max());
            format!("Valid: the generator kept to its plan (99 of 100 requests were sent at most {p99} late).")
        }
        Validity::Invalid(reason) => format!("INVALID: {}", printable(reason)),
    }
}

/// A cause for which requests have no right answer.
pub(crate) struct Cause {
    /// A text, which may contain the system's reason.
    pub(crate) name: String,
    /// Number of requests with this cause.
    pub(crate) requests: u64,
    /// Whether a complete reply arrived, but wrong or late.
    pub(crate) is_reply: bool,
}

/// Requests without a right answer, by cause; causes that did not occur are omitted.
pub(crate) fn causes(outcome: &RequestCounts) -> Vec<Cause> {
    let failures = &outcome.failures;
    let replies = [("wrong answer", outcome.wrong), ("answer after the timeout", outcome.late)];
    let without = [
        ("no answer within the timeout", failures.timeout),
        ("connection closed early", failures.closed),
        ("malformed reply", failures.malformed),
        ("more than was asked for", failures.surplus),
        ("never sent", failures.unsent),
    ];
    let cause = |is_reply| move |(name, requests): (&str, u64)| Cause { name: name.to_owned(), requests, is_reply };
    let connects = failures.connect.iter().map(|(reason, requests)| Cause {
        name: format!("no connection: {reason}"),
        requests: *requests,
        is_reply: false,
    });
    let named = replies.into_iter().map(cause(true)).chain(without.into_iter().map(cause(false)));
    named.chain(connects).filter(|cause| cause.requests > 0).collect()
}
