//! Results of a series of experiments: as values for JSON, as a table for a terminal, as a page.

mod chart;
mod explanation;
mod page;
mod table;

pub use page::page;
pub use table::table;

use crate::experiment::Experiment;
use crate::optimum::Optimum;
use crate::run::RunResults;
use crate::statistics::median_index;
use crate::workload::Costs;
use serde::Serialize;

/// The results of a series.
#[derive(Debug, Clone, Serialize)]
pub struct SeriesReport {
    /// The workload: `the classic experiment`, or the file of a mix.
    pub workload: String,
    /// Requests of each run.
    pub requests: u32,
    /// Factor of the waits.
    pub scale: f64,
    /// How often the second part of a request, or a mix's computing, was repeated.
    pub work: u32,
    /// P: the number of cores for which the models were sized.
    pub cores: usize,
    /// Largest number of tasks in a queue.
    pub queue_max: usize,
    /// Cost of the parts of a classic request.
    pub costs: Costs,
    /// The bounds.
    pub optimum: Optimum,
    /// The experiments, in the order of their runs.
    pub experiments: Vec<ExperimentReport>,
}

/// The runs of one experiment.
#[derive(Debug, Clone, Serialize)]
pub struct ExperimentReport {
    /// The experiment.
    #[serde(flatten)]
    pub experiment: Experiment,
    /// Time above the optimum, relative to it: 0.05 is five percent more.
    pub above_optimum: f64,
    /// Wall times of all runs, in seconds.
    pub walls: Vec<f64>,
    /// The run with the median wall time.
    pub run: RunResults,
}

impl ExperimentReport {
    /// The report on all runs of an experiment. `None`: there are none.
    pub fn of(experiment: Experiment, mut runs: Vec<RunResults>, optimum: &Optimum) -> Option<Self> {
        let walls: Vec<f64> = runs.iter().map(|run| run.wall).collect();
        let run = runs.swap_remove(median_index(&walls)?);
        Some(Self { experiment, above_optimum: run.wall / optimum.seconds() - 1.0, walls, run })
    }
}

impl SeriesReport {
    /// The experiment with the least wall time.
    pub fn best(&self) -> Option<&ExperimentReport> {
        self.experiments.iter().min_by(|one, other| one.run.wall.total_cmp(&other.run.wall))
    }
}

/// Bytes in mebibytes, with one decimal.
fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_owned(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
}

/// Milliseconds with a suitable number of digits.
fn milliseconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Number and title of an experiment, escaped.
fn name(one: &ExperimentReport) -> String {
    let title = escape(&one.experiment.title);
    one.experiment.number.map_or_else(|| title.clone(), |number| format!("{number}. {title}"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
