//! Charts with the run's seconds on the x axis: rate, percentiles, errors.

use super::chart::{Chart, Label, Series, Shape};
use super::scale::Scale;
use crate::quantity::{NONE, count, nanoseconds, three_digits};
use crate::recording::{Interval, Percentiles, Recording};

/// Height of the charts' drawings in pixels.
pub(super) const HEIGHT: f64 = 200.0;
/// Replaces a chart of latencies if there are none.
pub(super) const NOTHING_MEASURED: &str = "<p class=\"soft\">No latency was measured.</p>\n";
/// The name of the x axis.
pub(super) const TIME: &str = "time since the start";

/// Seconds that the axis covers: all rows and phases.
pub(super) fn seconds(run: &Recording) -> f64 {
    let rows = run.intervals.last().map_or(run.seconds, |row| f64::from(row.at + run.interval_seconds.max(1)));
    run.phases.iter().map(|phase| phase.to).fold(rows, f64::max)
}

/// A time on the axis or in the table: `90 s`, `2 min`.
pub(super) fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        whole if whole < 60 || seconds < 60.0 => format!("{whole} s"),
        whole if whole < 3600 && whole.is_multiple_of(60) => format!("{} min", whole / 60),
        whole if whole < 3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        whole if whole.is_multiple_of(3600) => format!("{} h", whole / 3600),
        whole => format!("{}:{:02}:{:02} h", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

/// A number on an axis, without superfluous decimals.
pub(super) fn plain(value: f64) -> String {
    if value >= 1.0 || value == 0.0 { count(value.round() as u64) } else { format!("{value:.2}") }
}

/// A duration on an axis: `500 µs`, `2 ms`; the table has three digits.
pub(super) fn duration_tick(ns: f64) -> String {
    let unit = |size: f64, name: &str| format!("{:.0} {name}", ns / size);
    match ns {
        ns if ns < 0.9995e3 => unit(1.0, "ns"),
        ns if ns < 0.9995e6 => unit(1e3, "µs"),
        ns if ns < 0.9995e9 => unit(1e6, "ms"),
        _ => unit(1e9, "s"),
    }
}

/// A duration in a table.
pub(super) fn duration(ns: f64) -> String {
    nanoseconds(ns as u64)
}

fn rate(value: f64) -> String {
    if value.is_finite() {
        format!("{}/s", if value < 99.95 { three_digits(value) } else { count(value.round() as u64) })
    } else {
        NONE.into()
    }
}

/// A chart over the rows of a run.
fn chart<'a>(
    run: &'a Recording,
    id: &'a str,
    title: &'a str,
    y: (Scale, Label, &'a str),
    series: Vec<Series>,
) -> Chart<'a> {
    Chart {
        id,
        title,
        height: HEIGHT,
        x: Scale::time(seconds(run)),
        x_label: clock,
        x_name: TIME,
        y: y.0,
        y_label: y.1,
        y_name: y.2,
        places: run.intervals.iter().map(|row| f64::from(row.at)).collect(),
        row: row_seconds(run),
        series,
        phases: &run.phases,
    }
}

/// Length of a row of the run.
pub(super) fn row_seconds(run: &Recording) -> f64 {
    f64::from(run.interval_seconds.max(1))
}

/// Values of all rows.
fn rows(run: &Recording, value: impl Fn(&Interval) -> Option<f64>) -> Vec<Option<f64>> {
    run.intervals.iter().map(value).collect()
}

/// Counts of a row, per second.
fn each_second(run: &Recording, of: fn(&Interval) -> u64) -> Vec<Option<f64>> {
    rows(run, |row| Some(of(row) as f64 / row_seconds(run)))
}

fn most(series: &[Series]) -> f64 {
    series.iter().flat_map(|series| series.values.iter().flatten()).copied().fold(0.0, f64::max)
}

/// The smallest and the largest of the values.
pub(super) fn extent(series: &[Series]) -> (f64, f64) {
    let values = series.iter().flat_map(|series| series.values.iter().flatten());
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(*value), most.max(*value)))
}

/// Planned and actual rate.
pub(super) fn rates(run: &Recording) -> String {
    let line =
        |name: &str, class, of| Series { name: name.into(), class, shape: Shape::Steps, values: each_second(run, of) };
    let series = vec![
        line("planned", "planned", |row| row.planned),
        line("sent", "sent", |row| row.sent),
        line("right answers", "right", |row| row.right),
    ];
    let scale = Scale::from_zero(most(&series));
    chart(run, "rates", "Rate over time", (scale, plain, "requests each second"), series).html(clock, rate)
}

/// Percentiles of the latency, on a logarithmic axis.
pub(super) fn latencies(run: &Recording) -> String {
    type Value = fn(&Percentiles) -> u64;
    let percentiles: [(&'static str, &'static str, Value); 4] = [
        ("p50", "p50", |of| of.p50),
        ("p90", "p90", |of| of.p90),
        ("p99", "p99", |of| of.p99),
        ("max", "max", |of| of.max),
    ];
    let series: Vec<Series> =
        percentiles.map(|(name, class, value)| latency_series(run, name.into(), class, value)).into();
    let (least, most) = extent(&series);
    if most == 0.0 {
        return NOTHING_MEASURED.into();
    }
    let scale = Scale::logarithmic(least, most);
    chart(run, "latencies", "Latency over time", (scale, duration_tick, "latency"), series).html(clock, duration)
}

/// One percentile of each row. None: nothing was measured.
pub(super) fn latency_series(
    run: &Recording,
    name: String,
    class: &'static str,
    value: fn(&Percentiles) -> u64,
) -> Series {
    let of = |row: &Interval| (row.latency.max > 0).then(|| value(&row.latency) as f64);
    Series { name, class, shape: Shape::Line, values: rows(run, of) }
}

/// Wrong answers, and on top of them requests without an answer.
pub(super) fn errors(run: &Recording) -> String {
    let area = |name: &str, class, values| Series { name: name.into(), class, shape: Shape::Area, values };
    let both = each_second(run, |row| row.wrong + row.failed);
    let series = vec![
        area("all errors", "failed", both),
        area("of them wrong or late answers", "wrong", each_second(run, |row| row.wrong)),
    ];
    let scale = Scale::from_zero(most(&series).max(1.0));
    chart(run, "errors", "Errors over time", (scale, plain, "errors each second"), series).html(clock, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_on_axes_are_short() {
        assert_eq!(
            [0.0, 30.0, 60.0, 90.0, 3600.0, 3660.0].map(clock),
            ["0 s", "30 s", "1 min", "1:30 min", "1 h", "1:01:00 h"]
        );
        assert_eq!([500.0, 1e3, 2e5, 1e6, 5e9].map(duration_tick), ["500 ns", "1 µs", "200 µs", "1 ms", "5 s"]);
        assert_eq!([0.0, 0.2, 1500.0].map(plain), ["0", "0.20", "1,500"]);
    }
}
