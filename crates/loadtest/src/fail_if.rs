//! `--fail-if`: conditions on a run under which the command ends with status 1, such as `p99>5ms`, `errors>0.1%`, `rps<1000`.
//!
//! ```text
//! condition = "invalid" | figure operator value
//! figure    = percentile | "mean" | "max" | "errors" | "rps" | "rating"
//! percentile= ["service_"] "p" digits ["." digits]      p999 is p99.9; mean and max may have "service_" too
//! operator  = "<" | "<=" | ">" | ">="
//! value     = number unit                               a unit of time for latencies; "%" or nothing for errors
//! ```
//!
//! Latencies count from planned moments; with `service_`, from the moments of sending. If nothing was measured, a condition on
//! latencies holds: a run without an answer is not a success.

use crate::figures::{answered_per_second, validity};
use crate::quantity::{count, nanoseconds, per_second, rating, share};
use crate::recording::{Recording, Validity};
use std::fmt;
use std::str::FromStr;

/// A condition under which a run has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    text: String,
    condition: Condition,
}

/// Why a text is not a condition. `Display` names the permitted syntax.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionError(String);

impl fmt::Display for ConditionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ConditionError {}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    /// The generator did not keep to its plan.
    Invalid,
    /// A figure compared with a limit.
    Compared(Figure, Operator, f64),
}

