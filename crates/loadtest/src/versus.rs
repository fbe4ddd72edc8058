//! `--vs`: two servers under the same load in turns, and the difference between them.
//!
//! A machine's speed drifts: other processes, heat, caches. Two runs one after the other measure that drift too. So a round is one
//! turn of each server, in an order that is drawn at random, and the rounds are compared: a difference is reported if it is too
//! consistent for the order alone to explain it (`significance.rs`). Equal servers are called different in at most one comparison
//! of twenty, with all figures of a comparison together. The usual answer is that no difference was seen.
//!
//! This module draws the schedule and computes the figures. The caller passes a closure that runs a turn and returns its
//! [`Recording`]. Only figures are kept of a turn, plus the last recording of each side for the report page.

mod json;

use crate::figures::answered_per_second;
use crate::grid::Grid;
use crate::json::rounded;
use crate::printable::printable;
use crate::quantity::{NONE, nanoseconds, per_second, rating, three_digits};
use crate::recording::{Percentiles, Recording, Validity};
use crate::significance::{ERROR_RATE, PAIRS_MIN, interval, probabilities};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::hash::{BuildHasher, RandomState};

/// Default number of rounds. Each round doubles the number of orders that the result is compared with: ten of them show a
/// difference of three times the noise of a turn almost surely.
pub const ROUNDS_USUAL: usize = 10;
/// Largest number of rounds.
pub const ROUNDS_MAX: usize = 1_000;

/// Texts of effects that differ from none by less than is shown.
const SAME: [&str; 3] = ["1.000", "+0.00 points", "-0.00 points"];

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

/// A seed that differs from run to run: the order of turns must not be known to what disturbs the machine.
pub fn new_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// The turns of `rounds` rounds. In each round both servers have one turn; `seed` decides which of them begins.
pub fn schedule(rounds: usize, seed: u64) -> Vec<Turn> {
    let rounds = rounds.clamp(1, ROUNDS_MAX);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let sides = (0..rounds).flat_map(|_| match random.random() {
        true => [Side::First, Side::Second],
        false => [Side::Second, Side::First],
    });
    sides.enumerate().map(|(index, side)| Turn { side, index, count: 2 * rounds }).collect()
}

/// Runs the turns of a [`schedule`]. The first error ends the comparison.
pub fn run<E>(schedule: &[Turn], mut turn: impl FnMut(Turn) -> Result<Recording, E>) -> Result<SideBySide, E> {
    let (mut turns, mut first, mut second, mut invalid_turns) = (Vec::new(), None, None, 0);
    for place in schedule {
        let recording = turn(*place)?;
        turns.push((place.side, Figures::of_run(&recording)));
        invalid_turns += usize::from(recording.validity != Validity::Valid);
        match place.side {
            Side::First => first = Some(recording),
            Side::Second => second = Some(recording),
        }
    }
    let (first, second) = first.zip(second).expect("a schedule has turns of both sides");
    let rounds: Vec<Round> = turns.chunks_exact(2).filter_map(Round::of).collect();
    let order = schedule.iter().map(|turn| if turn.side == Side::First { 'A' } else { 'B' }).collect();
    let turns = Turns { rounds: rounds.len(), order, invalid_turns };
    Ok(SideBySide { rows: rows(&rounds, first.is_rated || second.is_rated), turns: Some(turns), first, second })
}

/// Two servers, or two runs, side by side.
pub struct SideBySide {
    /// A row for each figure.
    pub rows: Vec<ComparedFigure>,
    /// How the servers took turns. `None`: two single runs.
    turns: Option<Turns>,
    /// The last recording of the first server.
    pub first: Recording,
    /// The last recording of the second.
    pub second: Recording,
}

