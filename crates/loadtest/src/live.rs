//! The live output of a run: one screen that is redrawn once a second, or plain lines.
//!
//! The engine makes a [`RunProgress`] once a second and passes it to [`Screen::show`]. On a terminal the screen is drawn over the
//! previous one. If standard error is not a terminal, `NO_COLOR` is set or `TERM` is `dumb`, each second is one line without
//! escape sequences, so that the log of a build server stays readable.
//!
//! The screen never ends a run: a failed write is ignored, because the terminal may be closed while the load goes on. All output
//! goes to standard error; standard output is for the summary.

use crate::printable::{cut, printable};
use crate::quantity::{count, of_distribution, per_second, share, span};
use crate::recording::Percentiles;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{IsTerminal, Stderr, Write};

/// Number of seconds in the sparkline of rates.
const SPARKS_MAX: usize = 40;
/// Cells of the bar that shows the elapsed time.
const BAR_CELLS: usize = 24;
/// Line width in characters if the terminal does not report one.
const WIDTH_UNKNOWN: usize = 80;
/// Smallest plausible width of a terminal; smaller values are ignored.
const WIDTH_LEAST: usize = 20;
/// Width of the columns of percentiles.
const COLUMN: usize = 10;

/// The progress of a run. The engine makes one each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProgress {
    /// Seconds since the first planned moment.
    pub elapsed: f64,
    /// Planned seconds; none if the end of the ammo ends the run.
    pub planned_seconds: Option<f64>,
    /// The current part of the profile, if there are several.
    pub phase: Option<String>,
    /// Requests that the profile planned for the last second; none in a closed load.
    pub planned_rate: Option<f64>,
    /// Requests that were sent in the last second.
    pub sent_rate: f64,
    /// Replies that arrived in the last second.
    pub answered_rate: f64,
    /// Requests that are sent and not answered.
    pub in_flight: u64,
    /// Latencies of the last second; all zero if nothing was measured.
    pub second_latency: Percentiles,
    /// Latencies of the whole run so far.
    pub latency: Percentiles,
    /// Requests that have ended, answered or not.
    pub requests: u64,
    /// Requests without a right answer within the timeout.
    pub errors: u64,
}

/// How the progress is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    /// Redrawn in place, with colours.
    InPlace,
    /// One line per second.
    Lines,
}

impl Style {
    /// The style for an output, by <https://no-color.org> and the convention of dumb terminals.
    fn of(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Style {
        let is_plain = no_color.is_some_and(|value| !value.is_empty()) || term.is_some_and(|term| term == "dumb");
        if is_terminal && !is_plain { Style::InPlace } else { Style::Lines }
    }
}

/// The live screen of one run.
pub struct Screen<W: Write> {
    output: W,
    style: Style,
    title: String,
    rates: VecDeque<f64>,
    drawn_lines: usize,
    width: fn() -> usize,
}

impl Screen<Stderr> {
    /// A screen on standard error for the load `load` on `target`, both as the user wrote them.
    pub fn on_standard_error(target: &str, load: &str) -> Screen<Stderr> {
        let variable = |name| std::env::var_os(name);
        let is_terminal = std::io::stderr().is_terminal();
        let style = Style::of(is_terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
        Screen::new(std::io::stderr(), style, target, load, || width_of(std::io::stderr()))
    }
}

impl<W: Write> Screen<W> {
    fn new(output: W, style: Style, target: &str, load: &str, width: fn() -> usize) -> Screen<W> {
        let title = printable(&format!("{target}   {load}")).into_owned();
        Screen { output, style, title, rates: VecDeque::with_capacity(SPARKS_MAX), drawn_lines: 0, width }
    }

    /// Shows the newest progress in place of the previous one.
    pub fn show(&mut self, progress: &RunProgress) {
        if self.rates.len() == SPARKS_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back(progress.answered_rate);
        let text = match self.style {
            Style::Lines => plain_line(progress) + "\n",
            Style::InPlace => self.frame(progress),
        };
        // A closed terminal must not end the run.
        let _ = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
    }

    /// Clears the screen, so that the summary takes its place. Plain lines stay.
    pub fn finish(mut self) {
        let text = self.back_to_first_line();
        let _ = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
    }

