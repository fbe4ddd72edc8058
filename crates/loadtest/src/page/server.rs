//! The server's own metrics (`--metrics`) on the time axis of the run: one chart each for CPU, memory and queues.

use super::chart::{Chart, Label, Series, Shape};
use super::over_time::{TIME, clock, plain, seconds};
use super::scale::Scale;
use crate::metrics::series::{SeriesKind, kind};
use crate::quantity::{bytes, three_digits};
use crate::recording::{Recording, ServerSample};
use std::collections::BTreeSet;

const HEIGHT: f64 = 130.0;
/// Lines of a chart; further series of that kind are omitted, and the page says so.
const LINES: [&str; 5] = ["s0", "s1", "s2", "s3", "s4"];

/// What differs between the charts.
struct Group {
    kind: SeriesKind,
    id: &'static str,
    title: &'static str,
    y_name: &'static str,
    tick: Label,
    value: Label,
}

const GROUPS: [Group; 3] = [
    Group {
        kind: SeriesKind::Cpu,
        id: "server-cpu",
        title: "CPU",
        y_name: "cores",
        tick: short,
        value: |cores| format!("{cores:.2} cores"),
    },
    Group {
        kind: SeriesKind::Memory,
        id: "server-memory",
        title: "Memory",
        y_name: "bytes",
        tick: byte_tick,
        value: bytes,
    },
    Group {
        kind: SeriesKind::Queue,
        id: "server-queues",
        title: "Queues",
        y_name: "length",
        tick: short,
        value: three_digits,
    },
];

/// The charts; empty if there are no samples.
pub(super) fn html(run: &Recording) -> String {
    if run.server.is_empty() {
        return String::new();
    }
    let groups: String = GROUPS.iter().map(|group| group.html(run)).collect();
    format!(
        "<section>\n<h2>The server's own numbers</h2>\n<p class=\"soft\">As its metrics page gave them.</p>\n{groups}</section>\n"
    )
}

impl Group {
    fn html(&self, run: &Recording) -> String {
        let names: BTreeSet<&str> =
            run.server.iter().flat_map(|sample| sample.values.keys()).map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| kind(name) == Some(self.kind)).collect();
        if names.is_empty() {
            return String::new();
        }
        let line = |(name, class): (&&str, &&'static str)| Series {
            name: (*name).to_owned(),
            class,
            shape: Shape::Line,
            values: self.values(&run.server, name),
        };
        let series: Vec<Series> = names.iter().zip(&LINES).map(line).collect();
        let most = series.iter().flat_map(|series| series.values.iter().flatten()).copied().fold(0.0, f64::max);
        let chart = Chart {
            id: self.id,
            title: self.title,
            height: HEIGHT,
            x: Scale::time(seconds(run)),
            x_label: clock,
            x_name: TIME,
            y: Scale::from_zero(most),
            y_label: self.tick,
            y_name: self.y_name,
            places: run.server.iter().map(|sample| sample.at).collect(),
            row: 0.0,
            series,
            phases: &run.phases,
        };
        let left_out = match names.len().saturating_sub(LINES.len()) {
            0 => String::new(),
            more => format!("<p class=\"soft\">{more} more series are left out.</p>\n"),
        };
        format!("<h3>{}</h3>\n{}{left_out}", self.title, chart.html(clock, self.value))
    }

    /// The values of a series. CPU seconds are a counter, of which the slope is shown: cores in use since the previous
    /// sample.
    fn values(&self, samples: &[ServerSample], name: &str) -> Vec<Option<f64>> {
        let value = |sample: &ServerSample| sample.values.get(name).copied();
        if self.kind != SeriesKind::Cpu {
            return samples.iter().map(value).collect();
        }
        let slope = |pair: &[ServerSample]| {
            let (used, passed) = (value(&pair[1])? - value(&pair[0])?, pair[1].at - pair[0].at);
            // A counter that decreases belongs to a restarted process.
            (used >= 0.0 && passed > 0.0).then(|| used / passed)
        };
        std::iter::once(None).chain(samples.windows(2).map(slope)).collect()
    }
}

fn short(value: f64) -> String {
    if value >= 1.0 && value.fract() > 1e-9 { three_digits(value) } else { plain(value) }
}

/// An amount on an axis, in whole units.
fn byte_tick(amount: f64) -> String {
    let text = bytes(amount);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape as RunShape};

    #[test]
    fn cpu_seconds_become_cores() {
        let sample = |at: f64, cpu: f64| ServerSample { at, values: [("c".to_owned(), cpu)].into() };
        let samples = [sample(0.0, 10.0), sample(2.0, 11.0), sample(3.0, 1.0), sample(4.0, 2.5)];
        assert_eq!(GROUPS[0].values(&samples, "c"), [None, Some(0.5), None, Some(1.5)]);
    }

    #[test]
    fn each_kind_of_number_has_a_chart_on_the_time_axis() {
        let html = html(&sample_run::recording(RunShape::Stall));
        for part in ["server-cpu", "server-memory", "server-queues", "sapsan_pool_queued", "200 MB"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(super::html(&sample_run::nothing_answered()), "");
    }
}
