//! `--vs`: two servers under the same load in turns (A B A B … A), and the difference between them.
//!
//! A machine's speed drifts: other processes, heat, caches. Two runs one after the other measure that drift too. So the servers
//! take turns, and each turn of the second server is divided by the mean of its two neighbours of the first. The median of these
//! ratios is the result; half the width of their middle half (the interquartile range) is its noise. A difference below the noise
//! does not count.
//!
//! This module computes the schedule and the figures. The caller passes a closure that runs a turn and returns its [`Recording`].
//! Only figures are kept of a turn, plus the last recording of each side for the report page.

use crate::figures::answered_per_second;
use crate::grid::Grid;
use crate::json::{Summary, rounded};
use crate::printable::printable;
use crate::quantity::{NONE, nanoseconds, per_second, rating, three_digits};
use crate::recording::{Percentiles, Recording};
use serde::Serialize;

/// Default number of turns of the second server. Five ratios are the fewest whose middle half is meaningful.
pub const ROUNDS_USUAL: usize = 5;
/// Largest number of turns of the second server.
pub const ROUNDS_MAX: usize = 1_000;

/// The text of a ratio that differs from one by less than is shown.
const SAME_RATIO: &str = "1.000";

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    /// The server that is the divisor.
    First,
    /// The server of `--vs`.
    Second,
}

/// One turn of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The server under load.
    pub side: Side,
    /// Its position in the schedule, from zero.
    pub index: usize,
    /// Number of all turns.
    pub count: usize,
}

/// The turns of `rounds` rounds: the first server begins and ends, so that each turn of the second has two neighbours.
pub fn schedule(rounds: usize) -> impl Iterator<Item = Turn> {
    let count = 2 * rounds.clamp(1, ROUNDS_MAX) + 1;
    (0..count).map(move |index| Turn { side: if index % 2 == 0 { Side::First } else { Side::Second }, index, count })
}

/// Runs the turns. The first error ends the comparison.
pub fn run<E>(rounds: usize, mut turn: impl FnMut(Turn) -> Result<Recording, E>) -> Result<SideBySide, E> {
    let (mut turns, mut first, mut second) = (Vec::new(), None, None);
    for place in schedule(rounds) {
        let recording = turn(place)?;
        turns.push(Figures::of_run(&recording));
        match place.side {
            Side::First => first = Some(recording),
            Side::Second => second = Some(recording),
        }
    }
    let (first, second) = first.zip(second).expect("a schedule has turns of both sides");
    Ok(SideBySide { rows: rows(&turns), rounds: turns.len() / 2, kind: Kind::Turns, first, second })
}

/// Two servers, or two runs, side by side.
pub struct SideBySide {
    /// A row for each figure.
    pub rows: Vec<ComparedFigure>,
    /// Number of ratios from which the noise is computed: those of turns, or of the rows of two runs.
    pub rounds: usize,
    kind: Kind,
    /// The last recording of the first server.
    pub first: Recording,
    /// The last recording of the second.
    pub second: Recording,
}

/// Origin of the ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The servers took turns.
    Turns,
    /// Two single runs, compared row by row.
    Runs,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedFigure {
    /// What is compared.
    pub figure: &'static Figure,
    /// The median of the first side's turns. None: nothing was measured.
    pub first: Option<f64>,
    /// The median of the second side's turns.
    pub second: Option<f64>,
    /// The median of the ratios, second to first.
    pub ratio: Option<f64>,
    /// Half the width of the middle half of the ratios, relative to their median.
    pub noise: Option<f64>,
}

/// A figure that is compared.
#[derive(Debug, PartialEq)]
pub struct Figure {
    /// Its name for human readers.
    pub name: &'static str,
    /// Its key in JSON.
    pub key: &'static str,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Nanoseconds,
    PerSecond,
    Percent,
    Seconds,
}

/// Number of figures.
const FIGURES: usize = 11;

