//! One chart as SVG: a frame with axes, lines or filled areas, and the phases of the run behind them.
//!
//! Colours and dashes are classes of `style.css`, so that the chart follows the theme and prints well. Lines that differ in
//! colour differ in dashes or width as well. The chart has no script: `hover.js` finds it by its `data-` attributes, and its
//! numbers in its table.

use super::markup::{Table, escaped};
use super::scale::Scale;
use crate::recording::Phase;
use std::fmt::Write as _;

/// Size of the drawing in its own units; the page scales it.
const WIDTH: f64 = 920.0;
/// Margins: on the left for the labels of the y axis, on the right for the last label of the x axis, above for names of phases,
/// below for times.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 22.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 44.0;
/// Approximate width of a letter of the small text.
const LETTER: f64 = 6.4;
/// The name of a phase is omitted if it has room for fewer letters.
const LETTERS_LEAST: usize = 4;
/// Largest number of phases that are drawn; more of them would be stripes.
const PHASES_MAX: usize = 40;

/// The text of an axis label, from its value.
pub(super) type Label = fn(f64) -> String;

/// How points are drawn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shape {
    /// A line through the points.
    Line,
    /// A line that keeps its height until the next point.
    Steps,
    /// The area below such a line.
    Area,
}

/// One series of a chart.
pub(super) struct Series {
    /// The name in the legend and in the table's head.
    pub(super) name: String,
    /// The class of its colour.
    pub(super) class: &'static str,
    pub(super) shape: Shape,
    /// One value for each x value of the chart. None: nothing was measured.
    pub(super) values: Vec<Option<f64>>,
}

/// A chart with its table.
pub(super) struct Chart<'a> {
    /// Id of the table; unique on the page.
    pub(super) id: &'a str,
    /// Read to users of screen readers.
    pub(super) title: &'a str,
    pub(super) height: f64,
    pub(super) x: Scale,
    pub(super) x_label: Label,
    /// The x axis's name with its unit.
    pub(super) x_name: &'a str,
    pub(super) y: Scale,
    pub(super) y_label: Label,
    /// The y axis's name with its unit.
    pub(super) y_name: &'a str,
    /// The x values of all series.
    pub(super) places: Vec<f64>,
    pub(super) series: Vec<Series>,
    pub(super) phases: &'a [Phase],
}

impl Chart<'_> {
    /// Legend, drawing and table. `value` formats a value of the table.
    pub(super) fn html(&self, place: Label, value: Label) -> String {
        let Chart { id, .. } = self;
        let (left, right) = (LEFT, WIDTH - RIGHT);
        format!(
            "<figure data-table=\"{id}\" data-left=\"{left}\" data-right=\"{right}\">\n{}{}<output></output>\n</figure>\n{}",
            self.legend(),
            self.svg(),
            self.table(place, value).folded(id)
        )
    }

    fn legend(&self) -> String {
        let mut out = String::from("<figcaption>");
        for series in &self.series {
            let (name, class) = (escaped(&series.name), series.class);
            let sign = match series.shape {
                Shape::Area => format!("<rect class=\"area {class}\" y=\"1\" width=\"26\" height=\"10\"/>"),
                _ => format!("<path class=\"line {class}\" d=\"M1 6h24\"/>"),
            };
            let _ = write!(out, "<span><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\">{sign}</svg>{name}</span>");
        }
        out.push_str("</figcaption>\n");
        out
    }

    fn svg(&self) -> String {
        let (height, title) = (self.height, escaped(self.title));
        let mut out =
            format!("<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n");
        self.append_phases(&mut out);
        self.append_axes(&mut out);
        for series in &self.series {
            let kind = if series.shape == Shape::Area { "area" } else { "line" };
            let path = self.path(series);
            let _ = writeln!(out, "<path class=\"{kind} {}\" d=\"{path}\"/>", series.class);
        }
        let (top, bottom) = (ABOVE, self.bottom());
        let _ = writeln!(out, "<path class=\"cursor\" d=\"M0 {top}V{bottom}\" visibility=\"hidden\"/>\n</svg>");
        out
    }

    fn bottom(&self) -> f64 {
        self.height - BELOW
    }

    /// The x coordinate of a value, in units of the drawing.
    fn x_of(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y_of(&self, value: f64) -> f64 {
        self.bottom() - self.y.share(value) * (self.bottom() - ABOVE)
    }

    /// Every other phase has a tinted background; names are above if there is room.
    fn append_phases(&self, out: &mut String) {
        if self.phases.len() < 2 {
            return;
        }
        let (top, height) = (ABOVE, self.bottom() - ABOVE);
        for (index, phase) in self.phases.iter().take(PHASES_MAX).enumerate() {
            let (from, to) = (self.x_of(phase.from), self.x_of(phase.to));
            let width = (to - from).max(0.0);
            let name = escaped(&phase.name);
            let class = if index % 2 == 0 { "even" } else { "odd" };
            let _ = writeln!(
                out,
                "<rect class=\"phase {class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\">\
                 <title>{name}</title></rect>"
            );
            let letters = (width / LETTER) as usize;
            if letters >= LETTERS_LEAST {
                let (x, y, short) = (from + 4.0, ABOVE - 9.0, escaped(&crate::printable::cut(&phase.name, letters)));
                let _ = writeln!(out, "<text class=\"name\" x=\"{x:.1}\" y=\"{y}\">{short}</text>");
            }
        }
    }

    fn append_axes(&self, out: &mut String) {
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, ABOVE, self.bottom());
        for tick in &self.y.ticks {
            let (y, label) = (self.y_of(*tick), escaped(&(self.y_label)(*tick)));
            let (x, baseline) = (left - 8.0, y + 4.0);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>");
            let _ =
                writeln!(out, "<text class=\"tick\" x=\"{x}\" y=\"{baseline:.1}\" text-anchor=\"end\">{label}</text>");
        }
        for tick in &self.x.ticks {
            let (x, label) = (self.x_of(*tick), escaped(&(self.x_label)(*tick)));
            let (end, baseline) = (bottom + 4.0, bottom + 18.0);
            let _ = writeln!(out, "<path class=\"mark\" d=\"M{x:.1} {bottom}V{end}\"/>");
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{baseline}\" text-anchor=\"middle\">{label}</text>"
            );
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{left} {bottom}H{right}\"/>");
        let (middle, low) = ((left + right) / 2.0, self.height - 6.0);
        let x_name = escaped(self.x_name);
        let _ = writeln!(out, "<text class=\"name\" x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{x_name}</text>");
        let (centre, y_name) = ((top + bottom) / 2.0, escaped(self.y_name));
        let _ = writeln!(
            out,
            "<text class=\"name\" transform=\"translate(13 {centre}) rotate(-90)\" text-anchor=\"middle\">{y_name}</text>"
        );
    }

    /// The commands of a path. A missing value interrupts it; a piece of one point is a dot.
    fn path(&self, series: &Series) -> String {
        let mut path = String::new();
        for piece in pieces(&self.places, &series.values) {
            let points: Vec<(f64, f64)> = piece.iter().map(|(x, y)| (self.x_of(*x), self.y_of(*y))).collect();
            match series.shape {
                Shape::Line => append_line(&points, &mut path),
                Shape::Steps => append_steps(&points, self.step(), &mut path),
                Shape::Area => {
                    let from = points.first().map_or(LEFT, |point| point.0);
                    append_steps(&points, self.step(), &mut path);
                    let _ = write!(path, "V{:.1}H{from:.1}Z", self.bottom());
                }
            }
        }
        path
    }

    /// Length of the last step.
    fn step(&self) -> f64 {
        match self.places.as_slice() {
            [.., before, last] => (self.x_of(2.0 * last - before) - self.x_of(*last)).max(0.0),
            _ => WIDTH - RIGHT - LEFT,
        }
    }

    fn table(&self, place: Label, value: Label) -> Table {
        let names = self.series.iter().map(|series| series.name.as_str());
        let mut table = Table::new(&std::iter::once(self.x_name).chain(names).collect::<Vec<_>>());
        for (index, at) in self.places.iter().enumerate() {
            let cell = |series: &Series| series.values.get(index).copied().flatten();
            let values = self.series.iter().map(|series| cell(series).map_or(crate::quantity::NONE.into(), value));
            table.placed_row(self.x_of(*at), std::iter::once(place(*at)).chain(values));
        }
        table
    }
}