/// The compared figure, which determines the unit of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    /// A duration, nanoseconds.
    Duration(From, Statistic),
    /// Requests without a right answer.
    Errors,
    /// The same, in percent of all requests.
    ErrorsPercent,
    /// Replies per second.
    Rate,
    /// In seconds.
    Rating,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Planned,
    Sent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Mean,
    Max,
    Quantile(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

impl Operator {
    /// Longer operators precede their prefixes.
    const ALL: [(&'static str, Operator); 4] =
        [("<=", Operator::LessOrEqual), (">=", Operator::MoreOrEqual), ("<", Operator::Less), (">", Operator::More)];

    fn holds(self, found: f64, limit: f64) -> bool {
        match self {
            Operator::Less => found < limit,
            Operator::LessOrEqual => found <= limit,
            Operator::More => found > limit,
            Operator::MoreOrEqual => found >= limit,
        }
    }
}

impl FailIf {
    /// Whether it asks for the contest's rating.
    pub(crate) fn is_of_rating(&self) -> bool {
        matches!(self.condition, Condition::Compared(Figure::Rating, ..))
    }

    /// Why the run has failed by this condition, as a line of text. None: it has not.
    pub fn failure(&self, run: &Recording) -> Option<String> {
        let found = match self.condition {
            Condition::Invalid => {
                let is_invalid = run.validity != Validity::Valid;
                is_invalid.then(|| validity(run))?
            }
            Condition::Compared(figure, operator, limit) => {
                let found = figure.of(run);
                let fails = found.is_none_or(|found| operator.holds(found, limit));
                fails.then(|| found.map_or("nothing was measured".to_owned(), |found| figure.text(found, run)))?
            }
        };
        Some(format!("failed by --fail-if \"{}\": {found}", self.text))
    }
}

/// The failures of a run by several conditions, in order; empty for a success.
pub fn failures(conditions: &[FailIf], run: &Recording) -> Vec<String> {
    conditions.iter().filter_map(|condition| condition.failure(run)).collect()
}

impl Figure {
    /// Its value in a run. None: nothing was measured.
    fn of(self, run: &Recording) -> Option<f64> {
        let outcome = &run.outcome;
        match self {
            Figure::Duration(from, statistic) => {
                let histogram = match from {
                    From::Planned => &run.latencies.latency,
                    From::Sent => &run.latencies.service,
                };
                (!histogram.is_empty()).then(|| match statistic {
                    Statistic::Mean => histogram.mean(),
                    Statistic::Max => histogram.max() as f64,
                    Statistic::Quantile(quantile) => histogram.value_at_quantile(quantile) as f64,
                })
            }
            Figure::Errors => Some(outcome.errors() as f64),
            Figure::ErrorsPercent => {
                (outcome.planned > 0).then(|| outcome.errors() as f64 * 100.0 / outcome.planned as f64)
            }
            Figure::Rate => Some(answered_per_second(run)),
            Figure::Rating => Some(outcome.rating),
        }
    }

    /// A found value with its unit.
    fn text(self, found: f64, run: &Recording) -> String {
        match self {
            Figure::Duration(..) => format!("found {}", nanoseconds(found as u64)),
            Figure::Errors | Figure::ErrorsPercent => {
                let (errors, planned) = (run.outcome.errors(), run.outcome.planned);
                format!("found {} of {} ({})", count(errors), count(planned), share(errors, planned))
            }
            Figure::Rate => format!("found {}", per_second(found)),
            Figure::Rating => format!("found {}", rating(found)),
        }
    }
}

impl FromStr for FailIf {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<FailIf, ConditionError> {
        let bare: String = text.chars().filter(|character| !character.is_whitespace()).collect();
        let condition = if bare == "invalid" { Condition::Invalid } else { compared(&bare)? };
        Ok(FailIf { text: bare, condition })
    }
}

fn compared(text: &str) -> Result<Condition, ConditionError> {
    let at = text.find(['<', '>']).ok_or_else(|| {
        ConditionError(format!("`{text}` has no `<` or `>`; write a figure and its limit, such as `p99>5ms`"))
    })?;
    let (name, rest) = text.split_at(at);
    let (operator, value) = Operator::ALL
        .into_iter()
        .find_map(|(spelling, operator)| Some((operator, rest.strip_prefix(spelling)?)))
        .ok_or_else(|| ConditionError(format!("`{rest}` begins with no operator")))?;
    let (figure, limit) = figure_and_limit(name, value)?;
    Ok(Condition::Compared(figure, operator, limit))
}

/// The figure of this name, and the limit in the figure's unit.
fn figure_and_limit(name: &str, value: &str) -> Result<(Figure, f64), ConditionError> {
    let digits = value.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: f64 = number.parse().map_err(|_| {
        ConditionError(format!("`{value}` begins with no number; a limit is written as in `{name}>5…`"))
    })?;
    let no_unit = |figure| match unit {
        "" => Ok((figure, number)),
        _ => Err(ConditionError(format!("`{name}` takes a number without a unit, not `{value}`"))),
    };
    match name {
        "errors" if unit == "%" => Ok((Figure::ErrorsPercent, number)),
        "errors" if unit.is_empty() => Ok((Figure::Errors, number)),
        "errors" => Err(ConditionError(format!("`errors` takes a count or a share in `%`, not `{value}`"))),
        "rps" => no_unit(Figure::Rate),
        "rating" => no_unit(Figure::Rating),
        _ => Ok((duration_figure(name)?, number * unit_nanoseconds(name, value, unit)?)),
    }
}

fn duration_figure(name: &str) -> Result<Figure, ConditionError> {
    let (from, statistic) = match name.strip_prefix("service_") {
        Some(statistic) => (From::Sent, statistic),
        None => (From::Planned, name),
    };
    let statistic = match statistic {
        "mean" => Some(Statistic::Mean),
        "max" => Some(Statistic::Max),
        _ => statistic.strip_prefix('p').and_then(quantile).map(Statistic::Quantile),
    };
    statistic.map(|statistic| Figure::Duration(from, statistic)).ok_or_else(|| {
        ConditionError(format!(
            "`{name}` is no figure; there are percentiles (`p50`, `p99`, `p99.9`), `mean`, `max`, each also with \
             `service_` before it, `errors`, `rps`, `rating` and `invalid`"
        ))
    })
}

/// The quantile of a percentile's digits. `999` is 0.999: if no point is written and the first digit is a nine, a point is
/// assumed after the second digit. So `100` is not 0.1, but an invalid percentile.
fn quantile(digits: &str) -> Option<f64> {
    let written = match digits.split_at_checked(2) {
        Some((whole, part)) if digits.starts_with('9') && !part.is_empty() && !part.contains('.') => {
            format!("{whole}.{part}")
        }
        _ => digits.to_owned(),
    };
    let is_number = written.starts_with(|first: char| first.is_ascii_digit());
    let percent: f64 = written.parse().ok().filter(|_| is_number)?;
    (0.0..100.0).contains(&percent).then_some(percent / 100.0)
}

fn unit_nanoseconds(name: &str, value: &str, unit: &str) -> Result<f64, ConditionError> {
    match unit {
        "ns" => Ok(1.0),
        "us" | "µs" | "μs" => Ok(1e3),
        "ms" => Ok(1e6),
        "s" => Ok(1e9),
        _ => Err(ConditionError(format!("`{name}` takes a duration in `ns`, `us`, `ms` or `s`, not `{value}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape};

    /// A run of 1,000 requests of 1 to 1,000 ms, five of them wrong, in ten seconds.
    fn run() -> Recording {
        let mut run = sample_run::recording(Shape::Calm);
        let mut histogram = sample_run::histogram();
        (1..=1_000).for_each(|ms| histogram.record(ms * 1_000_000).unwrap());
        run.latencies.latency = histogram;
        run.seconds = 10.0;
        run.outcome.planned = 1_000;
        run.outcome.answered = 1_000;
        (run.outcome.right, run.outcome.wrong, run.outcome.rating) = (995, 5, 123.4);
        run
    }

    #[track_caller]
    fn check(condition: &str, fails: bool) {
        let condition: FailIf = condition.parse().unwrap();
        assert_eq!(condition.failure(&run()).is_some(), fails, "{condition:?}");
    }

    #[test]
    fn a_condition_that_holds_fails_the_run() {
        for condition in [
            "p99>989ms",
            "p50>=500ms",
            "max>0.99s",
            "mean>500ms",
            "errors>0.1%",
            "errors >= 5",
            "rps<101",
            "rating>100",
            "p999>990ms",
            "p99.9>990ms",
            "service_p50<1s",
            "p99.99>999ms",
        ] {
            check(condition, true);
        }
        for condition in ["p99>992ms", "p50<400ms", "errors>0.5%", "errors>5", "rps<100", "rating>123.4", "invalid"] {
            check(condition, false);
        }
    }

    #[test]
    fn the_line_says_what_failed_and_what_was_found() {
        let conditions: Vec<FailIf> =
            ["p50 > 5ms", "errors>0.1%", "rps<1000", "max<1ms"].map(|text| text.parse().unwrap()).into();
        assert_eq!(
            failures(&conditions, &run()),
            [
                "failed by --fail-if \"p50>5ms\": found 500 ms",
                "failed by --fail-if \"errors>0.1%\": found 5 of 1,000 (0.50 %)",
                "failed by --fail-if \"rps<1000\": found 100/s",
            ]
        );
    }

    #[test]
    fn a_run_without_an_answer_fails_by_any_latency() {
        let run = sample_run::nothing_answered();
        let condition: FailIf = "p99>1s".parse().unwrap();
        assert_eq!(condition.failure(&run).unwrap(), "failed by --fail-if \"p99>1s\": nothing was measured");
    }

    #[test]
    fn an_invalid_run_fails_where_that_is_asked() {
        let mut run = run();
        run.validity = Validity::Invalid("the load thread was busy".into());
        let condition: FailIf = "invalid".parse().unwrap();
        assert!(condition.failure(&run).unwrap().contains("the load thread was busy"));
    }

    #[test]
    fn a_text_that_is_no_condition_is_an_error_that_says_what_is_allowed() {
        for (text, part) in [
            ("p99", "no `<` or `>`"),
            ("p99>", "begins with no number"),
            ("p99>5", "`ns`, `us`, `ms` or `s`"),
            ("p99>5%", "`ns`, `us`, `ms` or `s`"),
            ("p99>1.2.3ms", "begins with no number"),
            ("p100>5ms", "no figure"),
            ("pinf>5ms", "no figure"),
            ("p-5>5ms", "no figure"),
            ("latency>5ms", "no figure"),
            ("rps<1000/s", "without a unit"),
            ("rating>5s", "without a unit"),
            ("errors>5ms", "a share in `%`"),
            ("", "no `<` or `>`"),
        ] {
            let error = text.parse::<FailIf>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