/// The compared figures, in the order of [`Figures::of_run`].
static FIGURE: [Figure; FIGURES] = [
    Figure { name: "latency, mean", key: "latency_us.mean", unit: Unit::Nanoseconds },
    Figure { name: "latency, p50", key: "latency_us.p50", unit: Unit::Nanoseconds },
    Figure { name: "latency, p90", key: "latency_us.p90", unit: Unit::Nanoseconds },
    Figure { name: "latency, p99", key: "latency_us.p99", unit: Unit::Nanoseconds },
    Figure { name: "latency, p99.9", key: "latency_us.p999", unit: Unit::Nanoseconds },
    Figure { name: "latency, max", key: "latency_us.max", unit: Unit::Nanoseconds },
    Figure { name: "service time, p50", key: "service_us.p50", unit: Unit::Nanoseconds },
    Figure { name: "service time, p99", key: "service_us.p99", unit: Unit::Nanoseconds },
    Figure { name: "answers a second", key: "rps", unit: Unit::PerSecond },
    Figure { name: "errors", key: "errors_percent", unit: Unit::Percent },
    Figure { name: "rating", key: "rating", unit: Unit::Seconds },
];

impl Figure {
    /// A value with its unit.
    pub fn text(&self, value: Option<f64>) -> String {
        match (value, self.unit) {
            (None, _) => NONE.to_owned(),
            (Some(ns), Unit::Nanoseconds) => nanoseconds(ns as u64),
            (Some(rate), Unit::PerSecond) => per_second(rate),
            (Some(percent), Unit::Percent) => format!("{} %", three_digits(percent)),
            (Some(seconds), Unit::Seconds) => rating(seconds),
        }
    }

    /// A value in the unit of the JSON output: durations in microseconds.
    fn json(&self, value: Option<f64>) -> Option<f64> {
        value.map(|value| if self.unit == Unit::Nanoseconds { rounded(value / 1e3) } else { rounded(value) })
    }
}

/// The figures of one turn. None: nothing was measured.
#[derive(Clone, Debug)]
struct Figures([Option<f64>; FIGURES]);

impl Figures {
    fn of_run(run: &Recording) -> Figures {
        let [latency, service] = [&run.latencies.latency, &run.latencies.service]
            .map(|histogram| (!histogram.is_empty()).then(|| Percentiles::of(histogram)));
        let (answered, outcome) = (answered_per_second(run), &run.outcome);
        let errors = (outcome.planned > 0).then(|| outcome.errors() as f64 * 100.0 / outcome.planned as f64);
        Figures::from(latency, service, Some(answered), errors, Some(outcome.rating))
    }

    fn from(
        latency: Option<Percentiles>,
        service: Option<Percentiles>,
        answered: Option<f64>,
        errors: Option<f64>,
        rating: Option<f64>,
    ) -> Figures {
        let latency = |value: fn(&Percentiles) -> u64| latency.as_ref().map(|of| value(of) as f64);
        let service = |value: fn(&Percentiles) -> u64| service.as_ref().map(|of| value(of) as f64);
        Figures([
            latency(|of| of.mean),
            latency(|of| of.p50),
            latency(|of| of.p90),
            latency(|of| of.p99),
            latency(|of| of.p999),
            latency(|of| of.max),
            service(|of| of.p50),
            service(|of| of.p99),
            answered,
            errors,
            rating,
        ])
    }

    /// The figures of each row of a run. A row has no rating.
    fn of_rows(run: &Recording) -> Vec<Figures> {
        let seconds = f64::from(run.interval_seconds.max(1));
        let figures = run.intervals.iter().map(|row| {
            let answered = row.right + row.wrong;
            let measured = |percentiles: Percentiles| (percentiles.max > 0).then_some(percentiles);
            let errors = (row.planned > 0).then(|| (row.wrong + row.failed) as f64 * 100.0 / row.planned as f64);
            Figures::from(measured(row.latency), measured(row.service), Some(answered as f64 / seconds), errors, None)
        });
        figures.collect()
    }
}

fn rows(turns: &[Figures]) -> Vec<ComparedFigure> {
    let row = |(index, figure)| {
        let values: Vec<Option<f64>> = turns.iter().map(|turn| turn.0[index]).collect();
        let ratios = ratios(&values);
        let of = |first: usize| median(values.iter().skip(first).step_by(2).copied().flatten().collect());
        ComparedFigure { figure, first: of(0), second: of(1), ratio: median(ratios.clone()), noise: spread(ratios) }
    };
    FIGURE.iter().enumerate().map(row).collect()
}

