//! The page: one self-contained HTML file, with a light and a dark theme.

use super::chart::{comparison, timeline};
use super::explanation::explain;
use super::{ExperimentReport, SeriesReport, escape, mebibytes, milliseconds, name};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// Headings of the table's columns, and their meaning.
const COLUMNS: [(&str, &str); 11] = [
    ("wall", "Seconds from the first submission to the last reply"),
    ("above optimum", "Time above what no schedule can beat"),
    ("req/s", "Requests a second"),
    ("user", "Processor seconds in the program itself, all threads"),
    ("system", "Processor seconds in the kernel"),
    ("voluntary", "Context switches because a thread had to wait"),
    ("involuntary", "Context switches because the kernel gave the core to another thread"),
    ("threads", "The most threads at a time"),
    ("memory", "MiB at the peak, above the beginning"),
    ("p50", "Half of the requests had their reply within so many milliseconds of their submission"),
    ("p99", "99 of 100 requests"),
];

/// The whole page.
pub fn page(report: &SeriesReport) -> String {
    let mut html = String::with_capacity(64 << 10);
    html.push_str("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str(
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Execution models</title><style>",
    );
    html.push_str(STYLE);
    html.push_str("</style></head><body><main>");
    introduction(&mut html, report);
    html.push_str("<h2>How long each model took</h2><p>On a logarithmic scale. The line is the optimum.</p>");
    drawing(&mut html, &comparison(report));
    figures(&mut html, report);
    html.push_str("<h2>What each model shows</h2>");
    legend(&mut html);
    report.experiments.iter().for_each(|one| section(&mut html, one, report));
    html.push_str("</main></body></html>\n");
    html
}

fn introduction(html: &mut String, report: &SeriesReport) {
    let SeriesReport { requests, scale, work, cores, optimum, .. } = report;
    let workload = escape(&report.workload);
    // Writing into a String does not fail.
    let _ = write!(
        html,
        "<h1>One load, many ways to run it</h1><p>{requests} requests ({workload}; waits × {scale}, work × {work}) through each model, on P = {cores} \
         cores. A request computes, then perhaps waits or lets others go first, then computes again. The models differ in what happens \
         while a request waits."
    );
    html.push_str(&fastest(report));
    if let Some(first) = report.experiments.first() {
        let _ = write!(html, " Every run came to the same control values: {}.", first.run.control);
    }
    let [best, work, chain, arrival] = [optimum.seconds(), optimum.work, optimum.chain, optimum.arrival];
    let _ = write!(
        html,
        "</p><h2>The optimum</h2><p>No model can be faster than <b>{best:.3} s</b>, the largest of three bounds: all computing shared out \
         evenly over the cores ({work:.3} s); the longest request, whose parts follow one another ({chain:.3} s); and the order of \
         arrival: a request that comes late and waits long can begin only when the requests before it are done, but for those that memory \
         lets be under way ({arrival:.3} s).</p>"
    );
}

/// The fastest model, or those that are tied, as a sentence.
fn fastest(report: &SeriesReport) -> String {
    let tied = report.fastest();
    let names: Vec<String> = tied.iter().map(|one| format!("<b>{}</b>", name(one))).collect();
    let above = |one: &ExperimentReport| one.above_optimum * 100.0;
    match (tied.as_slice(), names.split_last()) {
        ([best], _) => format!(" The fastest was {}, {:.1} % above the optimum.", names[0], above(best)),
        ([best, .., last], Some((name, names))) => format!(
            " Tied within the noise: {} and {name}, {:.1} to {:.1} % above the optimum.",
            names.join(", "),
            above(best),
            above(last)
        ),
        _ => String::new(),
    }
}

fn figures(html: &mut String, report: &SeriesReport) {
    html.push_str("<h2>Figures</h2><div class=\"wide\"><table><thead><tr><th class=\"text\">model</th>");
    for (title, meaning) in COLUMNS {
        let _ = write!(html, "<th title=\"{meaning}\">{title}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    let tied = report.fastest();
    for one in &report.experiments {
        let run = &one.run;
        let cells = [
            format!("{:.3} s", run.wall),
            format!("{:+.1} %", one.above_optimum * 100.0),
            format!("{:.0}", run.rate),
            format!("{:.2} s", run.user),
            format!("{:.2} s", run.system),
            run.voluntary_switches.to_string(),
            run.involuntary_switches.to_string(),
            run.threads_peak.to_string(),
            mebibytes(run.memory_peak),
            format!("{} ms", milliseconds(run.latency.p50)),
            format!("{} ms", milliseconds(run.latency.p99)),
        ];
        let is_tied = tied.len() > 1 && tied.iter().any(|tied| std::ptr::eq(*tied, one));
        let mark = if is_tied { " <b>tied</b>" } else { "" };
        let _ = write!(html, "<tr><td class=\"text\">{}{mark}</td>", name(one));
        for cell in &cells {
            let _ = write!(html, "<td>{cell}</td>");
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div><ul class=\"meanings\">");
    for (title, meaning) in COLUMNS {
        let _ = write!(html, "<li><b>{title}</b>: {meaning}</li>");
    }
    html.push_str("</ul>");
}

fn legend(html: &mut String) {
    html.push_str(
        "<p>Each chart runs from the beginning of a run to its end; its scales are its own. The upper curve counts requests that compute or \
         could compute if they had a core: below P, cores are idle; above P, threads compete for them. The lower curve counts \
         requests that wait: on a blocked thread, set aside in an event loop, or letting others go first (a thread that yields counts here until it has a core again).</p>",
    );
}

fn section(html: &mut String, one: &ExperimentReport, report: &SeriesReport) {
    let name = name(one);
    let chart = timeline(&one.run.timeline, report.cores, &name);
    let (model, text) = (one.experiment.model, explain(one.experiment.model));
    let fastest = report.fastest();
    let closest = match (fastest.iter().any(|best| std::ptr::eq(*best, one)), fastest.len()) {
        (true, 1) => " Of all models this one came closest to the optimum.".to_owned(),
        (true, models) => format!(" It is tied with {} of the models as the closest to the optimum.", models - 1),
        (false, _) => String::new(),
    };
    let _ = write!(html, "<section><h3>{name} <code>{model}</code></h3><p>{text}{closest}</p>");
    drawing(html, &chart);
    html.push_str("</section>");
}

/// A drawing, which a narrow page scrolls rather than shrinks: its labels stay readable.
fn drawing(html: &mut String, svg: &str) {
    // Writing into a String does not fail.
    let _ = write!(html, "<div class=\"wide drawing\">{svg}</div>");
}
