//! The table in a terminal: one row for each experiment.

use super::{ExperimentReport, SeriesReport, mebibytes, milliseconds};
use std::fmt::Write;

const HEADING: [&str; 14] = [
    "no",
    "model",
    "wall s",
    "req/s",
    "user s",
    "sys s",
    "vol. sw.",
    "invol.",
    "threads",
    "mem MiB",
    "p50 ms",
    "p99 ms",
    "max ms",
    "above opt.",
];

/// The report as text: the workload, the bounds, the table.
pub fn table(report: &SeriesReport) -> String {
    let rows: Vec<[String; 14]> = report.experiments.iter().map(row).collect();
    let widths = widths(&rows);
    let mut text = heading(report);
    write_row(&mut text, &HEADING.map(str::to_owned), &widths);
    rows.iter().for_each(|row| write_row(&mut text, row, &widths));
    text
}

fn heading(report: &SeriesReport) -> String {
    let SeriesReport { workload, requests, scale, work, cores, optimum, .. } = report;
    let mut text = format!("{workload}: {requests} requests, waits × {scale}, work × {work}, P = {cores}\n");
    // Writing into a String does not fail.
    if let Some(first) = report.experiments.first() {
        let _ = writeln!(text, "control values of every run: {}", first.run.control);
    }
    let [best, work, chain, arrival] = [optimum.seconds(), optimum.work, optimum.chain, optimum.arrival];
    let _ = writeln!(
        text,
        "optimum {best:.3} s: the largest of work/P {work:.3} s, longest request {chain:.3} s, order of arrival {arrival:.3} s\n"
    );
    text
}

fn row(of: &ExperimentReport) -> [String; 14] {
    let run = &of.run;
    let control = of.experiment.number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    [
        control,
        of.experiment.title.clone(),
        format!("{:.3}", run.wall),
        format!("{:.0}", run.rate),
        format!("{:.2}", run.user),
        format!("{:.2}", run.system),
        run.voluntary_switches.to_string(),
        run.involuntary_switches.to_string(),
        run.threads_peak.to_string(),
        mebibytes(run.memory_peak),
        milliseconds(run.latency.p50),
        milliseconds(run.latency.p99),
        milliseconds(run.latency.max),
        format!("{:+.1} %", of.above_optimum * 100.0),
    ]
}

fn widths(rows: &[[String; 14]]) -> [usize; 14] {
    std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(HEADING[column].chars().count())
    })
}

/// Aligns text to the left, numbers to the right.
fn write_row(text: &mut String, cells: &[String; 14], widths: &[usize; 14]) {
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = match column {
            0 => write!(text, "{cell:>width$}"),
            1 => write!(text, "  {cell:<width$}"),
            _ => write!(text, "  {cell:>width$}"),
        };
    }
    text.push('\n');
}