/// The turns of a comparison.
struct Turns {
    rounds: usize,
    /// The turns, as `A` and `B`.
    order: String,
    /// Turns in which the generator did not keep to its plan.
    invalid_turns: usize,
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
    /// Second to first: the geometric mean of the rounds' ratios, or for percentages the mean of their differences.
    pub effect: Option<f64>,
    /// The effect lies between these two, with a confidence of 95 % for this figure alone.
    pub interval: Option<(f64, f64)>,
    /// How probable it is that equal servers have any figure that differs so consistently. `None`: it was not tested.
    pub probability: Option<f64>,
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
/// Index of the rating, which is compared only if it was asked for.
const RATING: usize = 10;

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

    /// Whether sides are subtracted: a percentage may be zero, so that there is no ratio.
    fn is_subtracted(&self) -> bool {
        self.unit == Unit::Percent
    }

    /// The difference of a pair, on the scale on which the mean of pairs is taken: logarithms of ratios, or differences. A pair in
    /// which nothing was measured shows no difference.
    fn difference(&self, first: Option<f64>, second: Option<f64>) -> f64 {
        match (first, second) {
            (Some(first), Some(second)) if self.is_subtracted() => second - first,
            (Some(first), Some(second)) if first > 0.0 && second > 0.0 => (second / first).ln(),
            _ => 0.0,
        }
    }

    /// A mean of differences as a ratio, or as a difference in percent.
    fn effect(&self, difference: f64) -> f64 {
        if self.is_subtracted() { difference } else { difference.exp() }
    }

    /// `1.234`, `12.3`, `+0.52 points`.
    fn effect_text(&self, effect: f64) -> String {
        match effect {
            points if self.is_subtracted() => format!("{points:+.2} points"),
            ratio if ratio < 9.9995 => format!("{ratio:.3}"),
            ratio => three_digits(ratio),
        }
    }
}

/// The figures of one turn. None: nothing was measured.
#[derive(Clone, Debug)]
struct Figures([Option<f64>; FIGURES]);

impl Figures {
    fn of_run(run: &Recording) -> Figures {
        let [latency, service] = [&run.latencies.latency, &run.latencies.service]
            .map(|histogram| (!histogram.is_empty()).then(|| Percentiles::of(histogram)));
        let outcome = &run.outcome;
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
            Some(answered_per_second(run)),
            (outcome.planned > 0).then(|| outcome.errors() as f64 * 100.0 / outcome.planned as f64),
            Some(outcome.rating),
        ])
    }
}

/// Both turns of a round.
struct Round {
    first: Figures,
    second: Figures,
}

impl Round {
    fn of(turns: &[(Side, Figures)]) -> Option<Round> {
        let of = |wanted| turns.iter().find(|(side, _)| *side == wanted).map(|(_, figures)| figures.clone());
        Some(Round { first: of(Side::First)?, second: of(Side::Second)? })
    }
}

/// The figures that are compared, with their indexes.
fn figures(is_rated: bool) -> impl Iterator<Item = (usize, &'static Figure)> {
    FIGURE.iter().enumerate().filter(move |(index, _)| is_rated || *index != RATING)
}

