//! One chart: a drawing in SVG that stretches to the width of the page, and beside it labels that do not: text has the size of the
//! page's text on a telephone too. Behind the lines are the phases of the run.
//!
//! Colours and dashes are classes of `style.css`, so that the chart follows the theme and prints well. Lines that differ in
//! colour differ in dashes or width as well. The chart has no script: `hover.js` finds it by its `data-` attributes, and its
//! numbers in its table.

use super::markup::{Table, escaped};
use super::scale::Scale;
use crate::recording::Phase;
use std::fmt::Write as _;

/// Width of the drawing in its own units; the page stretches it. `hover.js` knows it from the drawing.
const WIDTH: f64 = 1000.0;
/// The name of a phase is omitted if the phase has less than this share of the width.
const NAMED_SHARE_MIN: f64 = 0.04;
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
    /// Height of the drawing, in pixels of the page.
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
    /// Length on the x axis for which a value holds, such as a second; zero for values of moments.
    pub(super) row: f64,
    pub(super) series: Vec<Series>,
    pub(super) phases: &'a [Phase],
}

impl Chart<'_> {
    /// Legend, drawing and table. `value` formats a value of the table.
    pub(super) fn html(&self, place: Label, value: Label) -> String {
        let Chart { id, height, .. } = self;
        format!(
            "<figure data-table=\"{id}\">\n{}<p class=\"axis\">{}</p>\n<div class=\"plot\" style=\"height:{height}px\">\n{}{}</div>\n\
             <p class=\"axis x\">{}</p>\n<output></output>\n</figure>\n{}",
            self.legend(),
            escaped(self.y_name),
            self.svg(),
            self.labels(),
            escaped(self.x_name),
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
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}\">\n"
        );
        for (index, phase) in self.drawn_phases() {
            let (from, to) = (self.x_of(phase.from), self.x_of(phase.to));
            let (width, class) = ((to - from).max(0.0), if index % 2 == 0 { "even" } else { "odd" });
            let name = escaped(&phase.name);
            let _ = writeln!(
                out,
                "<rect class=\"phase {class}\" x=\"{from:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>{name}</title></rect>"
            );
        }
        for tick in &self.y.ticks {
            let _ = writeln!(out, "<path class=\"grid\" d=\"M0 {:.1}H{WIDTH}\"/>", self.y_of(*tick));
        }
        for tick in &self.x.ticks {
            let _ = writeln!(out, "<path class=\"mark\" d=\"M{:.1} {height}v-4\"/>", self.x_of(*tick));
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M0 {height}H{WIDTH}\"/>");
        for series in &self.series {
            let kind = if series.shape == Shape::Area { "area" } else { "line" };
            let path = self.path(series);
            let _ = writeln!(out, "<path class=\"{kind} {}\" d=\"{path}\"/>", series.class);
        }
        let _ = writeln!(out, "<path class=\"cursor\" d=\"M0 0V{height}\" visibility=\"hidden\"/>\n</svg>");
        out
    }

    /// The labels of both axes and the names of the phases, at shares of the drawing. Every other label of the x axis is hidden on a
    /// narrow page.
    fn labels(&self) -> String {
        let mut out = String::from("<div class=\"labels\" aria-hidden=\"true\">\n");
        for tick in &self.y.ticks {
            let (top, label) = (100.0 - 100.0 * self.y.share(*tick), escaped(&(self.y_label)(*tick)));
            let _ = writeln!(out, "<span class=\"y\" style=\"top:{top:.2}%\">{label}</span>");
        }
        for (index, tick) in self.x.ticks.iter().enumerate() {
            let (left, label) = (100.0 * self.x.share(*tick), escaped(&(self.x_label)(*tick)));
            let class = if index % 2 == 0 { "x" } else { "x odd" };
            let _ = writeln!(out, "<span class=\"{class}\" style=\"left:{left:.2}%\">{label}</span>");
        }
        for (_, phase) in self.drawn_phases() {
            let (from, to) = (self.x.share(phase.from), self.x.share(phase.to));
            if to - from >= NAMED_SHARE_MIN {
                let (left, width, name) = (100.0 * from, 100.0 * (to - from), escaped(&phase.name));
                let _ =
                    writeln!(out, "<span class=\"phase\" style=\"left:{left:.2}%;width:{width:.2}%\">{name}</span>");
            }
        }
        out.push_str("</div>\n");
        out
    }

    /// The phases, if there are several: every other one has a tinted background.
    fn drawn_phases(&self) -> impl Iterator<Item = (usize, &Phase)> {
        self.phases.iter().take(PHASES_MAX).filter(|_| self.phases.len() > 1).enumerate()
    }

    /// The x coordinate of a value, in units of the drawing.
    fn x_of(&self, value: f64) -> f64 {
        self.x.share(value) * WIDTH
    }

    fn y_of(&self, value: f64) -> f64 {
        self.height - self.y.share(value) * self.height
    }

    /// The commands of a path. A missing value interrupts it. The last value before a gap, and that at the end, holds for its row; the
    /// value of a moment without neighbours is a dot.
    fn path(&self, series: &Series) -> String {
        let mut path = String::new();
        for piece in pieces(&self.places, &series.values) {
            let points: Vec<(f64, f64)> = piece.iter().map(|(x, y)| (self.x_of(*x), self.y_of(*y))).collect();
            match series.shape {
                Shape::Line => append_line(&points, &mut path),
                Shape::Steps | Shape::Area => append_steps(&points, &mut path),
            }
            if let Some((last, _)) = piece.last().filter(|_| self.row > 0.0) {
                let _ = write!(path, "H{:.1}", self.x_of(last + self.row));
            } else if points.len() == 1 {
                // A line of length zero is not drawn; with a tiny length, round ends make a dot.
                path.push_str("h.1");
            }
            if series.shape == Shape::Area {
                let from = points.first().map_or(0.0, |point| point.0);
                let _ = write!(path, "V{:.1}H{from:.1}Z", self.height);
            }
        }
        path
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
}

