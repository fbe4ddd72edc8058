//! `--report FILE.html`: a self-contained page that shows a run: no script, font or picture of another address.
//!
//! Charts are SVG ([`chart`]); a short script shows the values under the pointer, and each chart has its values in a table as
//! well. The page follows the reader's theme and prints on paper. Its content security policy allows only its own script, by a
//! hash, so that untrusted text could run nothing even if it were not escaped.

mod chart;
mod compared;
mod distribution;
mod markup;
mod over_time;
mod scale;
mod server;
#[cfg(test)]
mod tests;

use crate::figures::{COLUMNS, answered_per_second, causes, validity};
use crate::quantity::{count, moment, nanoseconds, of_distribution, per_second, rating, share, span};
use crate::recording::{Percentiles, Recording, RequestCounts, Validity};
use crate::versus::SideBySide;
use base64::Engine as _;
use distribution::Distribution;
use markup::{Table, escaped};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("hover.js");

/// The page of a run, with a comparison if there is one.
pub fn html(run: &Recording, comparison: Option<&SideBySide>) -> String {
    let target = escaped(&run.target);
    let mut out = head(&target);
    match comparison {
        None => {
            let _ = write!(
                out,
                "<header>\n<p class=\"soft\">Load test</p>\n<h1>{target}</h1>\n{}</header>\n<main>\n",
                summary(run)
            );
        }
        Some(comparison) => {
            let _ = write!(out, "{}<main>\n{}", compared::header(comparison), compared::html(comparison));
            let _ = write!(out, "<section>\n<h2>{}</h2>\n{}</section>\n", comparison.detailed(), summary(run));
        }
    }
    section(
        &mut out,
        "Rate",
        "What the plan wanted, what was sent, and what was answered rightly.",
        &over_time::rates(run),
    );
    section(
        &mut out,
        "Latency over time",
        "From the moment at which a request was planned to its whole reply. A request is counted in the second in which it was planned.",
        &over_time::latencies(run),
    );
    section(&mut out, "Distribution", DISTRIBUTION_LEAD, &distributions(run));
    section(&mut out, "Errors", "", &errors(run));
    if run.tags.len() > 1 {
        section(
            &mut out,
            "Tags",
            "Requests by their tag, most frequent first. Latencies are accurate to 1 %.",
            &tags(run),
        );
    }
    if !run.phases.is_empty() {
        section(&mut out, "Phases", "", &phases(run));
    }
    out.push_str(&server::html(run));
    out.push_str("</main>\n");
    let _ = write!(out, "<footer>{}</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n", footer(run));
    out
}

/// Column of the errors in the table of phases.
const PHASE_ERRORS: usize = 4;
/// Column of the errors in the table of tags.
const TAG_ERRORS: usize = 2;

const DISTRIBUTION_LEAD: &str = "Each further nine has the same room. Latency counts from the planned moment, service time from the moment \
     of sending; where they differ, requests waited for a free connection.";

fn head(title: &str) -> String {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(SCRIPT));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         img-src data:; script-src 'sha256-{hash}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} under load</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    )
}

/// A section with its heading and a sentence on how to read it.
fn section(out: &mut String, title: &str, lead: &str, content: &str) {
    let lead = if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{lead}</p>\n") };
    let _ = write!(out, "<section>\n<h2>{title}</h2>\n{lead}{content}</section>\n");
}

/// The run in short: its load, its figures, its errors, and whether it is valid.
fn summary(run: &Recording) -> String {
    let load = escaped(&run.load);
    let (began, lasted) = (moment(run.started), span(run.seconds));
    format!(
        "<p>{load}</p>\n<p class=\"soft\">began <time datetime=\"{began}\">{began}</time>, took {lasted}</p>\n{}{}",
        tiles(run),
        verdicts(run)
    )
}

/// The errors, and whether the run is valid. Only a valid run without errors is green.
fn verdicts(run: &Recording) -> String {
    let (errors, verdict) = (run.outcome.errors(), escaped(&validity(run)));
    let mut out = String::new();
    if errors > 0 {
        let _ =
            writeln!(out, "<p class=\"verdict invalid\"><b>Errors:</b> {}</p>", escaped(&errors_text(&run.outcome)));
    }
    let (class, word, verdict) = match &run.validity {
        Validity::Invalid(_) => ("invalid", "Invalid:", verdict.trim_start_matches("INVALID: ")),
        Validity::Valid if errors > 0 => ("plain", "Measured as planned:", verdict.trim_start_matches("Valid: ")),
        Validity::Valid => ("valid", "Valid:", verdict.trim_start_matches("Valid: ")),
    };
    let _ = writeln!(out, "<p class=\"verdict {class}\"><b>{word}</b> {verdict}</p>");
    out
}

fn errors_text(outcome: &RequestCounts) -> String {
    let errors = outcome.errors();
    let (number, planned, share) = (count(errors), count(outcome.planned), share(errors, outcome.planned));
    format!("{number} of {planned} requests got no right answer within the timeout ({share}).")
}