/// Runs of points without a gap.
fn pieces(places: &[f64], values: &[Option<f64>]) -> Vec<Vec<(f64, f64)>> {
    let points: Vec<Option<(f64, f64)>> =
        places.iter().zip(values).map(|(place, value)| value.map(|value| (*place, value))).collect();
    let pieces = points.split(Option::is_none).filter(|piece| !piece.is_empty());
    pieces.map(|piece| piece.iter().flatten().copied().collect()).collect()
}

fn append_line(points: &[(f64, f64)], path: &mut String) {
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    if points.len() == 1 {
        // A line of length zero is not drawn; with a tiny length, round ends make a dot.
        path.push_str("h.1");
    }
}

fn append_steps(points: &[(f64, f64)], last_step: f64, path: &mut String) {
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = match index {
            0 => write!(path, "M{x:.1} {y:.1}"),
            _ => write!(path, "H{x:.1}V{y:.1}"),
        };
    }
    let _ = write!(path, "h{last_step:.1}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: Vec<Option<f64>>, shape: Shape) -> Chart<'static> {
        Chart {
            id: "t",
            title: "<t>",
            height: 200.0,
            x: Scale::time(3.0),
            x_label: |x| x.to_string(),
            x_name: "s",
            y: Scale::from_zero(10.0),
            y_label: |y| y.to_string(),
            y_name: "n",
            places: vec![0.0, 1.0, 2.0],
            series: vec![Series { name: "<a>".into(), class: "p50", shape, values }],
            phases: &[],
        }
    }

    #[test]
    fn a_gap_ends_the_line_and_a_lone_point_is_a_dot() {
        let chart = chart(vec![Some(1.0), None, Some(10.0)], Shape::Line);
        let path = chart.path(&chart.series[0]);
        assert_eq!(path, "M72.0 143.0h.1M622.7 26.0h.1");
    }

    #[test]
    fn an_area_ends_on_the_axis_where_it_began() {
        let chart = chart(vec![Some(10.0), Some(0.0), Some(5.0)], Shape::Area);
        assert_eq!(chart.path(&chart.series[0]), "M72.0 26.0H347.3V156.0H622.7V91.0h275.3V156.0H72.0Z");
    }

    #[test]
    fn names_are_escaped_and_each_value_stands_in_the_table() {
        let html =
            chart(vec![Some(1.0), None, Some(10.0)], Shape::Line).html(|x| format!("{x} s"), |y| format!("{y} u"));
        assert!(!html.contains("<a>") && !html.contains("<t>"), "{html}");
        for part in ["<th scope=\"row\">2 s</th><td>10 u</td>", "<td>—</td>", "data-table=\"t\"", "id=\"t\""] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
