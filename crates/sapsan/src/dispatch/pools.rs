//! The executors of an application: threads for work that may wait.

use executor::{PoolSettings, Refused, ThreadPool};

/// Threads of an executor.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Number of threads, 1 to [`executor::THREADS_MAX`]. All start with the application.
    pub count: usize,
    /// Number of requests that may wait for a thread; more are answered 503.
    pub queue_max: usize,
}

/// The executors of an application.
#[derive(Default)]
pub(crate) struct Pools(Vec<(String, ThreadPool)>);

impl Pools {
    /// Starts the threads.
    pub(crate) fn start(wanted: Vec<(String, Threads)>) -> Result<Pools, executor::ExecutorStartError> {
        let mut pools = Pools::default();
        for (name, Threads { count, queue_max }) in wanted {
            let pool = ThreadPool::new(PoolSettings { threads: count, queue_max, name: name.clone() })?;
            pools.0.push((name, pool));
        }
        Ok(pools)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ThreadPool> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, pool)| pool)
    }

    /// Waits for the accepted jobs, until the deadline.
    pub(crate) fn drain(&self, deadline: std::time::Instant) {
        for (name, pool) in &self.0 {
            if let executor::Drained::Left { queued, running } = pool.drain(deadline) {
                tracing::warn!(executor = name, queued, running, "requests were left unanswered at the end");
            }
        }
    }

    /// Submits a job to an executor, or returns why it is refused.
    pub(crate) fn submit(&self, name: &str, job: impl FnOnce() + Send + 'static) -> Result<(), &'static str> {
        let pool = self.get(name).ok_or("the application has no such executor")?;
        pool.try_submit(Box::new(job)).map_err(|refused| refusal_reason(&refused))
    }
}

/// Why an executor refuses a job.
pub(crate) fn refusal_reason<J>(refused: &Refused<J>) -> &'static str {
    match refused {
        Refused::Full(_) => "too many requests wait for a thread",
        Refused::Draining(_) => "the server ends",
    }
}
