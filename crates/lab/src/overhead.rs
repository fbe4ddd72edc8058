//! A model's cost per task: tasks of a known size through the model, and the same tasks inline, in turns.
//!
//! The overhead is the difference in processor time of the whole process per task: queues, wake-ups, context switches. Tasks of a
//! few microseconds keep the threads busy, as requests would; empty tasks would measure how fast threads fall asleep.

use crate::unit::{compute, units_per_us};
use crate::usage::Usage;
use executor::{Executor, ExecutorStartError, Model, once};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Number of rounds of both sides in turns, of which the median counts.
const ROUNDS: usize = 5;
/// Time limit of a round.
const ROUND_MAX: Duration = Duration::from_secs(600);

/// Cost of a task in a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overhead {
    /// The model, in the syntax of `--model`.
    pub model: String,
    /// Processor time per task in addition to its own, in microseconds.
    pub cpu_us: f64,
    /// Processor time of the task itself, in microseconds.
    pub task_us: f64,
    /// Time from one submission to the next, in microseconds.
    pub wall_us: f64,
}

/// Measures a model with `tasks` tasks of about `task_us` microseconds.
pub fn measure(model: Model, tasks: u32, task_us: f64, queue_max: usize) -> Result<Overhead, ExecutorStartError> {
    let units = (task_us * units_per_us()).round().max(1.0) as u64;
    let (mut inline, mut through, mut walls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        inline.push(round(Model::Inline, tasks, units, queue_max)?.0);
        let (cpu, wall) = round(model, tasks, units, queue_max)?;
        through.push(cpu);
        walls.push(wall);
    }
    let [inline, through, wall_us] = [inline, through, walls].map(median);
    Ok(Overhead { model: model.to_string(), cpu_us: through - inline, task_us: inline, wall_us })
}

/// Processor time and wall time per task, in microseconds.
fn round(model: Model, tasks: u32, units: u64, queue_max: usize) -> Result<(f64, f64), ExecutorStartError> {
    let executor: Box<dyn Executor> = model.start("lab", queue_max)?;
    let (before, began) = (Usage::now(), Instant::now());
    for _ in 0..tasks {
        let task = once(move || {
            thread_local! {
                static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
            }
            BUFFER.with_borrow_mut(|buffer| compute(units, buffer));
        });
        // Refused only by an executor that drains.
        if executor.submit(task).is_err() {
            break;
        }
    }
    executor.drain(began + ROUND_MAX);
    let (used, wall) = (Usage::now().since(before), began.elapsed());
    let each = |duration: Duration| duration.as_secs_f64() * 1e6 / f64::from(tasks.max(1));
    Ok((each(used.user + used.system), each(wall)))
}

fn median(values: Vec<f64>) -> f64 {
    crate::statistics::median_index(&values).map_or(0.0, |index| values[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_runs_all_tasks_of_both_sides() {
        let overhead = measure(Model::Pool { threads: 2 }, 50, 1.0, 16).unwrap();
        assert_eq!(overhead.model, "pool:2");
        assert!(overhead.task_us > 0.0 && overhead.wall_us > 0.0, "{overhead:?}");
        assert!(measure(Model::Pool { threads: 0 }, 1, 1.0, 1).is_err());
    }
}