/// The figures that most readers look for first.
fn tiles(run: &Recording) -> String {
    let (outcome, latency) = (&run.outcome, Percentiles::of(&run.latencies.latency));
    let duration = |ns| of_distribution(ns, latency.max);
    let mut tiles = vec![
        ("requests", count(outcome.planned)),
        ("answers / s", per_second(answered_per_second(run)).trim_end_matches("/s").to_owned()),
        ("latency, p50", duration(latency.p50)),
        ("latency, p99", duration(latency.p99)),
        ("latency, p99.9", duration(latency.p999)),
        ("latency, max", duration(latency.max)),
        ("errors", share(outcome.errors(), outcome.planned)),
    ];
    if let Some(passes) = run.passes {
        tiles.push(("complete passes", count(passes.complete)));
    }
    if run.is_rated {
        tiles.push(("rating", rating(outcome.rating)));
    }
    let mut out = String::from("<dl class=\"tiles\">\n");
    for (name, value) in tiles {
        let class = if name == "errors" && outcome.errors() > 0 { " class=\"bad\"" } else { "" };
        let _ = writeln!(out, "<div{class}><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
    }
    out.push_str("</dl>\n");
    out
}

fn distributions(run: &Recording) -> String {
    let latencies = &run.latencies;
    let drawn = [("latency", &latencies.latency), ("service", &latencies.service)].map(|(class, histogram)| {
        Distribution { name: if class == "service" { "service time".into() } else { class.into() }, class, histogram }
    });
    let mut table = Table::new(&std::iter::once("").chain(COLUMNS.map(|(name, _)| name)).collect::<Vec<_>>());
    for (name, histogram) in [
        ("latency", &latencies.latency),
        ("service time", &latencies.service),
        ("sending error", &latencies.sending_error),
    ] {
        let percentiles = Percentiles::of(histogram);
        let cells = COLUMNS.map(|(_, value)| of_distribution(value(&percentiles), percentiles.max));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    }
    let explained =
        "<p class=\"soft\">The sending error is how late the generator itself sent, where a connection was free.</p>\n";
    distribution::html("distribution", "Distribution of the durations", &drawn) + &table.html() + explained
}

fn errors(run: &Recording) -> String {
    let outcome = &run.outcome;
    let mut out = match outcome.errors() {
        0 => "<p>None: each request got a right answer within the timeout.</p>\n".to_owned(),
        _ => format!("<p class=\"bad\">{}</p>\n{}", escaped(&errors_text(outcome)), over_time::errors(run)),
    };
    out.push_str(&by_cause(outcome));
    out.push_str(&by_status(outcome, run.unchecked));
    out
}

/// Causes, each with a bar; the most frequent one has the longest.
fn by_cause(outcome: &RequestCounts) -> String {
    let causes = causes(outcome);
    let Some(most) = causes.iter().map(|cause| cause.requests).max() else { return String::new() };
    let mut rows = String::new();
    for cause in &causes {
        let (width, class) =
            (cause.requests as f64 * 100.0 / most as f64, if cause.is_reply { "wrong" } else { "failed" });
        let (name, share, number) =
            (escaped(&cause.name), escaped(&share(cause.requests, outcome.planned)), count(cause.requests));
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">{name}</th><td>{number}</td><td>{share}</td><td><svg class=\"bar\" viewBox=\"0 0 100 6\" \
             preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"{width:.1}\" height=\"6\"/></svg></td></tr>"
        );
    }
    format!(
        "<h3>By cause</h3>\n<div class=\"wide\"><table><thead><tr><th scope=\"col\">cause</th><th scope=\"col\">requests</th>\
         <th scope=\"col\">share</th><th></th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn by_status(outcome: &RequestCounts, unchecked: u64) -> String {
    if outcome.statuses.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["status", "replies", "share"]);
    for (status, number) in &outcome.statuses {
        table.row([status.to_string(), count(*number), share(*number, outcome.answered)]);
    }
    let unchecked = match unchecked {
        0 => String::new(),
        number => format!(
            "<p>{} replies were not compared with the answers: the comparing thread was behind.</p>\n",
            count(number)
        ),
    };
    format!("<h3>Replies by status</h3>\n{}{unchecked}", table.html())
}

fn phases(run: &Recording) -> String {
    let columns = ["phase", "from", "to", "requests", "errors", "p50", "p90", "p99", "p99.9", "max"];
    let mut table = Table::new(&columns.into_iter().chain(run.is_rated.then_some("rating")).collect::<Vec<_>>());
    for phase in &run.phases {
        let (outcome, latency) = (&phase.outcome, &phase.latency);
        let percentiles = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        let [p50, p90, p99, p999, max] = percentiles.map(|ns| of_distribution(ns, latency.max));
        let [from, to] = [phase.from, phase.to].map(over_time::clock);
        let (requests, errors) = (count(outcome.planned), count(outcome.errors()));
        let rating = run.is_rated.then(|| rating(outcome.rating));
        let cells = [phase.name.clone(), from, to, requests, errors, p50, p90, p99, p999, max];
        table.row_with_errors(cells.into_iter().chain(rating), (outcome.errors() > 0).then_some(PHASE_ERRORS));
    }
    let note = "<p class=\"soft\">The rating is the sum of the latencies of right answers plus the timeout for each other request; lower is \
                better.</p>\n";
    table.html() + if run.is_rated { note } else { "" }
}

fn tags(run: &Recording) -> String {
    let names = COLUMNS.map(|(name, _)| name);
    let mut table = Table::new(&["tag", "requests", "errors"].into_iter().chain(names).collect::<Vec<_>>());
    for tag in &run.tags {
        let values = COLUMNS.map(|(_, value)| of_distribution(value(&tag.latency), tag.latency.max));
        let cells = [tag.name.clone(), count(tag.requests), count(tag.errors)].into_iter().chain(values);
        table.row_with_errors(cells, (tag.errors > 0).then_some(TAG_ERRORS));
    }
    table.html()
}

fn footer(run: &Recording) -> String {
    let row = match run.interval_seconds {
        0 | 1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    };
    let precise = nanoseconds(1_000);
    format!(
        "Made by sapsan loadtest. A point of the charts covers {row}; durations have three significant digits, from {precise} on."
    )
}
