//! Charts as SVG: the timelines of a run, and the wall times of all runs on a logarithmic scale.
//!
//! Colours are CSS classes of the page, so that the charts follow its theme. The caller escapes text that is not constant.

use super::{SeriesReport, name};
use crate::trace::Timeline;
use std::fmt::Write;

/// Width of the drawing, in its own units.
const WIDTH: f64 = 720.0;
/// Room for the numbers of the axis.
const LEFT: f64 = 44.0;
/// Height of one curve, and the space between two.
const CURVE: f64 = 64.0;
const GAP: f64 = 22.0;

/// Two curves one above the other: running tasks with a line at P, and waiting tasks.
pub(super) fn timeline(timeline: &Timeline, cores: usize, title: &str) -> String {
    let height = 2.0 * CURVE + 2.0 * GAP + 18.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Timelines of {title}\">");
    let most = maximum(&timeline.running).max(cores as f64);
    curve(&mut svg, GAP, &timeline.running, most, ("running", "computing, or ready to"));
    let y = GAP + CURVE * (1.0 - cores as f64 / most);
    let _ = write!(
        svg,
        "<line class=\"cores\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"label\" x=\"{WIDTH}\" y=\"{:.1}\" text-anchor=\"end\">P = {cores}</text>",
        y - 3.0
    );
    let top = 2.0 * GAP + CURVE;
    curve(&mut svg, top, &timeline.waiting, maximum(&timeline.waiting).max(1.0), ("waiting", "waiting"));
    time_axis(&mut svg, top + CURVE, timeline.step * timeline.running.len() as f64);
    svg.push_str("</svg>");
    svg
}

fn maximum(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// A filled step curve with its name and its largest value.
fn curve(svg: &mut String, top: f64, values: &[f64], most: f64, (class, name): (&str, &str)) {
    let bottom = top + CURVE;
    let step = (WIDTH - LEFT) / values.len().max(1) as f64;
    let mut path = format!("M{LEFT} {bottom:.1}");
    for (index, value) in values.iter().enumerate() {
        let (x, y) = (LEFT + step * index as f64, bottom - CURVE * (value / most).min(1.0));
        // Writing into a String does not fail.
        let _ = write!(path, "L{x:.1} {y:.1}H{:.1}", x + step);
    }
    let _ = write!(path, "L{WIDTH} {bottom:.1}Z");
    let _ = write!(
        svg,
        "<path class=\"{class}\" d=\"{path}\"/><line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>\
         <text class=\"label\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><text class=\"label\" x=\"{}\" y=\"{bottom:.1}\" text-anchor=\"end\">0</text>\
         <text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{name}</text>",
        LEFT - 6.0,
        top + 9.0,
        number(most),
        LEFT - 6.0,
        top - 5.0
    );
}

fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn time_axis(svg: &mut String, bottom: f64, seconds: f64) {
    for part in 0..=4 {
        let (share, y) = (f64::from(part) / 4.0, bottom + 15.0);
        let x = LEFT + (WIDTH - LEFT) * share;
        let anchor = match part {
            0 => "start",
            4 => "end",
            _ => "middle",
        };
        let time = duration(seconds * share);
        let _ = write!(svg, "<text class=\"label\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{time}</text>");
    }
}

/// Seconds, or milliseconds below one.
fn duration(seconds: f64) -> String {
    if seconds == 0.0 {
        "0".to_owned()
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

/// Height of a row of the comparison.
const ROW: f64 = 24.0;
/// Room for the names of the experiments.
const NAMES: f64 = 300.0;
/// Room for the last label.
const RIGHT: f64 = 70.0;

/// A dot for each experiment on a logarithmic scale of time, and a line at the optimum.
pub(super) fn comparison(report: &SeriesReport) -> String {
    let optimum = report.optimum.seconds();
    let walls = report.experiments.iter().map(|one| one.run.wall);
    let most = walls.clone().fold(optimum, f64::max);
    let least = walls.fold(optimum, f64::min);
    let range = (most / least).ln().max(0.01);
    let at = |seconds: f64| NAMES + (WIDTH - NAMES - RIGHT) * (seconds / least).ln().max(0.0) / range;
    let height = ROW * (report.experiments.len() as f64 + 1.0) + 4.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Wall time of each model\">");
    let x = at(optimum);
    let _ = write!(
        svg,
        "<line class=\"cores\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{ROW}\" y2=\"{height}\"/><text class=\"label\" x=\"{x:.1}\" y=\"14\">optimum {}</text>",
        duration(optimum)
    );
    for (index, one) in report.experiments.iter().enumerate() {
        let (y, dot) = (ROW * (index as f64 + 1.5), at(one.run.wall));
        let name = name(one);
        let _ = write!(
            svg,
            "<text class=\"row\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text><line class=\"above\" x1=\"{x:.1}\" x2=\"{dot:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <circle class=\"dot\" cx=\"{dot:.1}\" cy=\"{y:.1}\" r=\"4.5\"/><text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 14.0,
            y + 4.0,
            dot + 9.0,
            y + 4.0,
            duration(one.run.wall)
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_steps_from_value_to_value_and_its_line_stands_at_the_cores() {
        let timeline = timeline(&Timeline { step: 0.25, running: vec![0.0, 4.0], waiting: vec![0.5, 0.0] }, 2, "x");
        assert!(timeline.contains("M44 86.0L44.0 86.0H382.0L382.0 22.0H720.0L720 86.0Z"), "{timeline}");
        assert!(timeline.contains("y1=\"54.0\" y2=\"54.0\""), "half of four: {timeline}");
        assert!(timeline.contains(">500 ms</text>"), "{timeline}");
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        assert_eq!([0.0, 0.0184, 1.0945].map(duration), ["0", "18 ms", "1.09 s"]);
    }
}