    /// Moves to the first line of the previous drawing and clears everything from there.
    fn back_to_first_line(&mut self) -> String {
        match std::mem::take(&mut self.drawn_lines) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    fn frame(&mut self, progress: &RunProgress) -> String {
        let width = (self.width)();
        let lines = self.lines(progress);
        let mut text = self.back_to_first_line();
        self.drawn_lines = lines.len();
        for (colour, line) in lines {
            // A wrapped line would make the next drawing begin too low.
            text.extend([colour, &cut(&line, width.saturating_sub(1)), "\x1b[0m\n"]);
        }
        text
    }

    /// The lines of the screen, each with its colour.
    fn lines(&self, progress: &RunProgress) -> Vec<(&'static str, String)> {
        let (plain, bold, dim, red) = ("", "\x1b[1m", "\x1b[2m", "\x1b[31m");
        let header = ["p50", "p90", "p99", "max"].map(|name| format!("{name:>COLUMN$}")).concat();
        vec![
            (bold, self.title.clone()),
            (plain, time_line(progress)),
            (plain, format!("rate         {}", rates(progress))),
            (plain, format!("             {}", sparkline(&self.rates))),
            (dim, format!("latency      {header}")),
            (plain, format!("last second  {}", columns(&progress.second_latency))),
            (plain, format!("whole run    {}", columns(&progress.latency))),
            (if progress.errors > 0 { red } else { plain }, format!("errors       {}", errors(progress))),
        ]
    }
}

/// Width of the terminal in characters.
fn width_of(terminal: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if usize::from(size.ws_col) >= WIDTH_LEAST => usize::from(size.ws_col),
        _ => WIDTH_UNKNOWN,
    }
}

/// Width of standard output, for tables; a file counts as a terminal of the usual width.
pub fn standard_output_width() -> usize {
    width_of(std::io::stdout())
}

/// One second as one line.
fn plain_line(progress: &RunProgress) -> String {
    let latency = &progress.second_latency;
    let [p50, p90, p99, max] =
        [latency.p50, latency.p90, latency.p99, latency.max].map(|ns| of_distribution(ns, latency.max));
    let left = left(progress).map_or(String::new(), |left| format!(", {left} left"));
    let phase = progress.phase.as_deref().map_or(String::new(), |phase| format!(" {}", printable(phase)));
    format!(
        "{}{phase}: {}; p50 {p50}, p90 {p90}, p99 {p99}, max {max}; errors {}{left}",
        span(progress.elapsed),
        rates(progress),
        errors(progress)
    )
}

/// Time gone by and time left.
fn time_line(progress: &RunProgress) -> String {
    let phase = progress.phase.as_deref().map_or(String::new(), |phase| format!("   {}", printable(phase)));
    match progress.planned_seconds.zip(left(progress)) {
        Some((planned, left)) => {
            let filled = (progress.elapsed / planned.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) * BAR_CELLS as f64;
            let filled = filled as usize;
            let bar = "█".repeat(filled) + &"░".repeat(BAR_CELLS - filled);
            format!("{bar}  {} of {}, {left} left{phase}", span(progress.elapsed), span(planned))
        }
        None => format!("{} so far{phase}", span(progress.elapsed)),
    }
}

fn left(progress: &RunProgress) -> Option<String> {
    progress.planned_seconds.map(|planned| span(planned - progress.elapsed))
}

fn rates(progress: &RunProgress) -> String {
    let planned = progress.planned_rate.map_or(String::new(), |rate| format!("planned {}, ", per_second(rate)));
    let (sent, answered) = (per_second(progress.sent_rate), per_second(progress.answered_rate));
    format!("{planned}sent {sent}, answered {answered}, in flight {}", count(progress.in_flight))
}

fn errors(progress: &RunProgress) -> String {
    let (errors, requests) = (progress.errors, progress.requests);
    format!("{} of {} ({})", count(errors), count(requests), share(errors, requests))
}

fn columns(latency: &Percentiles) -> String {
    let values = [latency.p50, latency.p90, latency.p99, latency.max];
    values.map(|ns| format!("{:>COLUMN$}", of_distribution(ns, latency.max))).concat()
}

/// A bar for each value, scaled to the largest one.
fn sparkline(values: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: &f64| BARS[((value / most * BARS.len() as f64) as usize).min(BARS.len() - 1)];
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(elapsed: f64, rate: f64) -> RunProgress {
        let latency = Percentiles { p50: 210_000, p90: 900_000, p99: 5_000_000, max: 12_000_000, ..Default::default() };
        RunProgress {
            elapsed,
            planned_seconds: Some(180.0),
            planned_rate: Some(rate),
            sent_rate: rate,
            answered_rate: rate,
            in_flight: 3,
            second_latency: latency,
            latency,
            requests: 1_002,
            errors: 2,
            ..RunProgress::default()
        }
    }

    fn shown(style: Style, width: fn() -> usize, all: &[RunProgress]) -> String {
        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, style, "http://127.0.0.1/\u{1b}[2J", "line(1,200,180s)", width);
        all.iter().for_each(|progress| screen.show(progress));
        screen.finish();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_second_is_one_plain_line_where_there_is_no_terminal() {
        let text = shown(Style::Lines, || 80, &[progress(42.0, 47.0), progress(43.0, 48.0)]);
        let first = "42 s: planned 47.0/s, sent 47.0/s, answered 47.0/s, in flight 3; p50 210 µs, p90 900 µs, \
                     p99 5.00 ms, max 12.0 ms; errors 2 of 1,002 (0.20 %), 2 min 18 s left";
        assert_eq!(text.lines().next(), Some(first));
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn the_screen_is_drawn_over_its_previous_self_and_taken_away() {
        let text = shown(Style::InPlace, || 80, &[progress(1.0, 47.0), progress(2.0, 94.0)]);
        let back = "\u{1b}[8A\r\u{1b}[J";
        assert_eq!(text.matches(back).count(), 2);
        assert!(text.ends_with(back), "{text:?}");
        let second = text.split(back).nth(1).unwrap();
        assert_eq!(second.lines().count(), 8);
        assert!(second.contains("▅█"), "the rate's sparkline: {second}");
        assert!(second.contains("2 s of 3 min, 2 min 58 s left"), "{second}");
        assert!(!text.contains("\u{1b}[2J"), "a target must not clear the terminal: {text:?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = shown(Style::InPlace, || 30, &[progress(1.0, 47.0)]);
        for line in text.lines().filter(|line| line.ends_with("\u{1b}[0m")) {
            let mut bare = line.replace("\u{1b}[0m", "");
            for colour in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m"] {
                bare = bare.replace(colour, "");
            }
            assert!(bare.chars().count() < 30, "{bare}");
        }
    }

    #[test]
    fn a_second_without_a_reply_has_no_latency() {
        let mut quiet = progress(5.0, 0.0);
        quiet.planned_seconds = None;
        quiet.planned_rate = None;
        quiet.second_latency = Percentiles::default();
        let text = shown(Style::Lines, || 80, &[quiet]);
        assert!(text.contains("p99 —") && !text.contains("left") && !text.contains("planned"), "{text}");
    }

    #[test]
    fn colours_and_drawing_are_for_terminals_that_want_them() {
        let style = |is_terminal, no_color: Option<&str>, term: Option<&str>| {
            Style::of(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert_eq!(style(true, None, Some("xterm")), Style::InPlace);
        assert_eq!(style(true, Some(""), None), Style::InPlace);
        for plain in [style(false, None, None), style(true, Some("1"), None), style(true, None, Some("dumb"))] {
            assert_eq!(plain, Style::Lines);
        }
    }

    #[test]
    fn the_sparkline_keeps_the_last_seconds() {
        let seconds: Vec<_> = (0..100).map(|second| progress(f64::from(second), f64::from(second))).collect();
        let text = shown(Style::InPlace, || 80, &seconds);
        let bars = |line: &str| line.chars().filter(|bar| ('▁'..='█').contains(bar)).count();
        assert_eq!(text.lines().map(bars).filter(|bars| *bars > BAR_CELLS).max(), Some(SPARKS_MAX));
    }
}
