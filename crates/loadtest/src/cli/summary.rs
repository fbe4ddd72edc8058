//! The summary of a run: a few lines, or one JSON object.

use crate::recording::{Percentiles, Recording, Validity};
use serde_json::json;

pub(super) fn text(recording: &Recording) -> String {
    let outcome = &recording.outcome;
    let row = |name: &str, times: Percentiles| {
        let [p50, p90, p99, p999, max] =
            [times.p50, times.p90, times.p99, times.p999, times.max].map(|ns| ns as f64 / 1e3);
        format!("{name:<14} {p50:>10.1} {p90:>10.1} {p99:>10.1} {p999:>10.1} {max:>10.1}\n")
    };
    let latencies = &recording.latencies;
    let mut text = format!(
        "{}   {}\n{} requests in {:.2} s, {:.1} a second; {} right, {} wrong, {} late, {} without a reply\n\
         rating {:.3}\n{:<14} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        recording.target,
        recording.load,
        outcome.answered,
        recording.seconds,
        rate(recording),
        outcome.right,
        outcome.wrong,
        outcome.late,
        outcome.failures.total(),
        outcome.rating,
        "µs",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
    );
    text += &row("latency", Percentiles::of(&latencies.latency));
    text += &row("service", Percentiles::of(&latencies.service));
    text += &row("sending error", Percentiles::of(&latencies.sending_error));
    if outcome.failures.total() > 0 {
        text += &format!("{:?}\n", outcome.failures);
    }
    if recording.unchecked > 0 {
        text += &format!("{} replies were not compared: the comparing thread was behind\n", recording.unchecked);
    }
    if let Validity::Invalid(reason) = &recording.validity {
        text += &format!("INVALID: {reason}\n");
    }
    text
}

fn rate(recording: &Recording) -> f64 {
    recording.outcome.answered as f64 / recording.seconds.max(1e-9)
}

pub(super) fn json(recording: &Recording) -> String {
    let outcome = &recording.outcome;
    let times = |times: Percentiles| {
        let [mean, p50, p75, p90, p95, p99, p999, p9999, max] =
            [times.mean, times.p50, times.p75, times.p90, times.p95, times.p99, times.p999, times.p9999, times.max]
                .map(|ns| ns as f64 / 1e3);
        json!({"mean": mean, "p50": p50, "p75": p75, "p90": p90, "p95": p95, "p99": p99, "p999": p999, "p9999": p9999, "max": max})
    };
    let latencies = &recording.latencies;
    let object = json!({
        "requests": outcome.planned,
        "answered": outcome.answered,
        "seconds": recording.seconds,
        "rps": rate(recording),
        "errors": outcome.errors(),
        "latency_us": times(Percentiles::of(&latencies.latency)),
        "service_us": times(Percentiles::of(&latencies.service)),
        "sending_error_us": times(Percentiles::of(&latencies.sending_error)),
        "statuses": outcome.statuses,
        "rating": outcome.rating,
        "valid": recording.validity == Validity::Valid,
    });
    format!("{object}\n")
}
