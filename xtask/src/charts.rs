//! `cargo xtask charts`: draws the charts of `docs/performance.md` from the tables in `bench/RESULTS.md` into
//! `docs/performance/*.svg`.
//!
//! Each bar names its run, row and figure. The colours have medium brightness and the background is transparent, so that a chart
//! is readable on light and dark pages.

use crate::tools;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The side of a row that a figure belongs to.
#[derive(Clone, Copy)]
enum Side {
    Other,
    Ours,
}

/// A bar: its owner, the row's first column, the side, and the unit after the figure in the table.
struct Bar(&'static str, &'static str, Side, &'static str);

/// Bars under one label.
struct Group {
    label: &'static str,
    bars: &'static [Bar],
}

struct Chart {
    /// The file's name without its extension.
    name: &'static str,
    title: &'static str,
    /// The meaning of a bar's length, and which end is better.
    note: &'static str,
    /// The unit of a bar's figure.
    unit: &'static str,
    /// The commands whose runs contain the rows.
    runs: &'static [&'static str],
    groups: &'static [Group],
}

/// The two sides of a row, the other one first.
const fn beside(other: &'static str, work: &'static str, unit: &'static str) -> [Bar; 2] {
    [Bar(other, work, Side::Other, unit), Bar("Sapsan", work, Side::Ours, unit)]
}

/// The two kinds of start.
const STARTS: [Bar; 2] = [
    Bar("after a clean stop", "start after a clean stop on that data", Side::Ours, SECONDS),
    Bar("after kill -9", "start after kill -9 on that data", Side::Ours, SECONDS),
];

const CPU: &str = " µs CPU";
const THOUSANDS: &str = "k/s";
const SECONDS: &str = " s";
const QUERY: &str = "registrations by month, asked ad hoc over 5900000 users";

const CHARTS: [Chart; 4] = [
    Chart {
        name: "http",
        title: "HTTP beside the floor",
        note: "CPU time of a request in microseconds; shorter is better.",
        unit: "µs",
        runs: &["cargo xtask bench http"],
        groups: &[
            Group {
                label: "GET by key, a million documents, 64 connections",
                bars: &beside("floor", "GET /users/ID, one million, 64 connections", CPU),
            },
            Group {
                label: "the same, 16 requests in flight on each",
                bars: &beside("floor", "GET /users/ID, one million, 64 connections, 16 pipelined", CPU),
            },
            Group {
                label: "rows of a join with filters, 64 connections",
                bars: &beside("floor", "GET /users/ID/visits, random filters, 64 connections", CPU),
            },
            Group {
                label: "an average over a join with filters, 64 connections",
                bars: &beside("floor", "GET /locations/ID/avg, random filters, 64 connections", CPU),
            },
        ],
    },
    Chart {
        name: "writes",
        title: "Durable writes beside Redis",
        note: "Thousands of acknowledged writes a second, each on disk; longer is better.",
        unit: "k/s",
        runs: &["cargo xtask bench writes"],
        groups: &[
            Group {
                label: "a change of a document, 64 connections",
                bars: &beside("Redis", "durable POST /visits/ID, 64 connections", THOUSANDS),
            },
            Group {
                label: "a new document, 64 connections",
                bars: &beside("Redis", "durable POST /visits/new, 64 connections", THOUSANDS),
            },
            Group {
                label: "a change of a document, 16 requests in flight on each",
                bars: &beside("Redis", "durable POST /visits/ID, 16 pipelined", THOUSANDS),
            },
            Group {
                label: "a new document, 16 requests in flight on each",
                bars: &beside("Redis", "durable POST /visits/new, 16 pipelined", THOUSANDS),
            },
        ],
    },
    Chart {
        name: "adhoc",
        title: "An ad hoc query beside SQLite and DuckDB",
        note: "Seconds for registrations by month over 5.9 million JSON documents, without an index; shorter is better.",
        unit: "s",
        runs: &["cargo xtask bench adhoc"],
        groups: &[Group {
            label: "",
            bars: &[
                Bar("SQLite, JSON in a column", QUERY, Side::Other, SECONDS),
                Bar("DuckDB over the NDJSON", QUERY, Side::Other, SECONDS),
                Bar("Sapsan", QUERY, Side::Ours, SECONDS),
            ],
        }],
    },
    Chart {
        name: "starts",
        title: "Time of a start",
        note: "Seconds until the port takes a connection, the median of several starts; shorter is better.",
        unit: "s",
        runs: &["cargo xtask bench import", "cargo xtask bench import full"],
        groups: &[
            Group { label: "1.76 million documents", bars: &STARTS },
            Group { label: "11.8 million documents", bars: &STARTS },
        ],
    },
];

/// A run in the results: its date, and the cells of its rows.
struct Run<'r> {
    date: &'r str,
    rows: Vec<Vec<&'r str>>,
}

/// The latest run of a command, with any options; not one on a second machine.
fn run_of<'r>(results: &'r str, command: &str) -> Result<Run<'r>, String> {
    let sections = results.split("\n## ").skip(1);
    let is_it = |heading: &str| {
        let named = heading.split('`').nth(1).unwrap_or_default();
        heading.ends_with('`')
            && (named == command || named.strip_prefix(command).is_some_and(|rest| rest.starts_with(" --")))
    };
    let mut found = sections.filter(|section| section.lines().next().is_some_and(is_it));
    let section = found.next().ok_or_else(|| format!("bench/RESULTS.md has no run of `{command}`"))?;
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect());
    Ok(Run { date: section.split(' ').next().unwrap_or_default(), rows: rows.collect() })
}

