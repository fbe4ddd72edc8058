//! Metrics of requests: their number by route and status, and their latency.

use super::route_series::RouteSeries;
use http::{BUCKETS, Series, SeriesTotal};
use std::fmt::Write as _;

const REQUESTS: &str = "sapsan_http_requests_total";
const DURATION: &str = "sapsan_http_request_duration_seconds";

/// A family of metrics with lines for each route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Requests,
    Durations,
}

/// Appends the lines of a family, from a series on, until `out` has `bytes_max` bytes. Returns the series that comes next, if any
/// is left. The totals are in the order of their series.
pub(crate) fn append(
    (family, from): (Family, Series),
    totals: &[SeriesTotal],
    names: &RouteSeries,
    (out, bytes_max): (&mut String, usize),
) -> Option<Series> {
    let (name, kind, help) = match family {
        Family::Requests => (REQUESTS, "counter", "Requests answered, by route and status."),
        Family::Durations => (
            DURATION,
            "histogram",
            "Time from reading a request until its reply is written or queued for writing, by route.",
        ),
    };
    if from == Series::default() && !totals.is_empty() {
        // Writing into a String does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
    for total in totals.iter().filter(|total| total.series >= from) {
        if out.len() >= bytes_max {
            return Some(total.series);
        }
        let route = escaped(&names.name(total.series));
        match family {
            Family::Requests => append_requests(total, &route, out),
            Family::Durations => append_durations(total, &route, out),
        }
    }
    None
}

fn append_requests(total: &SeriesTotal, route: &str, out: &mut String) {
    for (status, count) in &total.statuses {
        let _ = writeln!(out, "{REQUESTS}{{route=\"{route}\",code=\"{status}\"}} {count}");
    }
    if total.other_statuses > 0 {
        let _ = writeln!(out, "{REQUESTS}{{route=\"{route}\",code=\"other\"}} {}", total.other_statuses);
    }
}

fn append_durations(total: &SeriesTotal, route: &str, out: &mut String) {
    let mut count = 0;
    let bounds = BUCKETS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
    for (replies, bound) in total.buckets.iter().zip(bounds) {
        count += replies;
        let _ = writeln!(out, "{DURATION}_bucket{{route=\"{route}\",le=\"{bound}\"}} {count}");
    }
    let seconds = total.nanoseconds as f64 / 1e9;
    let _ = writeln!(out, "{DURATION}_sum{{route=\"{route}\"}} {seconds}");
    let _ = writeln!(out, "{DURATION}_count{{route=\"{route}\"}} {count}");
}

/// Escapes a text for the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
