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

/// Wall times that differ by less than this share are equal: repeated runs of one model differ by as much on an idle machine.
const NOISE_SHARE: f64 = 0.02;

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
    /// The experiment with the least wall time, and those that are tied with it, the fastest first. A tie: the wall times of their
    /// runs overlap, or the medians differ by less than the noise.
    pub fn fastest(&self) -> Vec<&ExperimentReport> {
        let mut order: Vec<&ExperimentReport> = self.experiments.iter().collect();
        order.sort_by(|one, other| one.run.wall.total_cmp(&other.run.wall));
        let Some(best) = order.first().copied() else { return order };
        let slowest = best.walls.iter().copied().fold(best.run.wall, f64::max);
        order.retain(|one| {
            let quickest = one.walls.iter().copied().fold(one.run.wall, f64::min);
            quickest <= slowest || one.run.wall <= best.run.wall * (1.0 + NOISE_SHARE)
        });
        order
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::statistics::LatencyPercentiles;
    use crate::trace::Timeline;
    use executor::Model;

    const OPTIMUM: Optimum = Optimum { work: 0.9, chain: 0.1, arrival: 0.1 };

    fn experiment(threads: usize, walls: &[f64]) -> ExperimentReport {
        let run = |wall: &f64| RunResults {
            wall: *wall,
            rate: 1.0,
            user: 0.0,
            system: 0.0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            threads_peak: 1,
            memory_peak: None,
            latency: LatencyPercentiles::default(),
            control: Control { requests: 1, result_sum: 0.0, waits_ms: 0.0, yields: 0 },
            timeline: Timeline { step: 1.0, running: vec![1.0], waiting: vec![0.0] },
        };
        ExperimentReport::of(Experiment::of_model(Model::Pool { threads }), walls.iter().map(run).collect(), &OPTIMUM)
            .unwrap()
    }

    fn report(experiments: Vec<ExperimentReport>) -> SeriesReport {
        SeriesReport {
            workload: "w".into(),
            requests: 1,
            scale: 1.0,
            work: 1,
            cores: 2,
            queue_max: 1,
            costs: Costs { first: 0.0, rest: 0.0 },
            optimum: OPTIMUM,
            experiments,
        }
    }

    #[track_caller]
    fn check_fastest(walls: &[&[f64]], threads: &[usize]) {
        let experiments = walls.iter().enumerate().map(|(index, walls)| experiment(index + 1, walls)).collect();
        let report = report(experiments);
        let expected: Vec<Model> = threads.iter().map(|threads| Model::Pool { threads: *threads }).collect();
        assert_eq!(report.fastest().iter().map(|one| one.experiment.model).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn models_within_the_noise_are_tied() {
        check_fastest(&[&[1.0], &[1.5], &[1.019], &[1.03]], &[1, 3]);
        check_fastest(&[&[1.2], &[1.0]], &[2]);
        // Their runs overlap, though the medians differ by 5 %.
        check_fastest(&[&[1.05, 1.0, 1.1], &[1.0, 0.98, 1.01], &[1.06, 1.04, 1.07]], &[2, 1]);
        check_fastest(&[], &[]);
    }

    #[test]
    fn the_page_says_that_models_are_tied_and_names_a_fastest_one_only_if_it_is() {
        let tied = page(&report(vec![experiment(1, &[1.0]), experiment(2, &[1.01]), experiment(3, &[2.0])]));
        assert!(tied.contains("Tied within the noise: <b>pool:1</b> and <b>pool:2</b>"), "{tied}");
        assert!(!tied.contains("The fastest was") && !tied.contains("came closest"), "{tied}");
        assert_eq!((tied.matches("<b>tied</b>").count(), tied.matches("tied with").count()), (2, 2), "{tied}");
        let one = page(&report(vec![experiment(1, &[1.0]), experiment(2, &[2.0])]));
        assert!(one.contains("The fastest was <b>pool:1</b>") && one.contains("came closest"), "{one}");
        assert!(!one.contains("tied") && !one.contains("Tied"), "{one}");
    }
}
