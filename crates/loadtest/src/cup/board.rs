//! The board: the result of a run, phase by phase, with the published results.

use super::contest::Contest;
use crate::recording::{Percentiles, Recording, RequestCounts, Validity};
use std::fmt;

/// Source of the published results.
const SLIDES: &str = "Mons Anderson, \"В топ Highload Cup на Perl\", slides of YAPC::Russia 2017";

/// A published result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedResult {
    /// Seconds.
    pub rating: f64,
    /// The contestant, with known circumstances.
    pub of: &'static str,
    /// Whether the figure was computed from others, which the text names.
    pub is_derived: bool,
}

const fn published(rating: f64, of: &'static str) -> PublishedResult {
    PublishedResult { rating, of, is_derived: false }
}

/// Results of the rating run of 2017.
const RATING_2017: [PublishedResult; 5] = [
    published(80.586_385, "Perl, best of this profile, 100 % right"),
    published(81.809_672, "Perl, long loops that yield, 100 % right"),
    published(150.940_976, "Perl, 36 wrong answers in phase 2 (72 s of it)"),
    published(119_848.439_812, "Perl, first version: 62 % right in phase 3"),
    PublishedResult {
        rating: f64::NAN,
        of: "the other contestants' results of this profile are not in the source",
        is_derived: true,
    },
];

/// Results on the data and the profile of the final.
const FINAL_2017: [PublishedResult; 6] = [
    PublishedResult { rating: 162.5, of: "C++, the winners: 243.77 / 1.5, the ratio of the source", is_derived: true },
    published(243.770_117, "Perl with C, at the deadline, place 42, 100 % right"),
    published(280.0, "PHP, place 35 at that moment (about)"),
    published(340.0, "Perl with C, place 48, 100 % right"),
    published(260_102.016_396, "Perl, 4,000 requests/s held"),
    published(739_491.365_476, "Perl, 7,500 requests/s held, 46 % right in phase 3"),
];

impl Contest {
    /// The published results of this profile.
    pub fn published(self) -> &'static [PublishedResult] {
        match self {
            Contest::Final2017 => &FINAL_2017,
            Contest::Rating2017 | Contest::Tenth => &RATING_2017[..4],
        }
    }
}

/// The result of one phase.
#[derive(Clone, Debug)]
pub struct PhaseResult {
    /// Number and kind.
    pub name: String,
    /// The origin of its requests.
    pub ammo: String,
    /// The recording of the run.
    pub recording: Recording,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Board {
    /// What was run.
    pub contest: Contest,
    /// The part of the contest's time, 1 for all of it.
    pub scale: f64,
    /// The phases that were run.
    pub phases: Vec<PhaseResult>,
    /// Faults that invalidate the result, such as an early end of the server or a stopped run.
    pub faults: Vec<String>,
}

impl Board {
    /// The rating of all phases, seconds.
    pub fn rating(&self) -> f64 {
        self.phases.iter().map(|phase| phase.recording.outcome.rating).sum()
    }

    /// The rating scaled to a run of the contest's length.
    fn comparable(&self) -> f64 {
        self.rating() * f64::from(self.contest.share()) / self.scale
    }

    fn is_whole(&self) -> bool {
        self.contest.share() == 1 && self.scale == 1.0
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<8} {:>9} {:>9} {:>7} {:>7} {:>7} {:>10} {:>10} {:>14}",
            "phase", "requests", "right", "wrong", "late", "lost", "p50", "p99", "rating, s"
        )?;
        self.phases.iter().try_for_each(|phase| write_phase(phase, f))?;
        writeln!(f, "{:<8} {:>84.6}", "all", self.rating())?;
        self.write_faults(f)?;
        self.write_published(f)
    }
}

fn write_phase(phase: &PhaseResult, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let outcome = &phase.recording.outcome;
    let latency = Percentiles::of(&phase.recording.latencies.latency);
    let milliseconds = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    writeln!(
        f,
        "{:<8} {:>9} {:>9} {:>7} {:>7} {:>7} {:>10} {:>10} {:>14.6}",
        phase.name,
        outcome.planned,
        outcome.right,
        outcome.wrong,
        outcome.late,
        lost(outcome),
        milliseconds(latency.p50),
        milliseconds(latency.p99),
        outcome.rating
    )?;
    writeln!(f, "         {}", phase.ammo)
}