fn append_steps(points: &[(f64, f64)], path: &mut String) {
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = match index {
            0 => write!(path, "M{x:.1} {y:.1}"),
            _ => write!(path, "H{x:.1}V{y:.1}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: Vec<Option<f64>>, shape: Shape, row: f64) -> Chart<'static> {
        Chart {
            id: "t",
            title: "<t>",
            height: 130.0,
            x: Scale::time(3.0),
            x_label: |x| format!("{x} <s>"),
            x_name: "<s>",
            y: Scale::from_zero(10.0),
            y_label: |y| format!("{y} <u>"),
            y_name: "<n>",
            places: vec![0.0, 1.0, 2.0],
            row,
            series: vec![Series { name: "<a>".into(), class: "p50", shape, values }],
            phases: &[],
        }
    }

    #[track_caller]
    fn check_path(values: [Option<f64>; 3], shape: Shape, row: f64, path: &str) {
        let chart = chart(values.to_vec(), shape, row);
        assert_eq!(chart.path(&chart.series[0]), path);
    }

    #[test]
    fn a_gap_ends_the_line_and_a_lone_point_is_a_dot() {
        check_path([Some(1.0), None, Some(10.0)], Shape::Line, 0.0, "M0.0 117.0h.1M666.7 0.0h.1");
    }

    #[test]
    fn the_value_of_a_second_is_drawn_to_the_end_of_that_second() {
        check_path([Some(1.0), None, Some(10.0)], Shape::Line, 1.0, "M0.0 117.0H333.3M666.7 0.0H1000.0");
        check_path([Some(0.0), Some(5.0), Some(10.0)], Shape::Line, 1.0, "M0.0 130.0L333.3 65.0L666.7 0.0H1000.0");
        check_path([Some(0.0), Some(5.0), Some(10.0)], Shape::Steps, 1.0, "M0.0 130.0H333.3V65.0H666.7V0.0H1000.0");
    }

    #[test]
    fn an_area_ends_on_the_axis_where_it_began() {
        let path = "M0.0 0.0H333.3V130.0H666.7V65.0H1000.0V130.0H0.0Z";
        check_path([Some(10.0), Some(0.0), Some(5.0)], Shape::Area, 1.0, path);
    }

    #[test]
    fn names_are_escaped_and_each_value_stands_in_the_table() {
        let html =
            chart(vec![Some(1.0), None, Some(10.0)], Shape::Line, 1.0).html(|x| format!("{x} s"), |y| format!("{y} u"));
        assert!(!["<a>", "<t>", "<s>", "<u>", "<n>"].iter().any(|raw| html.contains(raw)), "{html}");
        for part in ["<th scope=\"row\">2 s</th><td>10 u</td>", "<td>—</td>", "data-table=\"t\"", "id=\"t\""] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn labels_are_text_of_the_page_which_does_not_shrink_with_the_drawing() {
        let html = chart(vec![Some(1.0); 3], Shape::Line, 1.0).html(|x| x.to_string(), |y| y.to_string());
        assert!(!html.contains("<text"), "{html}");
        assert!(html.contains("<span class=\"y\" style=\"top:0.00%\">10 &lt;u&gt;</span>"), "{html}");
        assert!(html.contains("<span class=\"x odd\" style=\"left:33.33%\">1 &lt;s&gt;</span>"), "{html}");
    }
}