fn rows(rounds: &[Round], is_rated: bool) -> Vec<ComparedFigure> {
    let differences = |(index, figure): (usize, &'static Figure)| {
        rounds.iter().map(|round| figure.difference(round.first.0[index], round.second.0[index])).collect()
    };
    let differences: Vec<Vec<f64>> = figures(is_rated).map(differences).collect();
    let probabilities = probabilities(&differences);
    let row = |((index, figure), (differences, probability)): ((usize, &'static Figure), (&Vec<f64>, f64))| {
        let side = |of: fn(&Round) -> &Figures| median(rounds.iter().filter_map(|round| of(round).0[index]).collect());
        let (first, second) = (side(|round| &round.first), side(|round| &round.second));
        let is_measured = rounds.iter().any(|round| figure.is_comparable(round.first.0[index], round.second.0[index]));
        let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
        let interval = interval(differences).filter(|_| is_measured);
        ComparedFigure {
            figure,
            first,
            second,
            effect: is_measured.then(|| figure.effect(mean)),
            interval: interval.map(|(low, high)| (figure.effect(low), figure.effect(high))),
            probability: (is_measured && rounds.len() >= PAIRS_MIN).then_some(probability),
        }
    };
    figures(is_rated).zip(differences.iter().zip(probabilities)).map(row).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

impl ComparedFigure {
    /// Whether the servers differ, in words.
    pub fn verdict(&self) -> &'static str {
        match (self.probability, self.effect) {
            (Some(probability), Some(_)) if probability > ERROR_RATE => "no difference seen",
            (Some(_), Some(_)) if self.is_shown_as_same() => "the same",
            (Some(_), Some(effect)) if effect > self.figure.effect(0.0) => "more",
            (Some(_), Some(_)) => "less",
            _ => NONE,
        }
    }

    /// Whether the test found a difference, and it is large enough to be shown.
    pub fn differs(&self) -> bool {
        self.probability.is_some_and(|probability| probability <= ERROR_RATE) && !self.is_shown_as_same()
    }

    fn is_shown_as_same(&self) -> bool {
        SAME.contains(&self.effect_text().as_str())
    }

    /// The effect: `1.234`, `12.3`, `+0.52 points`.
    pub fn effect_text(&self) -> String {
        self.effect.map_or(NONE.to_owned(), |effect| self.figure.effect_text(effect))
    }

    /// The interval of the effect: `1.213 to 1.254`.
    pub fn interval_text(&self) -> String {
        self.interval.map_or(NONE.to_owned(), |(low, high)| {
            let [low, high] = [low, high].map(|effect| self.figure.effect_text(effect));
            format!("{} to {high}", low.trim_end_matches(" points"))
        })
    }

    /// The probability: `0.031`, `< 0.001`.
    pub fn probability_text(&self) -> String {
        match self.probability {
            None => NONE.to_owned(),
            Some(probability) if probability < 0.001 => "< 0.001".to_owned(),
            Some(probability) => format!("{probability:.3}"),
        }
    }
}

/// Names of the columns of a comparison, in the table and on the page.
pub(crate) const COLUMNS: [&str; 7] = ["figure", "A", "B", "B / A", "95 % interval", "p", ""];

impl SideBySide {
    /// Shows two runs that were made one after the other. The ratio is that of their whole figures. It includes what the machine did
    /// meanwhile, so no difference is tested.
    pub fn of_runs(first: &Recording, second: &Recording) -> SideBySide {
        let whole = [Figures::of_run(first), Figures::of_run(second)];
        let row = |(index, figure): (usize, &'static Figure)| {
            let [first, second] = [&whole[0], &whole[1]].map(|figures| figures.0[index]);
            let effect = figure.is_comparable(first, second).then(|| figure.effect(figure.difference(first, second)));
            ComparedFigure { figure, first, second, effect, interval: None, probability: None }
        };
        let rows = figures(first.is_rated && second.is_rated).map(row).collect();
        SideBySide { rows, turns: None, first: first.clone(), second: second.clone() }
    }

    /// The cells of a row, in the order of [`COLUMNS`].
    pub(crate) fn cells(row: &ComparedFigure) -> [String; 7] {
        let [first, second] = [row.first, row.second].map(|value| row.figure.text(value));
        let verdict = row.verdict().to_owned();
        [row.figure.name.into(), first, second, row.effect_text(), row.interval_text(), row.probability_text(), verdict]
    }

    /// The comparison as a table for a terminal or a file.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, run) in [("A", &self.first), ("B", &self.second)] {
            out.push_str(&format!("{name}: {}, {}\n", printable(&run.target), printable(&run.load)));
        }
        out.push_str(&format!("\n{}\n\n", self.answer()));
        let mut grid = Grid::default();
        grid.row(COLUMNS);
        self.rows.iter().for_each(|row| grid.row(SideBySide::cells(row)));
        grid.append(&mut out);
        out.push_str(&format!("\n{}\n", self.explanation()));
        out
    }

    /// Whether the servers differ, as a sentence.
    pub(crate) fn answer(&self) -> String {
        let Some(Turns { rounds, invalid_turns, .. }) = &self.turns else {
            return "Two runs one after the other: whether they differ was not tested.".to_owned();
        };
        if *rounds < PAIRS_MIN {
            return format!("Too few rounds to see a difference: {rounds}. At least --rounds {PAIRS_MIN} are needed.");
        }
        let found: Vec<String> = self.rows.iter().filter(|row| row.differs()).map(ComparedFigure::found).collect();
        let mut answer = match found.is_empty() {
            true => format!("No difference seen in {rounds} rounds."),
            false => format!("B differs from A: {}.", found.join("; ")),
        };
        if *invalid_turns > 0 {
            answer.push_str(&format!(
                " In {invalid_turns} of {} turns the generator did not keep to its plan: their latencies are partly its own.",
                2 * rounds
            ));
        }
        answer
    }

    /// Name of the run that a page shows in detail after the comparison.
    pub(crate) fn detailed(&self) -> &'static str {
        if self.turns.is_some() { "The last turn of A" } else { "The run B" }
    }

    /// How the figures were computed, as sentences.
    pub(crate) fn explanation(&self) -> String {
        let Some(Turns { rounds, .. }) = &self.turns else {
            return "What the machine did between the two runs is in the ratios. --vs measures two servers in turns and tests whether they \
                    differ."
                .to_owned();
        };
        format!(
            "A and B are medians of {rounds} turns each. In each round the order of both was drawn at random. B / A is the mean of the \
             rounds, and lies in its interval with a confidence of 95 %. p is the probability that any figure of two equal servers differs \
             so consistently; a difference is reported where it is at most {ERROR_RATE}, so at most 1 of {} comparisons of equal servers \
             reports any.",
            (1.0 / ERROR_RATE).round()
        )
    }
}

