//! The table of results: figures of all engines, judged against a bound, one row for each line of standard output.

use crate::engine::{Kind, Outcome};

/// The figure of a row that no peer takes part in, as with `--engines`.
pub(crate) const NO_PEER: &str = "no peer";

/// Figures of one engine, one of each round.
#[derive(Clone, Debug)]
struct Series {
    kind: Kind,
    values: Vec<f64>,
}

/// Figures of all engines for one piece of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Vec<Series>);

impl Figures {
    /// Nothing measured yet.
    pub(crate) const EMPTY: Figures = Figures(Vec::new());

    /// An engine's newest figure.
    pub(crate) fn last(&self, kind: Kind) -> Option<f64> {
        self.0.iter().find(|series| series.kind == kind)?.values.last().copied()
    }

    /// Adds a round's figure.
    pub(crate) fn add(&mut self, kind: Kind, value: f64) {
        match self.0.iter_mut().find(|series| series.kind == kind) {
            Some(series) => series.values.push(value),
            None => self.0.push(Series { kind, values: vec![value] }),
        }
    }

    /// An engine's median.
    pub(crate) fn median(&self, kind: Kind) -> Option<f64> {
        self.0.iter().find(|series| series.kind == kind).map(|series| median(&series.values))
    }

    /// Ours; not a number where it was left out.
    pub(crate) fn ours(&self) -> f64 {
        self.median(Kind::Store).unwrap_or(f64::NAN)
    }

    /// The best peer and its median.
    pub(crate) fn best_peer(&self, better: Better, allowed: impl Fn(Kind) -> bool) -> Option<(Kind, f64)> {
        let medians = self.0.iter().filter(|series| series.kind != Kind::Store && allowed(series.kind));
        let medians = medians.map(|series| (series.kind, median(&series.values)));
        medians.max_by(|one, other| match better {
            Better::More => one.1.total_cmp(&other.1),
            Better::Less => other.1.total_cmp(&one.1),
        })
    }

    /// All peers' medians as text.
    pub(crate) fn peers(&self, unit: Unit) -> String {
        let peers = self.0.iter().filter(|series| series.kind != Kind::Store);
        let texts: Vec<_> =
            peers.map(|series| format!("{} {}", series.kind.name(), unit.text(median(&series.values)))).collect();
        if texts.is_empty() { "—".to_owned() } else { texts.join(", ") }
    }

    /// How far our rounds differ.
    pub(crate) fn noise(&self) -> String {
        let ours = self.0.iter().find(|series| series.kind == Kind::Store);
        ours.map_or_else(|| "—".to_owned(), |series| spread(&series.values))
    }

    /// The better of two ways, for each engine.
    pub(crate) fn best_of(self, other: &Figures) -> Figures {
        let better = |series: Series| match other.median(series.kind) {
            Some(median_of_other) if median_of_other > median(&series.values) => {
                let values = other.0.iter().find(|other| other.kind == series.kind).map(|other| other.values.clone());
                Series { kind: series.kind, values: values.unwrap_or(series.values) }
            }
            _ => series,
        };
        Figures(self.0.into_iter().map(better).collect())
    }
}

/// The middle value; of an even count the upper middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How far values differ, as text.
pub(crate) fn spread(values: &[f64]) -> String {
    if values.len() < 2 {
        return "one run".to_owned();
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{:.0} %", (values.iter().copied().fold(0.0, f64::max) / least - 1.0) * 100.0)
}

/// Which of two figures wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// The larger.
    More,
    /// The smaller.
    Less,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Something a second.
    PerSecond,
    /// Megabytes (10^6).
    Megabytes,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A ratio.
    Times,
}

impl Unit {
    /// The figure with its unit.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Unit::PerSecond if value >= 9.995e5 => format!("{:.2}M/s", value / 1e6),
            Unit::PerSecond if value >= 1e5 => format!("{:.0}k/s", value / 1e3),
            Unit::PerSecond => format!("{:.1}k/s", value / 1e3),
            Unit::Megabytes => format!("{:.0} MB", value / 1e6),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Times => format!("{value:.2} ×"),
        }
    }
}

/// One row, in the columns of `bench/RESULTS.md`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) work: String,
    /// The other side.
    pub(crate) other: String,
    /// Our side.
    pub(crate) ours: String,
    /// What is judged.
    pub(crate) figure: String,
    /// What it should be.
    pub(crate) bound: String,
    /// Whether it is.
    pub(crate) reached: bool,
    /// How far equal runs differ.
    pub(crate) noise: String,
}

impl Row {
    /// One line, fields parted by tabs: `cargo xtask bench store` reads it.
    pub(crate) fn print(&self) {
        let Row { work, other, ours, figure, bound, reached, noise } = self;
        let verdict = if *reached { "reached" } else { "short" };
        println!("row\t{work}\t{other}\t{ours}\t{figure}\t{bound}\t{verdict}\t{noise}");
    }

    /// Ours beside the best peer.
    pub(crate) fn against_peers(work: &str, figures: &Figures, unit: Unit, better: Better, times: f64) -> Row {
        Row::against(work, figures, unit, better, times, |_| true)
    }

    /// Ours beside the best of some peers.
    pub(crate) fn against(
        work: &str,
        figures: &Figures,
        unit: Unit,
        better: Better,
        times: f64,
        allowed: impl Fn(Kind) -> bool,
    ) -> Row {
        let best = figures.best_peer(better, allowed);
        let ratio = best.map_or(f64::NAN, |(_, best)| figures.ours() / best);
        let (sign, reached) = match better {
            Better::More => ("≥", ratio >= times),
            Better::Less => ("≤", ratio <= times),
        };
        Row {
            work: work.to_owned(),
            other: figures.peers(unit),
            ours: unit.text(figures.ours()),
            figure: best.map_or_else(|| NO_PEER.to_owned(), |(kind, _)| format!("{ratio:.2} × {}", kind.name())),
            bound: format!("{sign} {times:.2} ×"),
            reached,
            noise: figures.noise(),
        }
    }
}

impl Figures {
    /// Adds a measured figure. A peer that cannot do the work is left out of the row, and told; ours may not fail.
    pub(crate) fn measure(&mut self, kind: Kind, measured: Outcome<f64>) -> Outcome<()> {
        match measured {
            Ok(value) => self.add(kind, value),
            Err(error) if kind != Kind::Store => eprintln!("{} left out: {error}", kind.name()),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
