//! Custom mixes: a TOML file that defines what requests compute, wait and yield.
//!
//! ```toml
//! [[kinds]]
//! every = 100                                   # ids divisible by 100
//! steps = ["cpu 20us", "wait 10ms", "cpu 5us"]
//!
//! [[kinds]]                                     # all others
//! steps = ["cpu 25us", "yield", "cpu 25us"]
//! ```
//!
//! A request is of the first kind whose `every` divides its id; a kind without `every` takes every id. Computing is measured in
//! processor time, not in elapsed time: a step of 20 µs repeats a unit of work, measured once at the start, as often as fills 20
//! µs.

use serde::Deserialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Largest number of kinds in a file.
const KINDS_MAX: usize = 64;
/// Largest number of steps of a kind.
const STEPS_MAX: usize = 64;
/// Longest computing or waiting of a step.
const STEP_MAX: Duration = Duration::from_secs(60);

/// One step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Computes for this time, measured alone on a core.
    Cpu(Duration),
    /// Waits.
    Wait(Duration),
    /// Lets other tasks run first.
    Yield,
}

/// Requests whose ids have a certain divisor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    every: u32,
    steps: Vec<Step>,
}

/// The steps of requests, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    kinds: Vec<Kind>,
}

/// Why a mix is invalid: the place and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixError(String);

impl fmt::Display for MixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MixError {}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kinds: Vec<FileKind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKind {
    every: Option<u32>,
    steps: Vec<String>,
}

impl Mix {
    /// Reads a mix from a file.
    pub fn read(file: &Path) -> Result<Self, MixError> {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| MixError(format!("cannot read {}: {error}", file.display())))?;
        Self::parse(&text).map_err(|error| MixError(format!("{}: {error}", file.display())))
    }

    /// Parses a mix in TOML.
    pub fn parse(text: &str) -> Result<Self, MixError> {
        let file: File = toml::from_str(text).map_err(|error| MixError(error.to_string()))?;
        if file.kinds.len() > KINDS_MAX {
            return Err(MixError(format!("{} kinds; {KINDS_MAX} at most", file.kinds.len())));
        }
        let kinds = file.kinds.iter().enumerate().map(|(index, kind)| parse_kind(index + 1, kind));
        let kinds = kinds.collect::<Result<Vec<Kind>, _>>()?;
        match kinds.last() {
            Some(last) if last.every == 1 => Ok(Self { kinds }),
            _ => Err(MixError("the last kind must take every id that is left: leave out its `every`".to_owned())),
        }
    }

    /// The steps of a request.
    pub(crate) fn steps(&self, id: u32) -> &[Step] {
        // The last kind takes every id.
        self.kinds.iter().find(|kind| id.is_multiple_of(kind.every)).map_or(&[], |kind| &kind.steps)
    }
}

fn parse_kind(number: usize, kind: &FileKind) -> Result<Kind, MixError> {
    let every = kind.every.unwrap_or(1);
    if every == 0 {
        return Err(MixError(format!("kind {number}: `every` is 1 or more")));
    }
    if kind.steps.len() > STEPS_MAX {
        return Err(MixError(format!("kind {number} has {} steps; {STEPS_MAX} at most", kind.steps.len())));
    }
    let steps = kind.steps.iter().map(|step| {
        parse_step(step).ok_or_else(|| {
            let allowed = "`cpu TIME`, `wait TIME` or `yield`, with a TIME such as 250us, 10ms or 1.5s, up to 60s";
            MixError(format!("kind {number}: `{step}` is no step; allowed: {allowed}"))
        })
    });
    Ok(Kind { every, steps: steps.collect::<Result<_, _>>()? })
}

fn parse_step(text: &str) -> Option<Step> {
    let mut words = text.split_whitespace();
    let step = match (words.next()?, words.next()) {
        ("yield", None) => Step::Yield,
        ("cpu", Some(time)) => Step::Cpu(parse_time(time)?),
        ("wait", Some(time)) => Step::Wait(parse_time(time)?),
        _ => return None,
    };
    words.next().is_none().then_some(step)
}

/// A number with its unit: `us`, `ms` or `s`.
fn parse_time(text: &str) -> Option<Duration> {
    let unit_at = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let duration = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    (duration <= STEP_MAX).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: &str = "[[kinds]]\nevery = 100\nsteps = [\"cpu 20us\", \"wait 10ms\", \"cpu 0.5ms\"]\n\
                       [[kinds]]\nsteps = [\"cpu 25us\", \"yield\"]\n";

    #[test]
    fn a_request_is_of_the_first_kind_that_divides_its_id() {
        let mix = Mix::parse(MIX).unwrap();
        let [us, ms] = [Duration::from_micros, Duration::from_millis];
        assert_eq!(mix.steps(300), [Step::Cpu(us(20)), Step::Wait(ms(10)), Step::Cpu(us(500))]);
        assert_eq!(mix.steps(301), [Step::Cpu(us(25)), Step::Yield]);
    }

    #[track_caller]
    fn check_mistake(text: &str, part: &str) {
        let error = Mix::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_what_is_allowed() {
        check_mistake("", "kinds");
        check_mistake("[[kinds]]\nevery = 2\nsteps = []", "the last kind must take every id");
        check_mistake("[[kinds]]\nevery = 0\nsteps = []", "kind 1: `every` is 1 or more");
        check_mistake("[[kinds]]\nstep = []", "unknown field `step`");
        for step in [
            "sleep 1s",
            "wait",
            "wait 1",
            "wait 1h",
            "wait -1s",
            "wait 61s",
            "yield now",
            "cpu 1ms 2ms",
            "wait x1s",
            "",
        ] {
            check_mistake(
                &format!("[[kinds]]\nsteps = [\"{step}\"]"),
                &format!("kind 1: `{step}` is no step; allowed: `cpu TIME`"),
            );
        }
        check_mistake(&format!("[[kinds]]\nsteps = {:?}", vec!["yield"; 65]), "65 steps; 64 at most");
    }
}