/// Each value of the second side, divided by the mean of its two neighbours. If one of the three is missing or the mean is zero,
/// there is no ratio.
fn ratios(values: &[Option<f64>]) -> Vec<f64> {
    let ratio = |turn: &[Option<f64>]| match turn {
        [Some(before), Some(between), Some(after)] if before + after > 0.0 => Some(2.0 * between / (before + after)),
        _ => None,
    };
    values.windows(3).step_by(2).filter_map(ratio).collect()
}

fn median(values: Vec<f64>) -> Option<f64> {
    at_share(&sorted(values), 0.5)
}

/// Half the width of the middle half, relative to the median. None for fewer than three values, whose middle half is meaningless.
fn spread(values: Vec<f64>) -> Option<f64> {
    let values = sorted(values);
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| at_share(&values, share));
    let width = high? - low?;
    middle.filter(|middle| *middle > 0.0 && values.len() >= 3).map(|middle| width / 2.0 / middle)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The value at a share of a sorted list.
fn at_share(values: &[f64], share: f64) -> Option<f64> {
    values.get((values.len().saturating_sub(1) as f64 * share).round() as usize).copied()
}

impl ComparedFigure {
    /// The meaning of the ratio, in words.
    pub fn verdict(&self) -> &'static str {
        match (self.ratio, self.noise) {
            (Some(ratio), Some(noise)) if (ratio - 1.0).abs() <= noise * ratio => "within noise",
            (Some(_), Some(_)) if self.ratio_text() == SAME_RATIO => "the same",
            (Some(ratio), Some(_)) if ratio > 1.0 => "more",
            (Some(ratio), Some(_)) if ratio < 1.0 => "less",
            _ => NONE,
        }
    }

    /// The ratio: `1.234`, `12.3`.
    pub fn ratio_text(&self) -> String {
        match self.ratio {
            None => NONE.to_owned(),
            Some(ratio) if ratio < 9.9995 => format!("{ratio:.3}"),
            Some(ratio) => three_digits(ratio),
        }
    }

    /// The noise: `± 0.8 %`.
    pub fn noise_text(&self) -> String {
        self.noise.map_or(NONE.to_owned(), |noise| format!("± {:.1} %", noise * 100.0))
    }
}

impl SideBySide {
    /// Compares two runs that were made one after the other. The ratio is that of their whole figures, and includes the drift of the
    /// machine between the runs. The noise is the spread of the ratios of their rows, each at the same seconds of the plan; it is
    /// unknown if one run was so long that its rows are longer.
    pub fn of_runs(first: &Recording, second: &Recording) -> SideBySide {
        let whole = [Figures::of_run(first), Figures::of_run(second)];
        // Rows of different lengths cover different seconds.
        let by_row = match first.interval_seconds == second.interval_seconds {
            true => (Figures::of_rows(first), Figures::of_rows(second)),
            false => Default::default(),
        };
        let rounds = by_row.0.len().min(by_row.1.len());
        let row = |(index, figure): (usize, &'static Figure)| {
            let pairs =
                by_row.0.iter().zip(&by_row.1).filter_map(|(first, second)| first.0[index].zip(second.0[index]));
            let ratios = pairs.filter(|(first, _)| *first > 0.0).map(|(first, second)| second / first).collect();
            let [first, second] = [&whole[0], &whole[1]].map(|figures| figures.0[index]);
            let ratio = first.zip(second).filter(|(first, _)| *first > 0.0).map(|(first, second)| second / first);
            ComparedFigure { figure, first, second, ratio, noise: spread(ratios) }
        };
        let rows = FIGURE.iter().enumerate().map(row).collect();
        SideBySide { rows, rounds, kind: Kind::Runs, first: first.clone(), second: second.clone() }
    }

