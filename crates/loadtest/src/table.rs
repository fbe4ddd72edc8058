//! The summary after a run, as text: counts, rates, percentiles, errors by cause, statuses, phases, and the validity as a
//! sentence. The contest's rating is shown if the user asked for it.
//!
//! The text has neither colours nor control characters, so it can be written to a file. `width` is the number of characters per
//! line; percentiles that do not fit are omitted, the less informative ones first. All of them are in `--json` and on the page.

use crate::figures::{COLUMNS, Column, answered_per_second, causes, validity};
use crate::grid::Grid;
use crate::printable::{cut, printable};
use crate::quantity::{bytes, count, moment, of_distribution, per_second, rating, share, three_digits};
use crate::recording::{PassCounts, Percentiles, Recording, RequestCounts, TagResult};

/// Largest number of listed causes, statuses, phases and tags; the rest is counted.
const ROWS_MAX: usize = 24;

/// Longest shown tag, in characters.
const TAG_WIDTH_MAX: usize = 40;

/// The percentiles for a short line: what most readers look for first.
const FEWER: [usize; 6] = [0, 1, 3, 5, 6, 8];
/// The percentiles for the shortest lines.
const FEWEST: [usize; 3] = [1, 5, 8];

/// The summary of a run for lines of `width` characters.
pub fn text(run: &Recording, width: usize) -> String {
    let mut out = String::new();
    for line in [run.target.as_str(), &format!("{}, {}", run.load, moment(run.started))] {
        out.push_str(&cut(&printable(line), width));
        out.push('\n');
    }
    out.push('\n');
    counts(run).append(&mut out);
    out.push('\n');
    fitting(width, |columns| distributions(run, columns)).append(&mut out);
    append_causes(&run.outcome, &mut out);
    append_statuses(&run.outcome, &mut out);
    if run.phases.len() > 1 {
        out.push('\n');
        fitting(width, |columns| phases(run, columns)).append(&mut out);
    }
    if run.tags.len() > 1 {
        out.push('\n');
        fitting(width, |columns| tags(&run.tags, columns)).append(&mut out);
    }
    out.push('\n');
    out.push_str(&validity(run));
    out.push('\n');
    out
}

fn counts(run: &Recording) -> Grid {
    let outcome = &run.outcome;
    let mut grid = Grid::default();
    let seconds = run.seconds.max(f64::MIN_POSITIVE);
    grid.row(["requests", &count(outcome.planned), &format!("in {} s", three_digits(run.seconds))]);
    grid.row(["answered", &count(outcome.answered), &per_second(answered_per_second(run))]);
    grid.row(["errors", &count(outcome.errors()), &share(outcome.errors(), outcome.planned)]);
    let traffic = |bytes_of: u64| [bytes(bytes_of as f64), format!("{}/s", bytes(bytes_of as f64 / seconds))];
    for (name, bytes_of) in [("sent", outcome.sent_bytes), ("received", outcome.received_bytes)] {
        let [amount, rate] = traffic(bytes_of);
        grid.row([name, &amount, &rate]);
    }
    if run.is_rated {
        grid.row(["rating", &rating(outcome.rating)]);
    }
    if let Some(PassCounts { complete, given_up }) = run.passes {
        grid.row(["scenario", &count(complete), &format!("complete passes, {} given up", count(given_up))]);
    }
    if run.unchecked > 0 {
        grid.row(["not compared", &count(run.unchecked), "answers: the comparing thread was behind"]);
    }
    if run.unasked > 0 {
        grid.row(["unasked", &count(run.unasked), "connections were closed: more arrived than was asked for"]);
    }
    grid
}

/// The grid with as many percentiles as fit into `width`.
fn fitting(width: usize, grid: impl Fn(&[usize]) -> Grid) -> Grid {
    let all: Vec<usize> = (0..COLUMNS.len()).collect();
    let choices: [&[usize]; 2] = [&all, &FEWER];
    choices.into_iter().map(&grid).find(|grid| grid.width() <= width).unwrap_or_else(|| grid(&FEWEST))
}

fn distributions(run: &Recording, columns: &[usize]) -> Grid {
    let mut grid = Grid::default();
    grid.row(std::iter::once("").chain(columns.iter().map(|column| COLUMNS[*column].0)));
    let latencies = &run.latencies;
    for (name, histogram) in [
        ("latency", &latencies.latency),
        ("service time", &latencies.service),
        ("sending error", &latencies.sending_error),
    ] {
        let percentiles = Percentiles::of(histogram);
        let cells = columns.iter().map(|column| of_distribution(COLUMNS[*column].1(&percentiles), percentiles.max));
        grid.row(std::iter::once(name.to_owned()).chain(cells));
    }
    grid
}