/// Requests without a reply.
fn lost(outcome: &RequestCounts) -> u64 {
    outcome.planned.saturating_sub(outcome.answered)
}

impl Board {
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for phase in &self.phases {
            if let Validity::Invalid(reason) = &phase.recording.validity {
                writeln!(f, "INVALID, phase {}: {reason}", phase.name)?;
            }
            if phase.recording.unchecked > 0 {
                let count = phase.recording.unchecked;
                writeln!(f, "phase {}: {count} answers were not compared and count by their status", phase.name)?;
            }
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "FAULT: {fault}"))
    }

    fn write_published(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:>14}  published result", "rating, s")?;
        let mut ours = Some(self.comparable());
        for result in self.contest.published() {
            if let Some(rating) = ours.take_if(|ours| *ours <= result.rating) {
                self.write_ours(rating, f)?;
            }
            let mark = if result.is_derived { "≈" } else { "" };
            writeln!(f, "{:>14}  {}", format!("{mark}{:.6}", result.rating), result.of)?;
        }
        if let Some(rating) = ours {
            self.write_ours(rating, f)?;
        }
        writeln!(f, "Source of the published results: {SLIDES}.")?;
        write!(
            f,
            "Machines differ: those were measured on the contest's (Xeon, 4 × 2 GHz, 4 GB), the generator elsewhere; this one is measured on \
             this machine,\nwhich the server shares with the generator. Ratings of different machines tell the order of magnitude, no more."
        )
    }

    fn write_ours(&self, rating: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = if self.is_whole() { "" } else { " (scaled up to the contest's number of requests)" };
        writeln!(f, "{rating:>14.6}  → sapsan, this run{scaled}")
    }
}

#[cfg(test)]
mod showing {
    use super::{Board, PhaseResult};
    use crate::cup::contest::Contest;
    use crate::recording::{Latencies, Recording, RequestCounts, Validity};

    fn phase(name: &str, rating: f64, validity: Validity) -> PhaseResult {
        let histogram = || {
            let mut histogram = hdrhistogram::Histogram::new(3).expect("a histogram");
            histogram.record(1_500_000).expect("recorded");
            histogram
        };
        let recording = Recording {
            target: "http://a".to_owned(),
            load: "const(1,1s)".to_owned(),
            started: 0.0,
            seconds: 1.0,
            outcome: RequestCounts {
                planned: 10,
                sent: 10,
                answered: 9,
                right: 8,
                wrong: 1,
                rating,
                ..RequestCounts::default()
            },
            latencies: Latencies { latency: histogram(), service: histogram(), sending_error: histogram() },
            intervals: Vec::new(),
            interval_seconds: 1,
            phases: Vec::new(),
            tags: Vec::new(),
            passes: None,
            server: Vec::new(),
            unchecked: 0,
            unasked: 0,
            validity,
            is_rated: true,
        };
        PhaseResult { name: name.to_owned(), ammo: "generated".to_owned(), recording }
    }

    #[test]
    fn the_run_stands_among_the_published_results_by_its_rating() {
        let phases = vec![phase("1 GET", 70.0, Validity::Valid), phase("2 POST", 11.0, Validity::Valid)];
        let board = Board { contest: Contest::Rating2017, scale: 1.0, phases, faults: vec!["x".to_owned()] };
        let text = board.to_string();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
        assert!(
            place("80.586385") < place("81.000000  → sapsan, this run\n") && place("→ sapsan") < place("81.809672")
        );
        assert!(place("FAULT: x") > 0 && place("Machines differ") > 0 && place("YAPC::Russia 2017") > 0);
        let row: Vec<&str> = text.lines().nth(1).expect("a phase").split_whitespace().collect();
        assert_eq!(row[..7], ["1", "GET", "10", "8", "1", "0", "1"]);
        assert_eq!(row[7..], ["1.500", "ms", "1.500", "ms", "70.000000"], "{text}");
    }

    #[test]
    fn a_shorter_run_is_scaled_and_an_invalid_one_is_called_so() {
        let phases = vec![phase("1 GET", 2.0, Validity::Invalid("late".to_owned()))];
        let board = Board { contest: Contest::Tenth, scale: 0.5, phases, faults: Vec::new() };
        let text = board.to_string();
        assert!(text.contains("40.000000  → sapsan, this run (scaled up"), "{text}");
        assert!(text.contains("INVALID, phase 1 GET: late"), "{text}");
    }
}