impl Figure {
    /// Whether both values have a ratio, or a difference.
    fn is_comparable(&self, first: Option<f64>, second: Option<f64>) -> bool {
        let is_usable = |value: Option<f64>| value.is_some_and(|value| value > 0.0 || self.is_subtracted());
        is_usable(first) && is_usable(second)
    }
}

impl ComparedFigure {
    /// A difference for the answer: `latency, p50 1.514 × (1.49 to 1.53)`.
    fn found(&self) -> String {
        let sign = if self.figure.is_subtracted() { "" } else { " ×" };
        format!("{} {}{sign} ({})", self.figure.name, self.effect_text(), self.interval_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape};
    use std::convert::Infallible;

    fn row<'a>(comparison: &'a SideBySide, key: &str) -> &'a ComparedFigure {
        comparison.rows.iter().find(|row| row.figure.key == key).unwrap()
    }

    /// A comparison in which each turn has one latency, in microseconds.
    fn compared(rounds: usize, latency_us: impl Fn(Turn) -> u64) -> SideBySide {
        let calm = sample_run::recording(Shape::Calm);
        run(&schedule(rounds, 7), |turn| {
            let mut run = calm.clone();
            let mut histogram = sample_run::histogram();
            histogram.record(latency_us(turn) * 1_000).unwrap();
            run.latencies.latency = histogram;
            run.target = format!("{:?}", turn.side);
            Ok::<_, Infallible>(run)
        })
        .unwrap()
    }

    #[test]
    fn each_round_has_a_turn_of_both_servers_in_an_order_that_the_seed_decides() {
        let turns = schedule(200, 1);
        assert_eq!(turns.len(), 400);
        assert!(turns.chunks(2).all(|round| round[0].side != round[1].side));
        assert!(turns.iter().enumerate().all(|(index, turn)| turn.index == index && turn.count == 400));
        let begun_by_first = turns.iter().step_by(2).filter(|turn| turn.side == Side::First).count();
        assert!((70..130).contains(&begun_by_first), "{begun_by_first}");
        assert_eq!(turns, schedule(200, 1));
        assert_ne!(turns, schedule(200, 2));
        assert_ne!(new_seed(), new_seed());
        assert_eq!((schedule(0, 1).len(), schedule(usize::MAX, 1).len()), (2, 2 * ROUNDS_MAX));
    }

    #[test]
    fn a_drift_of_the_machine_is_no_difference() {
        // Each turn is slower by 100 µs than the one before it; the servers are equal.
        let comparison = compared(10, |turn| 1_000 + 100 * turn.index as u64);
        let row = row(&comparison, "latency_us.p50");
        assert_eq!(row.verdict(), "no difference seen", "{row:?}");
        assert!(comparison.text().contains("\nNo difference seen in 10 rounds.\n"), "{}", comparison.text());
    }

    #[test]
    fn a_slower_server_is_told_with_its_interval_and_probability() {
        let comparison = compared(10, |turn| {
            let own = if turn.side == Side::First { 1_000 } else { 1_500 };
            own + 7 * (turn.index as u64 % 3)
        });
        let row = row(&comparison, "latency_us.p50");
        let (low, high) = row.interval.unwrap();
        assert!(1.48 < low && low < row.effect.unwrap() && row.effect.unwrap() < high && high < 1.52, "{row:?}");
        assert_eq!((row.verdict(), row.probability_text().as_str()), ("more", "0.002"), "{row:?}");
        let text = comparison.text();
        assert!(text.starts_with("A: First, ") && text.contains("\nB: Second, "), "{text}");
        for part in
            ["\nB differs from A: latency, mean 1.", "95 % interval", "no difference seen", "medians of 10 turns each"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn too_few_rounds_have_no_verdict_and_say_how_many_are_needed() {
        let comparison = compared(PAIRS_MIN - 1, |turn| if turn.side == Side::First { 1_000 } else { 2_000 });
        assert!(comparison.rows.iter().all(|row| row.verdict() == NONE && !row.differs()), "{:?}", comparison.rows);
        assert!(comparison.text().contains("At least --rounds 6 are needed."), "{}", comparison.text());
        let enough = compared(PAIRS_MIN, |turn| if turn.side == Side::First { 1_000 } else { 2_000 });
        assert_eq!(row(&enough, "latency_us.p50").verdict(), "more");
    }

    #[test]
    fn the_json_has_both_summaries_and_for_each_figure_effect_interval_probability_and_verdict() {
        let comparison = compared(10, |turn| if turn.side == Side::First { 1_000 } else { 1_500 });
        let object: serde_json::Value = serde_json::from_str(&comparison.json()).unwrap();
        assert_eq!((&object["rounds"], &object["first"]["target"]), (&10.into(), &"First".into()));
        assert_eq!(
            (&object["differs"], &object["error_rate"], &object["invalid_turns"]),
            (&true.into(), &0.05.into(), &0.into())
        );
        assert_eq!(object["order"].as_str().unwrap().len(), 20);
        let figure = &object["figures"]["latency_us.p50"];
        let number = |key: &str| figure[key].as_f64().unwrap();
        assert!((number("ratio") - 1.5).abs() < 2e-3 && number("low") <= number("ratio"), "{object}");
        assert!(number("p") < 0.05 && figure["verdict"] == "more" && number("high") >= number("ratio"), "{object}");
        let errors = &object["figures"]["errors_percent"];
        assert!(errors["difference"] == 0.0 && errors.get("ratio").is_none(), "{object}");
        assert_eq!(errors["verdict"], "no difference seen");
        assert_eq!(object["figures"].as_object().unwrap().len(), FIGURES - 1, "nobody asked for the rating");
    }

    #[test]
    fn a_server_that_fails_where_the_other_does_not_differs_in_its_errors() {
        let calm = sample_run::recording(Shape::Calm);
        let comparison = run(&schedule(10, 3), |turn| {
            let mut run = calm.clone();
            if turn.side == Side::Second {
                run.outcome.wrong += run.outcome.right / 50;
                run.outcome.right -= run.outcome.right / 50;
            }
            Ok::<_, Infallible>(run)
        });
        let comparison = comparison.unwrap();
        let errors = row(&comparison, "errors_percent");
        assert_eq!((errors.verdict(), errors.effect_text().as_str()), ("more", "+2.00 points"), "{errors:?}");
        assert!(comparison.answer().contains("errors +2.00 points (+2.00 to +2.00 points)"), "{}", comparison.answer());
    }

    #[test]
    fn turns_that_measured_the_generator_are_counted() {
        let calm = sample_run::recording(Shape::Calm);
        let comparison = run(&schedule(6, 3), |turn| {
            let validity = if turn.index < 3 { Validity::Invalid("late".into()) } else { Validity::Valid };
            Ok::<_, Infallible>(Recording { validity, ..calm.clone() })
        });
        let answer = comparison.unwrap().answer();
        assert!(answer.contains("In 3 of 12 turns the generator did not keep to its plan"), "{answer}");
    }

    #[test]
    fn an_error_ends_the_comparison() {
        let mut turns = 0;
        let result = run(&schedule(5, 1), |_| {
            turns += 1;
            if turns == 3 { Err("no server") } else { Ok(sample_run::recording(Shape::Calm)) }
        });
        assert_eq!((result.err(), turns), (Some("no server"), 3));
    }

    #[test]
    fn two_single_runs_have_ratios_and_no_verdict() {
        let [calm, slower] = [Shape::Calm, Shape::Slower].map(sample_run::recording);
        let comparison = SideBySide::of_runs(&calm, &slower);
        let slower = row(&comparison, "latency_us.p50");
        assert!((1.1..1.5).contains(&slower.effect.unwrap()), "{slower:?}");
        assert!(comparison.rows.iter().all(|row| row.verdict() == NONE && row.interval.is_none()));
        assert!(comparison.text().contains("whether they differ was not tested"), "{}", comparison.text());
        let object: serde_json::Value = serde_json::from_str(&comparison.json()).unwrap();
        assert!(object["differs"].is_null() && object["figures"]["latency_us.p50"]["verdict"].is_null(), "{object}");
    }

    #[test]
    fn a_rating_is_compared_where_it_was_asked_for() {
        let calm = Recording { is_rated: true, ..sample_run::recording(Shape::Calm) };
        assert_eq!(SideBySide::of_runs(&calm, &calm).rows.len(), FIGURES);
    }

    #[test]
    fn a_difference_that_is_shown_as_none_is_none() {
        let compared = |figure, effect| ComparedFigure {
            figure,
            first: None,
            second: None,
            effect: Some(effect),
            interval: None,
            probability: Some(0.001),
        };
        let verdict = |effect| compared(&FIGURE[0], effect).verdict();
        assert_eq!(
            [verdict(0.9996), verdict(1.0004), verdict(0.999), verdict(1.001)],
            ["the same", "the same", "less", "more"]
        );
        assert!(!compared(&FIGURE[0], 1.0004).differs() && compared(&FIGURE[0], 1.001).differs());
        let points = |effect| compared(&FIGURE[9], effect).verdict();
        assert_eq!(
            [points(0.004), points(-0.004), points(0.1), points(-0.1)],
            ["the same", "the same", "more", "less"]
        );
    }

    /// The noise of simulated turns.
    #[derive(Clone, Copy)]
    struct Noise {
        /// Standard deviation of the logarithm of a turn's speed, which is autocorrelated.
        turn: f64,
        /// Standard deviation that each figure has beside it.
        figure: f64,
        /// Growth of the logarithm from turn to turn.
        drift: f64,
        /// Share of turns that something else on the machine makes half again as slow.
        disturbed: f64,
    }

    /// Share of the speed of a turn that the next one keeps.
    const KEPT: f64 = 0.7;
    const BUSY: Noise = Noise { turn: 0.05, figure: 0.02, drift: 0.004, disturbed: 0.05 };

    fn normal(random: &mut ChaCha8Rng) -> f64 {
        // Irwin-Hall: the sum of twelve uniform numbers has the variance one.
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    /// A comparison of simulated servers; the second is slower by this factor.
    fn simulated(rounds: usize, seed: u64, noise: Noise, slower: f64) -> Vec<ComparedFigure> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut speed = noise.turn * normal(&mut random);
        let turn = |turn: &Turn| {
            speed = KEPT * speed + (1.0 - KEPT * KEPT).sqrt() * noise.turn * normal(&mut random);
            let disturbed = if random.random::<f64>() < noise.disturbed { 1.5_f64.ln() } else { 0.0 };
            let own = if turn.side == Side::Second { slower.ln() } else { 0.0 };
            let base = speed + disturbed + own + noise.drift * turn.index as f64;
            let mut figures = [None; FIGURES];
            for (index, figure) in figures.iter_mut().enumerate().take(8) {
                // Tails are noisier than the middle, and the longest latency most of all.
                let factor = [1.0, 1.0, 1.5, 3.0, 8.0, 20.0, 1.0, 3.0][index];
                *figure = Some(1e6 * (base + factor * noise.figure * normal(&mut random)).exp());
            }
            figures[8] = Some(10_000.0 * (1.0 + 1e-4 * normal(&mut random)));
            figures[9] = Some(f64::from(u8::from(random.random::<f64>() < 0.1)) * 0.01);
            figures[RATING] = Some(1.0);
            (turn.side, Figures(figures))
        };
        let turns: Vec<(Side, Figures)> = schedule(rounds, !seed).iter().map(turn).collect();
        rows(&turns.chunks_exact(2).filter_map(Round::of).collect::<Vec<_>>(), false)
    }

    #[track_caller]
    fn check_error_rate(rounds: usize, comparisons: u64, noise: Noise) {
        let wrong = (0..comparisons)
            .filter(|seed| simulated(rounds, *seed, noise, 1.0).iter().any(ComparedFigure::differs))
            .count() as f64;
        let expected = ERROR_RATE * comparisons as f64;
        // Three standard deviations of the number of errors at the stated rate.
        let most = expected + 3.0 * (expected * (1.0 - ERROR_RATE)).sqrt();
        assert!(wrong <= most, "{wrong} of {comparisons} comparisons of equal servers report a difference");
        assert!(wrong >= expected / 5.0, "{wrong} of {comparisons}: the test could find nothing");
    }

    #[test]
    fn equal_servers_differ_in_at_most_one_of_twenty_comparisons_whatever_the_noise() {
        check_error_rate(ROUNDS_USUAL, 1_000, BUSY);
        check_error_rate(8, 1_000, Noise { turn: 0.2, drift: -0.02, ..BUSY });
        check_error_rate(7, 1_000, Noise { turn: 0.0, disturbed: 0.3, ..BUSY });
    }

    #[test]
    fn a_difference_of_three_times_the_noise_is_found_in_nineteen_of_twenty_comparisons() {
        // A turn varies by 3 % beside its neighbour; the second server is 10 % slower.
        let noise = Noise { turn: 0.03, figure: 0.01, drift: 0.002, disturbed: 0.0 };
        let found = |seed: &u64| {
            let rows = simulated(ROUNDS_USUAL, *seed, noise, 1.1);
            rows.iter().any(|row| row.figure.key == "latency_us.p50" && row.verdict() == "more")
        };
        let found = (0..300).filter(found).count();
        assert!(found >= 285, "{found} of 300");
    }
}