fn phases(run: &Recording, columns: &[usize]) -> Grid {
    let (phases, mut grid) = (&run.phases, Grid::default());
    let columns: Vec<Column> =
        columns.iter().map(|column| COLUMNS[*column]).filter(|(name, _)| *name != "mean").collect();
    let names = columns.iter().map(|(name, _)| *name);
    let rating_of = |outcome: &RequestCounts| run.is_rated.then(|| rating(outcome.rating));
    grid.row(["phase", "requests", "errors"].into_iter().chain(names).chain(run.is_rated.then_some("rating")));
    for phase in phases.iter().take(ROWS_MAX) {
        let outcome = &phase.outcome;
        let values = columns.iter().map(|(_, value)| of_distribution(value(&phase.latency), phase.latency.max));
        let first = [printable(&phase.name).into_owned(), count(outcome.planned), count(outcome.errors())];
        grid.row(first.into_iter().chain(values).chain(rating_of(outcome)));
    }
    if phases.len() > ROWS_MAX {
        grid.row([format!("and {} more", phases.len() - ROWS_MAX)]);
    }
    grid
}

fn tags(tags: &[TagResult], columns: &[usize]) -> Grid {
    let mut grid = Grid::default();
    let columns: Vec<Column> =
        columns.iter().map(|column| COLUMNS[*column]).filter(|(name, _)| *name != "mean").collect();
    grid.row(["tag", "requests", "errors"].into_iter().chain(columns.iter().map(|(name, _)| *name)));
    for tag in tags.iter().take(ROWS_MAX) {
        let values = columns.iter().map(|(_, value)| of_distribution(value(&tag.latency), tag.latency.max));
        let name = cut(&printable(&tag.name), TAG_WIDTH_MAX).into_owned();
        grid.row([name, count(tag.requests), count(tag.errors)].into_iter().chain(values));
    }
    if tags.len() > ROWS_MAX {
        grid.row([format!("and {} more", tags.len() - ROWS_MAX)]);
    }
    grid
}

fn append_causes(outcome: &RequestCounts, out: &mut String) {
    let causes = causes(outcome);
    let rows = causes.iter().map(|cause| (printable(&cause.name).into_owned(), cause.requests));
    append_counts("errors by cause", rows, outcome.planned, out);
}

fn append_statuses(outcome: &RequestCounts, out: &mut String) {
    let rows = outcome.statuses.iter().map(|(status, number)| (status.to_string(), *number));
    append_counts("replies by status", rows, outcome.answered, out);
}

/// A list of counts with a heading and their shares of `whole`; nothing if there are none.
fn append_counts(title: &str, rows: impl ExactSizeIterator<Item = (String, u64)>, whole: u64, out: &mut String) {
    let total = rows.len();
    if total == 0 {
        return;
    }
    let mut grid = Grid::default();
    grid.row([title, "count", "share"]);
    for (name, number) in rows.take(ROWS_MAX) {
        grid.row([name, count(number), share(number, whole)]);
    }
    if total > ROWS_MAX {
        grid.row([format!("and {} more", total - ROWS_MAX)]);
    }
    out.push('\n');
    grid.append(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Validity;
    use crate::sample_run::{self, Shape};

    #[test]
    fn the_summary_has_counts_percentiles_causes_statuses_and_phases() {
        let run = Recording { is_rated: true, ..sample_run::recording(Shape::Stall) };
        let text = text(&run, 120);
        for part in [
            "requests",
            "answered",
            "rating",
            "service time",
            "p99.99",
            "errors by cause",
            "no answer within the timeout",
            "no connection: connection refused",
            "replies by status",
            "503",
            "line(10,400,40s)",
            "const(400,20s)",
            "Valid:",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    }

    #[test]
    fn nobody_gets_a_rating_who_did_not_ask_for_it() {
        let text = text(&sample_run::recording(Shape::Stall), 120);
        assert!(!text.contains("rating"), "{text}");
    }

    #[test]
    fn tags_have_a_row_each_with_requests_errors_and_latencies() {
        let text = text(&sample_run::with_tags(), 120);
        let row =
            |name: &str| text.lines().find(|line| line.contains(name)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row("GET /users/{int}")[2..4], ["900", "0"]);
        assert!(row("GET /users/{int}").ends_with(&["2.00", "ms"]), "{text}");
        assert_eq!(row("POST")[1..4], ["100", "7", "—"]);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_percentiles() {
        let run = sample_run::recording(Shape::Stall);
        for (width, has, has_not) in [(120, "p75", "p76"), (80, "p90", "p75"), (50, "p99", "p90")] {
            let text = text(&run, width);
            let header = text.lines().find(|line| line.contains("max")).unwrap();
            assert!(header.contains(has) && !header.contains(has_not), "{width}: {header}");
        }
    }

    #[test]
    fn a_run_that_does_not_count_says_why() {
        let mut run = sample_run::recording(Shape::Calm);
        run.validity = Validity::Invalid("late by 3 ms\u{1b}[1A".into());
        let text = text(&run, 80);
        assert!(text.ends_with("INVALID: late by 3 ms\u{fffd}[1A\n"), "{text}");
    }

    #[test]
    fn nothing_measured_is_no_zero() {
        let text = text(&sample_run::nothing_answered(), 80);
        let latency = text.lines().find(|line| line.trim_start().starts_with("latency")).unwrap();
        assert!(latency.contains('—') && !latency.contains('0'), "{latency}");
    }
}
