//! `--json`: the summary of a run as one object on one line, for scripts and for continuous integration.
//!
//! The keys are part of the tool's interface and are described in `docs/loadtest.md`: a key keeps its meaning, and keys may be
//! added. Durations in `…_us` are microseconds with three decimals, which is the measured nanosecond. An empty distribution is
//! null. [`Recording`] has a JSON form of its own, with the histograms; this is another one.

use crate::figures::{answered_per_second, causes};
use crate::recording::{PassCounts, Percentiles, Phase, Recording, RequestCounts, TagResult, Validity};
use serde::Serialize;
use std::collections::BTreeMap;

/// The object of `--json`, without a line feed.
pub fn text(run: &Recording) -> String {
    // Numbers, texts and maps with text keys: all can be serialized.
    serde_json::to_string(&Summary::of(run)).expect("a summary is JSON")
}

/// The summary of one run; [`crate::versus`] puts two of them into its own object.
#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    target: &'a str,
    load: &'a str,
    started: f64,
    requests: u64,
    seconds: f64,
    rps: f64,
    answered: u64,
    errors: u64,
    errors_by_cause: BTreeMap<String, u64>,
    latency_us: Option<Microseconds>,
    service_us: Option<Microseconds>,
    sending_error_us: Option<Microseconds>,
    statuses: &'a BTreeMap<u16, u64>,
    unchecked: u64,
    unasked: u64,
    sent_bytes: u64,
    received_bytes: u64,
    phases: Vec<Part<'a>>,
    tags: Vec<Tag<'a>>,
    passes: Option<PassCounts>,
    rating: f64,
    valid: bool,
    invalid_because: Option<&'a str>,
}

impl Summary<'_> {
    pub(crate) fn of(run: &Recording) -> Summary<'_> {
        let outcome = &run.outcome;
        let distribution = |histogram: &hdrhistogram::Histogram<u64>| Microseconds::of(&Percentiles::of(histogram));
        Summary {
            target: &run.target,
            load: &run.load,
            started: run.started,
            requests: outcome.planned,
            seconds: rounded(run.seconds),
            rps: rounded(answered_per_second(run)),
            answered: outcome.answered,
            errors: outcome.errors(),
            errors_by_cause: causes(outcome).into_iter().map(|cause| (cause.name, cause.requests)).collect(),
            latency_us: distribution(&run.latencies.latency),
            service_us: distribution(&run.latencies.service),
            sending_error_us: distribution(&run.latencies.sending_error),
            statuses: &outcome.statuses,
            unchecked: run.unchecked,
            unasked: run.unasked,
            sent_bytes: outcome.sent_bytes,
            received_bytes: outcome.received_bytes,
            phases: run.phases.iter().map(Part::of).collect(),
            tags: run.tags.iter().map(Tag::of).collect(),
            passes: run.passes,
            rating: rounded(outcome.rating),
            valid: run.validity == Validity::Valid,
            invalid_because: match &run.validity {
                Validity::Valid => None,
                Validity::Invalid(reason) => Some(reason),
            },
        }
    }
}

/// One phase of a run.
#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    from: f64,
    to: f64,
    requests: u64,
    answered: u64,
    errors: u64,
    latency_us: Option<Microseconds>,
    service_us: Option<Microseconds>,
    rating: f64,
}

impl Part<'_> {
    fn of(phase: &Phase) -> Part<'_> {
        let outcome: &RequestCounts = &phase.outcome;
        Part {
            name: &phase.name,
            from: rounded(phase.from),
            to: rounded(phase.to),
            requests: outcome.planned,
            answered: outcome.answered,
            errors: outcome.errors(),
            latency_us: Microseconds::of(&phase.latency),
            service_us: Microseconds::of(&phase.service),
            rating: rounded(outcome.rating),
        }
    }
}

/// The requests of one tag.
#[derive(Serialize)]
struct Tag<'a> {
    name: &'a str,
    requests: u64,
    answered: u64,
    errors: u64,
    latency_us: Option<Microseconds>,
}

impl Tag<'_> {
    fn of(tag: &TagResult) -> Tag<'_> {
        let TagResult { name, requests, answered, errors, latency } = tag;
        let latency_us = Microseconds::of(latency);
        Tag { name, requests: *requests, answered: *answered, errors: *errors, latency_us }
    }
}

/// Percentiles in microseconds.
#[derive(Serialize)]
struct Microseconds {
    mean: f64,
    p50: f64,
    p75: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    p999: f64,
    p9999: f64,
    max: f64,
}

impl Microseconds {
    /// None: nothing was measured.
    fn of(percentiles: &Percentiles) -> Option<Microseconds> {
        let us = |ns: u64| ns as f64 / 1e3;
        (percentiles.max > 0).then(|| Microseconds {
            mean: us(percentiles.mean),
            p50: us(percentiles.p50),
            p75: us(percentiles.p75),
            p90: us(percentiles.p90),
            p95: us(percentiles.p95),
            p99: us(percentiles.p99),
            p999: us(percentiles.p999),
            p9999: us(percentiles.p9999),
            max: us(percentiles.max),
        })
    }
}

/// Rounds to three decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape};
    use serde_json::{Value, json};

    fn object(run: &Recording) -> Value {
        serde_json::from_str(&text(run)).unwrap()
    }

    #[test]
    fn the_object_has_the_documented_keys() {
        let run = sample_run::recording(Shape::Stall);
        let object = object(&run);
        for key in [
            "requests",
            "seconds",
            "rps",
            "errors",
            "latency_us",
            "service_us",
            "sending_error_us",
            "statuses",
            "phases",
            "rating",
            "valid",
        ] {
            assert!(!object[key].is_null(), "{key}: {object}");
        }
        for key in ["mean", "p50", "p75", "p90", "p95", "p99", "p999", "p9999", "max"] {
            assert!(object["latency_us"][key].as_f64().unwrap() > 0.0, "{key}: {object}");
        }
        assert_eq!(object["latency_us"]["p99"], Percentiles::of(&run.latencies.latency).p99 as f64 / 1e3);
        assert_eq!((&object["valid"], &object["invalid_because"]), (&json!(true), &Value::Null));
    }

    #[test]
    fn each_request_is_right_or_an_error_and_errors_have_causes() {
        let run = sample_run::recording(Shape::Stall);
        let object = object(&run);
        let number = |key: &str| object[key].as_u64().unwrap();
        assert_eq!(number("requests"), run.outcome.right + number("errors"));
        let causes = object["errors_by_cause"].as_object().unwrap();
        assert_eq!(causes.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), number("errors"));
        assert!(causes.contains_key("no connection: connection refused"), "{object}");
    }

    #[test]
    fn results_by_tag_have_counts_and_latencies() {
        let object = object(&sample_run::with_tags());
        let tags = object["tags"].as_array().unwrap();
        assert_eq!(
            (&tags[0]["name"], &tags[0]["requests"], &tags[1]["errors"]),
            (&json!("GET /users/{int}"), &json!(900), &json!(7))
        );
        assert_eq!(tags[0]["latency_us"]["p99"], json!(2000.0));
        assert_eq!(tags[1]["latency_us"], Value::Null);
    }

    #[test]
    fn a_distribution_of_nothing_is_null() {
        let mut run = sample_run::nothing_answered();
        run.validity = Validity::Invalid("the load thread was busy".into());
        let object = object(&run);
        assert_eq!(object["latency_us"], Value::Null);
        assert_eq!((&object["valid"], &object["invalid_because"]), (&json!(false), &json!("the load thread was busy")));
    }
}
