//! Metrics of requests: their number by route and status, and their latency.

use super::route_series::RouteSeries;
use http::{BUCKETS, SeriesTotal};
use std::fmt::Write as _;

const REQUESTS: &str = "sapsan_http_requests_total";
const DURATION: &str = "sapsan_http_request_duration_seconds";

/// Appends the metrics.
pub(crate) fn append(totals: &[SeriesTotal], names: &RouteSeries, out: &mut String) {
    if totals.is_empty() {
        return;
    }
    let routes: Vec<String> = totals.iter().map(|total| escaped(&names.name(total.series))).collect();
    // Writing into a String does not fail.
    let _ = writeln!(out, "# HELP {REQUESTS} Requests answered, by route and status.\n# TYPE {REQUESTS} counter");
    for (total, route) in totals.iter().zip(&routes) {
        for (status, count) in &total.statuses {
            let _ = writeln!(out, "{REQUESTS}{{route=\"{route}\",code=\"{status}\"}} {count}");
        }
        if total.other_statuses > 0 {
            let _ = writeln!(out, "{REQUESTS}{{route=\"{route}\",code=\"other\"}} {}", total.other_statuses);
        }
    }
    let help = "Time from reading a request until its reply is written or queued for writing, by route.";
    let _ = writeln!(out, "# HELP {DURATION} {help}\n# TYPE {DURATION} histogram");
    for (total, route) in totals.iter().zip(&routes) {
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
}

/// Escapes a text for the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