    /// The comparison as a table for a terminal or a file.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, run) in [("A", &self.first), ("B", &self.second)] {
            out.push_str(&format!("{name}: {}, {}\n", printable(&run.target), printable(&run.load)));
        }
        out.push('\n');
        let mut grid = Grid::default();
        grid.row(["figure", "A", "B", "B / A", "noise", ""]);
        for row in &self.rows {
            let [first, second] = [row.first, row.second].map(|value| row.figure.text(value));
            grid.row([row.figure.name, &first, &second, &row.ratio_text(), &row.noise_text(), row.verdict()]);
        }
        grid.append(&mut out);
        out.push_str(&format!("\n{}\n", self.explanation()));
        out
    }

    /// How the ratios were computed, as sentences.
    pub(crate) fn explanation(&self) -> String {
        let rounds = self.rounds;
        let ratio = match self.kind {
            Kind::Turns => format!(
                "Figures are medians. A ratio is the median of {rounds} turns of B, each divided by the mean of its two neighbours of A."
            ),
            Kind::Runs if rounds == 0 => {
                "Two runs one after the other: what the machine did meanwhile is in the ratios. They have no rows of the same seconds, so \
                 the noise is unknown."
                    .to_owned()
            }
            Kind::Runs => format!(
                "Two runs one after the other: what the machine did meanwhile is in the ratios. Noise is that of {rounds} rows, each \
                 divided by the other run's."
            ),
        };
        format!(
            "{ratio} Noise is half the width of the middle half of the ratios, as a share of their middle; a smaller difference is none."
        )
    }

    /// The comparison as one JSON object on one line.
    pub fn json(&self) -> String {
        let figures = self.rows.iter().map(|row| {
            let [first, second] = [row.first, row.second].map(|value| row.figure.json(value));
            (row.figure.key, Json { first, second, ratio: row.ratio, noise: row.noise })
        });
        let object = Object {
            rounds: self.rounds,
            first: Summary::of(&self.first),
            second: Summary::of(&self.second),
            figures: figures.collect(),
        };
        // Numbers, texts and maps with text keys: all can be serialized.
        serde_json::to_string(&object).expect("a comparison is JSON")
    }
}

#[derive(Serialize)]
struct Object<'a> {
    rounds: usize,
    first: Summary<'a>,
    second: Summary<'a>,
    figures: std::collections::BTreeMap<&'static str, Json>,
}