/// The figure before a unit.
fn before(text: &str, unit: &str) -> Option<f64> {
    let number = |at: usize| {
        let digits = text[..at].rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
        text[digits..at].parse().ok()
    };
    text.match_indices(unit).find_map(|(at, _)| number(at))
}

impl Bar {
    /// The figure. If several rows have the same first column, the one whose other side has the bar's name.
    fn figure(&self, run: &Run<'_>) -> Result<f64, String> {
        let Bar(name, work, side, unit) = self;
        let mut rows = run.rows.iter().filter(|row| row.first() == Some(work));
        let cell = match side {
            Side::Ours => rows.next().and_then(|row| row.get(2)),
            Side::Other => {
                let word = name.split([' ', ',']).next().unwrap_or_default();
                let mut cells = rows.filter_map(|row| row.get(1));
                // The floor and Redis are the other side of all rows of their run.
                match cells.clone().count() {
                    0 | 1 => cells.next(),
                    _ => cells.find(|cell| cell.contains(word)),
                }
            }
        };
        let figure = cell.and_then(|cell| before(cell, unit));
        figure.ok_or_else(|| format!("bench/RESULTS.md: the row `{work}` has no figure in `{unit}` for {name}"))
    }
}

const WIDTH: usize = 720;
const LEFT: usize = 190;
const BAR_WIDTH: f64 = 430.0;
const BAR_HEIGHT: usize = 16;
const TEXT: &str = "#787878";

impl Chart {
    fn svg(&self, results: &str) -> Result<String, String> {
        let runs: Vec<Run<'_>> = self.runs.iter().map(|command| run_of(results, command)).collect::<Result<_, _>>()?;
        // One run for all groups, or one for each group.
        let run_of_group = |number: usize| if runs.len() == 1 { &runs[0] } else { &runs[number] };
        let figures = self.groups.iter().enumerate().map(|(number, group)| {
            group.bars.iter().map(|bar| bar.figure(run_of_group(number))).collect::<Result<Vec<f64>, String>>()
        });
        let figures: Vec<Vec<f64>> = figures.collect::<Result<_, _>>()?;
        let most = figures.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
        let (mut body, mut y) = (String::new(), 64);
        for (group, figures) in self.groups.iter().zip(&figures) {
            if !group.label.is_empty() {
                text(&mut body, (LEFT, y + 12, "start"), "", group.label);
                y += 20;
            }
            for (Bar(name, ..), figure) in group.bars.iter().zip(figures) {
                let width = (figure / most * BAR_WIDTH).max(1.0);
                let colour = if *name == "Sapsan" || self.runs.len() > 1 { "#3b82f6" } else { "#9a9a9a" };
                text(&mut body, (LEFT - 8, y + 12, "end"), "", name);
                let _ = writeln!(
                    body,
                    "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\" fill=\"{colour}\"/>"
                );
                let at = LEFT + 6 + width.ceil() as usize;
                text(&mut body, (at, y + 12, "start"), " font-weight=\"bold\"", &format!("{figure} {}", self.unit));
                y += BAR_HEIGHT + 4;
            }
            y += 10;
        }
        let mut dates: Vec<&str> = runs.iter().map(|run| run.date).collect();
        dates.dedup();
        let source = format!("{}, {}; all rows: bench/RESULTS.md", self.runs.join(" and "), dates.join(" and "));
        text(&mut body, (16, y + 12, "start"), " font-size=\"11\"", &source);
        let height = y + 26;
        let mut head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"{TEXT}\">\n<title>{}</title>\n",
            escaped(self.title)
        );
        text(&mut head, (16, 24, "start"), " font-size=\"16\" font-weight=\"bold\"", self.title);
        text(&mut head, (16, 46, "start"), " font-size=\"12\"", self.note);
        Ok(head + &body + "</svg>\n")
    }

    fn path(&self) -> PathBuf {
        tools::root().join("docs/performance").join(format!("{}.svg", self.name))
    }
}

fn text(out: &mut String, (x, y, anchor): (usize, usize, &str), style: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{style}>{}</text>", escaped(text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn results() -> Result<String, String> {
    let path = tools::root().join("bench/RESULTS.md");
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Draws all charts.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let results = results()?;
    for chart in CHARTS {
        let (svg, path) = (chart.svg(&results)?, chart.path());
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(&path, svg)).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod drawing {
    use super::*;

    #[test]
    fn the_charts_are_what_the_table_gives() {
        let results = results().unwrap();
        for chart in CHARTS {
            let drawn = std::fs::read_to_string(chart.path()).unwrap_or_default();
            assert!(drawn == chart.svg(&results).unwrap(), "{}: `cargo xtask charts` draws it anew", chart.name);
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_told() {
        let table = "\n## 2026 — `cargo xtask bench writes`, a second machine\n\n| a | 1k/s | 2k/s |\n\
                     \n## 2026-11-22 06:18 — `cargo xtask bench writes --rows=x`\n\n| a | 7k/s, 2 µs CPU | median 0.5 s, longest 9 s |\n";
        let run = run_of(table, "cargo xtask bench writes").unwrap();
        let figure = |side, unit| Bar("Redis", "a", side, unit).figure(&run);
        assert_eq!((figure(Side::Other, CPU), figure(Side::Ours, SECONDS)), (Ok(2.0), Ok(0.5)));
        assert!(figure(Side::Ours, CPU).unwrap_err().contains("the row `a`"));
        assert!(Bar("Redis", "b", Side::Ours, CPU).figure(&run).is_err());
        assert!(run_of(table, "cargo xtask bench http").is_err());
    }
}
