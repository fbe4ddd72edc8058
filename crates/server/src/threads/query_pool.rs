//! The threads for long queries, and their queues.
//!
//! Requests of `/_/` wait in one queue: few requests, perhaps with large statements. Declared queries and steps wait in another:
//! each takes about a kilobyte, so thousands may wait if there is memory. A request is refused at once if that memory is used
//! up, or if the requests before it are expected to take longer than a query may wait (`query_seconds`): each endpoint remembers
//! how long its queries took ([`super::loop_time`]). The threads serve the queues in turn.

use super::in_flight::{InFlight, Taken};
use crate::config::BlockingModel;
use crate::config::memory::{Division, POOL_THREADS, WAITING_QUERY_BYTES};
use crate::failure::{Failure, FailureKind};
use executor::{ExecutorMetrics, ExecutorStartError, Job, Line, Refused, TwoLines};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit of waiting requests of `/_/`.
const GENERAL_MAX: usize = 64;

/// See the module's documentation.
pub(crate) struct QueryPool {
    lines: TwoLines,
    bytes: InFlight,
    declared: Arc<Declared>,
    /// How long a query may wait and run.
    time_max: Duration,
    refused: AtomicU64,
}

/// The queue of declared queries.
#[derive(Default)]
struct Declared {
    count: AtomicU64,
    /// Sum of the expected times of waiting queries.
    expected_ns: AtomicU64,
}

/// A place in the queue of declared queries. Released when the query begins, or is given up.
pub(crate) struct QueuePlace {
    of: Arc<Declared>,
    expected_ns: u64,
    _taken: Taken,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.of.count.fetch_sub(1, Ordering::Relaxed);
        self.of.expected_ns.fetch_sub(self.expected_ns, Ordering::Relaxed);
    }
}

impl QueryPool {
    pub(crate) fn start(
        model: BlockingModel,
        division: &Division,
        time_max: Duration,
    ) -> Result<QueryPool, ExecutorStartError> {
        let bytes_max = division.waiting_query_bytes;
        let limits = [GENERAL_MAX, bytes_max / WAITING_QUERY_BYTES];
        Ok(QueryPool {
            lines: TwoLines::start(model.with_threads(POOL_THREADS), "query", limits)?,
            bytes: InFlight::new(bytes_max),
            declared: Arc::default(),
            time_max,
            refused: AtomicU64::new(0),
        })
    }

    /// A place for a declared query that holds this many bytes besides its own structures and is expected to take this time.
    pub(crate) fn place(&self, bytes: usize, expected: Duration) -> Result<QueuePlace, Failure> {
        let waiting_ns = self.declared.expected_ns.load(Ordering::Relaxed);
        let wait = Duration::from_nanos(waiting_ns / POOL_THREADS as u64);
        if wait > self.time_max {
            return Err(self.refuse(&format!(
                "about {} s, and a query may wait and run {} s (`[server] query_seconds`)",
                wait.as_secs(),
                self.time_max.as_secs()
            )));
        }
        let Some(taken) = self.bytes.take(WAITING_QUERY_BYTES + bytes) else {
            let most = self.bytes.bytes_max();
            return Err(self.refuse(&format!("as many as {most} bytes hold, a part of `[server] memory`")));
        };
        let expected_ns = u64::try_from(expected.min(self.time_max).as_nanos()).unwrap_or(u64::MAX);
        self.declared.count.fetch_add(1, Ordering::Relaxed);
        self.declared.expected_ns.fetch_add(expected_ns, Ordering::Relaxed);
        Ok(QueuePlace { of: Arc::clone(&self.declared), expected_ns, _taken: taken })
    }

    #[cold]
    fn refuse(&self, why: &str) -> Failure {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let count = self.declared.count.load(Ordering::Relaxed);
        Failure::new(FailureKind::Busy, format!("too many requests wait for a thread: {count} declared queries, {why}"))
    }

    /// Queues work of `/_/`, or of a place ([`QueryPool::place`]).
    pub(crate) fn try_submit(&self, line: Line, job: Job) -> Result<(), Refused<Job>> {
        self.lines.try_submit(line, job)
    }

    /// The refusal of a request for which the queue of `/_/` has no room.
    pub(crate) fn is_full() -> Cow<'static, str> {
        format!("too many requests wait for a thread: {GENERAL_MAX} of `/_/`, the most that may").into()
    }

    /// The counters now.
    pub(crate) fn metrics(&self) -> ExecutorMetrics {
        let metrics = self.lines.metrics();
        ExecutorMetrics { refused: metrics.refused + self.refused.load(Ordering::Relaxed), ..metrics }
    }

    /// Bytes of declared queries that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;

    #[test]
    fn thousands_wait_at_the_default_memory_and_as_many_as_have_time() {
        let division = Division::of(&ServerConfig { threads: 2, ..ServerConfig::default() });
        let pool = QueryPool::start(BlockingModel::Pool, &division, Duration::from_secs(30)).unwrap();
        let fill = |expected| {
            let places: Vec<QueuePlace> = std::iter::from_fn(|| pool.place(64, expected).ok()).collect();
            let failure = pool.place(64, expected).err().expect("it is full");
            (places, failure)
        };
        let (places, failure) = fill(Duration::from_millis(1));
        assert!(places.len() > 2_000, "{}", places.len());
        assert!(failure.detail.contains("`[server] memory`"), "{}", failure.detail);
        assert!(failure.detail.contains(&format!("{} declared queries", places.len())), "{}", failure.detail);
        assert_eq!(failure.field(), Some(("Retry-After", "1")));
        drop(places);
        assert_eq!((pool.waiting_bytes(), pool.declared.expected_ns.load(Ordering::Relaxed)), (0, 0));
        // Two threads, one second each: after 60 of them the next one would wait too long.
        let (places, failure) = fill(Duration::from_secs(1));
        assert_eq!(places.len(), 61);
        assert!(failure.detail.contains("30 s (`[server] query_seconds`)"), "{}", failure.detail);
        assert_eq!(pool.metrics().refused, 4);
    }
}