#[derive(Serialize)]
struct Json {
    first: Option<f64>,
    second: Option<f64>,
    ratio: Option<f64>,
    noise: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape};
    use std::convert::Infallible;

    fn row<'a>(comparison: &'a SideBySide, key: &str) -> &'a ComparedFigure {
        comparison.rows.iter().find(|row| row.figure.key == key).unwrap()
    }

    /// Turns with the given latencies, in microseconds.
    fn turns(latencies: &[u64]) -> SideBySide {
        run(latencies.len() / 2, |turn| {
            let mut run = sample_run::recording(Shape::Calm);
            let mut histogram = sample_run::histogram();
            histogram.record(latencies[turn.index] * 1_000).unwrap();
            run.latencies.latency = histogram;
            run.target = format!("{:?}", turn.side);
            Ok::<_, Infallible>(run)
        })
        .unwrap()
    }

    #[test]
    fn the_servers_take_turns_and_the_first_begins_and_ends() {
        let turns: Vec<Turn> = schedule(2).collect();
        assert_eq!(turns.len(), 5);
        assert!(turns.iter().all(|turn| (turn.side == Side::First) == turn.index.is_multiple_of(2) && turn.count == 5));
        assert_eq!(schedule(0).count(), 3);
        assert_eq!(schedule(usize::MAX).count(), 2 * ROUNDS_MAX + 1);
    }

    #[test]
    fn each_turn_is_divided_by_its_neighbours() {
        let values = [1.0, 2.0, 3.0, 6.0, 1.0, 4.0, 0.0].map(Some);
        assert_eq!(ratios(&values), [1.0, 3.0, 8.0]);
        assert_eq!(ratios(&[Some(0.0), Some(2.0), Some(0.0), None, Some(1.0)]), [0.0; 0]);
        assert_eq!((spread(vec![3.0, 1.0, 2.0, 5.0, 4.0]), spread(vec![1.0, 2.0])), (Some(1.0 / 3.0), None));
    }

    #[test]
    fn a_drift_of_the_machine_is_no_difference() {
        // Each turn is slower by 100 µs than the one before it; the servers are equal.
        let comparison = turns(&[1_000, 1_100, 1_200, 1_300, 1_400, 1_500, 1_600]);
        let row = row(&comparison, "latency_us.p50");
        assert!((row.ratio.unwrap() - 1.0).abs() < 1e-3, "{row:?}");
        assert_eq!(row.verdict(), "within noise");
    }

    #[test]
    fn a_slower_server_is_told_with_its_noise() {
        let comparison = turns(&[1_000, 1_500, 1_010, 1_520, 990, 1_490, 1_000]);
        let row = row(&comparison, "latency_us.p50");
        assert!((1.49..1.52).contains(&row.ratio.unwrap()) && row.noise.unwrap() < 0.02, "{row:?}");
        assert_eq!(row.verdict(), "more");
        let text = comparison.text();
        assert!(text.starts_with("A: First, ") && text.contains("\nB: Second, "), "{text}");
        assert!(
            text.contains("latency, p50") && text.contains("±") && text.contains("the median of 3 turns of B"),
            "{text}"
        );
    }

    #[test]
    fn the_json_has_both_summaries_and_a_ratio_for_each_figure() {
        let object: serde_json::Value = serde_json::from_str(&turns(&[1_000, 1_500, 1_000]).json()).unwrap();
        assert_eq!((&object["rounds"], &object["first"]["target"]), (&1.into(), &"First".into()));
        let figure = &object["figures"]["latency_us.p50"];
        assert!((figure["ratio"].as_f64().unwrap() - 1.5).abs() < 2e-3, "{object}");
        assert_eq!(figure["noise"], serde_json::Value::Null, "one ratio has no noise: {object}");
        assert_eq!(object["figures"].as_object().unwrap().len(), FIGURES);
    }

    #[test]
    fn an_error_ends_the_comparison() {
        let mut turns = 0;
        let result = run(5, |_| {
            turns += 1;
            if turns == 3 { Err("no server") } else { Ok(sample_run::recording(Shape::Calm)) }
        });
        assert_eq!((result.err(), turns), (Some("no server"), 3));
    }

    #[test]
    fn two_single_runs_are_compared_second_by_second() {
        let [calm, slower] = [Shape::Calm, Shape::Slower].map(sample_run::recording);
        let comparison = SideBySide::of_runs(&calm, &slower);
        let slower = row(&comparison, "latency_us.p50");
        assert!((1.1..1.5).contains(&slower.ratio.unwrap()) && slower.noise.unwrap() < 0.1, "{slower:?}");
        assert_eq!(slower.verdict(), "more");
        assert_eq!(row(&comparison, "rps").verdict(), "within noise");
        assert_eq!(row(&comparison, "rating").verdict(), NONE, "a second has no rating, so it has no noise");
    }

    #[test]
    fn a_ratio_that_is_shown_as_one_is_the_same() {
        let verdict = |ratio, noise| {
            let figure = &FIGURE[0];
            ComparedFigure { figure, first: None, second: None, ratio: Some(ratio), noise: Some(noise) }.verdict()
        };
        assert_eq!((verdict(0.9996, 0.0), verdict(1.0004, 0.0)), ("the same", "the same"));
        assert_eq!((verdict(0.999, 0.0), verdict(1.001, 0.0)), ("less", "more"));
        assert_eq!(verdict(0.9996, 0.01), "within noise");
    }

    #[test]
    fn rows_of_different_lengths_are_not_compared() {
        let [calm, slower] = [Shape::Calm, Shape::Slower].map(sample_run::recording);
        let longer = Recording { interval_seconds: 2, ..slower };
        let comparison = SideBySide::of_runs(&calm, &longer);
        let slower = row(&comparison, "latency_us.p50");
        assert!(slower.ratio.unwrap() > 1.1 && slower.noise.is_none() && slower.verdict() == NONE, "{slower:?}");
        assert!(comparison.text().contains("the noise is unknown"), "{}", comparison.text());
    }
}
