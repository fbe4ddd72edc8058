//! The numbered experiments: 1 to 12 are those of the source, with its numbers of threads; the others are
//! additions.

use executor::Model;
use serde::Serialize;

/// Threads of the source's large pool and waves.
const HUNDRED: usize = 100;
/// Threads of an IO-aware pool with one for every wait: more than the classic experiment has long waits.
const THREADS_FOR_EVERY_WAIT: usize = 256;

/// One model to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Experiment {
    /// Its number; none for a model selected by name.
    pub number: Option<u32>,
    /// Its title.
    pub title: String,
    /// The model, in the syntax of `--model`.
    #[serde(serialize_with = "as_text")]
    pub model: Model,
}

fn as_text<S: serde::Serializer>(model: &Model, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(model)
}

impl Experiment {
    /// A model selected by name.
    pub fn of_model(model: Model) -> Self {
        Self { number: None, title: model.to_string(), model }
    }
}

/// All numbered experiments for a number of cores, P.
pub fn numbered(cores: usize) -> Vec<Experiment> {
    let half = (cores / 2).max(1);
    let waves = |size| Model::Waves { size };
    let pool = |threads| Model::Pool { threads };
    let table = [
        ("sequential", Model::Inline),
        ("thread for each request", Model::ThreadPerTask),
        ("waves of 100 threads", waves(HUNDRED)),
        ("waves of 50 threads", waves(50)),
        ("waves of 16 threads", waves(16)),
        ("waves of P threads", waves(cores)),
        ("pool of 100 threads", pool(HUNDRED)),
        ("pool of 4 P threads", pool(4 * cores)),
        ("pool of 2 P threads", pool(2 * cores)),
        ("pool of P threads", pool(cores)),
        ("pool of P/2 threads", pool(half)),
        ("IO-aware pool, 8 P threads, P running", Model::IoAware { threads: 8 * cores, running_max: cores }),
        ("semaphore of 100 places", Model::Semaphore { places: HUNDRED }),
        ("work-stealing pool of P threads", Model::WorkStealing { threads: cores }),
        ("P event loops, waits suspended", Model::EventLoop { loops: cores }),
        ("hybrid: P loops, 128 threads that wait", Model::Hybrid { loops: cores, threads: 128 }),
        (
            "IO-aware pool, 256 threads, P running",
            Model::IoAware { threads: THREADS_FOR_EVERY_WAIT.max(cores), running_max: cores },
        ),
    ];
    let numbers = 1..;
    numbers
        .zip(table)
        .map(|(number, (title, model))| Experiment { number: Some(number), title: title.to_owned(), model })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_source_stand_for_its_models() {
        let models: Vec<String> = numbered(4).iter().map(|experiment| experiment.model.to_string()).collect();
        let source = [
            "inline",
            "thread-per-task",
            "waves:100",
            "waves:50",
            "waves:16",
            "waves:4",
            "pool:100",
            "pool:16",
            "pool:8",
            "pool:4",
            "pool:2",
            "io-aware:32/4",
        ];
        assert_eq!(models[..12], source);
        assert_eq!(numbered(1)[10].model, Model::Pool { threads: 1 }, "half of one core is one thread");
    }
}
