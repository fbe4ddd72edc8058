//! Two runs, or two servers in turns, side by side: whether they differ, a table of ratios with their intervals, both
//! distributions, and the 99th percentile over time.

use super::chart::Chart;
use super::distribution::{self, Distribution};
use super::markup::{Table, escaped};
use super::over_time::{
    HEIGHT, NOTHING_MEASURED, TIME, clock, duration, duration_tick, extent, latency_series, row_seconds, seconds,
};
use super::scale::Scale;
use crate::quantity::moment;
use crate::recording::Recording;
use crate::versus::{self, ComparedFigure, SideBySide};

/// The section of a comparison.
pub(super) fn html(comparison: &SideBySide) -> String {
    let SideBySide { first, second, .. } = comparison;
    let distributions = [(first, "A", "first"), (second, "B", "second")].map(|(run, name, class)| Distribution {
        name: format!("{name}, latency"),
        class,
        histogram: &run.latencies.latency,
    });
    format!(
        "<section>\n<h2>A and B compared</h2>\n{}\
         <h3>Distribution of the latency</h3>\n{}<h3>99th percentile over time</h3>\n{}</section>\n",
        ratios(comparison),
        distribution::html("compared-distribution", "Distributions of both", &distributions),
        percentile_over_time(first, second),
    )
}

/// The header of a page that compares: both sides, and whether they differ.
pub(super) fn header(comparison: &SideBySide) -> String {
    let side = |name: &str, run: &Recording| {
        let [target, load] = [&run.target, &run.load].map(|text| escaped(text));
        format!("<h1><b>{name}</b> {target}</h1>\n<p class=\"soft\">{load}, began {}</p>\n", moment(run.started))
    };
    let (first, second) = (side("A", &comparison.first), side("B", &comparison.second));
    let class = if comparison.rows.iter().any(ComparedFigure::differs) { "differs" } else { "plain" };
    let answer = escaped(&comparison.answer());
    format!(
        "<header>\n<p class=\"soft\">Load test, compared</p>\n{first}{second}<p class=\"verdict {class}\">{answer}</p>\n</header>\n"
    )
}

fn ratios(comparison: &SideBySide) -> String {
    let mut table = Table::new(&versus::COLUMNS);
    comparison.rows.iter().for_each(|row| table.row(SideBySide::cells(row)));
    format!("<p class=\"soft\">{}</p>\n{}", escaped(&comparison.explanation()), table.html())
}

fn percentile_over_time(first: &Recording, second: &Recording) -> String {
    let longer = if seconds(first) >= seconds(second) { first } else { second };
    let series = vec![
        latency_series(first, "A, p99".into(), "first", |of| of.p99),
        latency_series(second, "B, p99".into(), "second", |of| of.p99),
    ];
    let (least, most) = extent(&series);
    if most == 0.0 {
        return NOTHING_MEASURED.into();
    }
    let chart = Chart {
        id: "compared-p99",
        title: "99th percentile of both over time",
        height: HEIGHT,
        x: Scale::time(seconds(longer)),
        x_label: clock,
        x_name: TIME,
        y: Scale::logarithmic(least, most),
        y_label: duration_tick,
        y_name: "latency, p99",
        places: longer.intervals.iter().map(|row| f64::from(row.at)).collect(),
        row: row_seconds(longer),
        series,
        phases: &longer.phases,
    };
    chart.html(clock, duration)
}
