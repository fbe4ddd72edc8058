//! Models by name: the syntax of configuration and command line, and the executor that each name stands for.

use crate::executor::{Executor, ExecutorStartError};
use crate::models::event_loop::{EventLoopSettings, EventLoops};
use crate::models::hybrid::Hybrid;
use crate::models::inline::Inline;
use crate::models::io_aware::{IoAwarePool, IoAwareSettings};
use crate::models::pool::{PoolSettings, ThreadPool};
use crate::models::thread_per_task::{TASK_THREADS_MAX, ThreadPerTask};
use crate::models::waves::Waves;
use crate::models::work_stealing::WorkStealing;
use std::fmt;

/// Default number of threads in a hybrid that sleep during waits.
const HYBRID_THREADS: usize = 128;
/// Default number of places of a semaphore and threads of a wave.
const PLACES: usize = 100;
/// Default number of threads of an IO-aware pool for each thread that may run.
const IO_AWARE_THREADS_PER_CORE: usize = 8;

/// An execution model with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// [`Inline`].
    Inline,
    /// [`ThreadPerTask`] with its largest bound.
    ThreadPerTask,
    /// [`ThreadPerTask`] with a smaller bound.
    Semaphore {
        /// Number of tasks at the same time.
        places: usize,
    },
    /// [`Waves`].
    Waves {
        /// Number of threads in a wave.
        size: usize,
    },
    /// [`ThreadPool`].
    Pool {
        /// Threads.
        threads: usize,
    },
    /// [`IoAwarePool`].
    IoAware {
        /// Number of all threads.
        threads: usize,
        /// Number of threads that may run at the same time.
        running_max: usize,
    },
    /// [`WorkStealing`].
    WorkStealing {
        /// Threads.
        threads: usize,
    },
    /// [`EventLoops`].
    EventLoop {
        /// Loops.
        loops: usize,
    },
    /// [`Hybrid`].
    Hybrid {
        /// Loops.
        loops: usize,
        /// Number of threads that sleep during waits.
        threads: usize,
    },
}

/// The names, for messages.
const ALLOWED: &str = "inline, thread-per-task, semaphore:N, waves:N, pool:N, io-aware:THREADS/RUNNING, work-stealing:N, \
                       event-loop:N, hybrid:LOOPS/THREADS; numbers may be left out";

impl Model {
    /// Parses `name`, `name:N` or `name:N/M`. Omitted numbers are derived from the number of cores.
    pub fn parse(text: &str, cores: usize) -> Result<Self, String> {
        let (name, numbers) = text.split_once(':').map_or((text, None), |(name, numbers)| (name, Some(numbers)));
        let wrong = || format!("`{text}` is no execution model; allowed: {ALLOWED}");
        let one = |default| match numbers {
            None => Ok(default),
            Some(number) => count(number).ok_or_else(wrong),
        };
        let two = |default| match numbers {
            None => Ok(default),
            Some(numbers) => {
                let pair = numbers.split_once('/').and_then(|(one, other)| Some((count(one)?, count(other)?)));
                pair.ok_or_else(wrong)
            }
        };
        match name {
            "inline" if numbers.is_none() => Ok(Self::Inline),
            "thread-per-task" if numbers.is_none() => Ok(Self::ThreadPerTask),
            "semaphore" => Ok(Self::Semaphore { places: one(PLACES)? }),
            "waves" => Ok(Self::Waves { size: one(PLACES)? }),
            "pool" => Ok(Self::Pool { threads: one(cores)? }),
            "io-aware" => {
                let (threads, running_max) = two((IO_AWARE_THREADS_PER_CORE * cores, cores))?;
                Ok(Self::IoAware { threads, running_max })
            }
            "work-stealing" => Ok(Self::WorkStealing { threads: one(cores)? }),
            "event-loop" => Ok(Self::EventLoop { loops: one(cores)? }),
            "hybrid" => {
                let (loops, threads) = two((cores, HYBRID_THREADS))?;
                Ok(Self::Hybrid { loops, threads })
            }
            _ => Err(wrong()),
        }
    }

    /// Starts the executor. `name` is its name in the log and in its threads' names. If the model has a queue, at most
    /// `queue_max` tasks wait; in event loops this bound includes suspended tasks.
    pub fn start(self, name: &str, queue_max: usize) -> Result<Box<dyn Executor>, ExecutorStartError> {
        let name = name.to_owned();
        Ok(match self {
            Self::Inline => Box::new(Inline::new(name)),
            Self::ThreadPerTask => Box::new(ThreadPerTask::new(name, TASK_THREADS_MAX)),
            Self::Semaphore { places } => Box::new(ThreadPerTask::new(name, places)),
            Self::Waves { size } => Box::new(Waves::new(name, size)),
            Self::Pool { threads } => Box::new(ThreadPool::new(PoolSettings { threads, queue_max, name })?),
            Self::IoAware { threads, running_max } => {
                Box::new(IoAwarePool::new(IoAwareSettings { threads, running_max, queue_max, name })?)
            }
            Self::WorkStealing { threads } => Box::new(WorkStealing::new(name, threads, queue_max)?),
            Self::EventLoop { loops } => {
                Box::new(EventLoops::new(EventLoopSettings { loops, tasks_max: queue_max, name })?)
            }
            Self::Hybrid { loops, threads } => {
                Box::new(Hybrid::new(EventLoopSettings { loops, tasks_max: queue_max, name }, threads)?)
            }
        })
    }
}

/// The form that [`Model::parse`] accepts.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline"),
            Self::ThreadPerTask => f.write_str("thread-per-task"),
            Self::Semaphore { places } => write!(f, "semaphore:{places}"),
            Self::Waves { size } => write!(f, "waves:{size}"),
            Self::Pool { threads } => write!(f, "pool:{threads}"),
            Self::IoAware { threads, running_max } => write!(f, "io-aware:{threads}/{running_max}"),
            Self::WorkStealing { threads } => write!(f, "work-stealing:{threads}"),
            Self::EventLoop { loops } => write!(f, "event-loop:{loops}"),
            Self::Hybrid { loops, threads } => write!(f, "hybrid:{loops}/{threads}"),
        }
    }
}

/// A positive number.
fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_numbers_follow_from_the_cores() {
        for text in [
            "inline",
            "thread-per-task",
            "semaphore:7",
            "waves:16",
            "pool:3",
            "io-aware:9/2",
            "work-stealing:4",
            "event-loop:1",
            "hybrid:2/64",
        ] {
            assert_eq!(Model::parse(text, 5).unwrap().to_string(), text);
        }
        assert_eq!(Model::parse("io-aware", 5), Ok(Model::IoAware { threads: 40, running_max: 5 }));
        assert_eq!(Model::parse("pool", 5), Ok(Model::Pool { threads: 5 }));
        assert_eq!(Model::parse("hybrid", 5), Ok(Model::Hybrid { loops: 5, threads: HYBRID_THREADS }));
    }

    #[test]
    fn a_wrong_name_is_told_with_those_that_are_allowed() {
        for text in ["", "threads", "pool:0", "pool:x", "pool:", "inline:3", "io-aware:3", "hybrid:1/", "waves:-1"] {
            let message = Model::parse(text, 2).unwrap_err();
            assert!(message.contains(&format!("`{text}`")) && message.contains("event-loop:N"), "{message}");
        }
    }

    #[test]
    fn more_running_threads_than_threads_are_refused() {
        let started = Model::IoAware { threads: 2, running_max: 3 }.start("test", 1);
        assert!(matches!(started.err(), Some(ExecutorStartError::Running { running: 3, threads: 2 })));
    }
}
