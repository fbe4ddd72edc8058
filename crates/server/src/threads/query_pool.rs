//! The threads for long queries, and their queues.
//!
//! Requests of `/_/` wait in one queue: few requests, perhaps with large statements. Declared queries and steps wait in another:
//! each takes about a kilobyte, so thousands may wait if there is memory. The threads serve the queues in turn, and in each queue
//! the clients in turn.
//!
//! A request is refused at once if its queue is full, if its client has more than its share of the queue ([`CLIENT_FACTOR`]), or
//! if the requests before it are expected to take longer than a query may wait (`query_seconds`): each endpoint remembers how long
//! its queries took ([`super::loop_time`]).

use crate::config::BlockingModel;
use crate::config::memory::{Division, POOL_THREADS, WAITING_QUERY_BYTES};
use crate::failure::{Failure, FailureKind};
use executor::{ExecutorMetrics, ExecutorStartError, Job, Line, Refused, TwoLines};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limit of waiting requests of `/_/`: one client alone may have 64 of them.
const GENERAL_MAX: usize = 96;
/// A client may fill its queue up to this factor of the rest that is free: two thirds if it is alone. So there is always room for
/// another client.
const CLIENT_FACTOR: usize = 2;

/// See the module's documentation.
pub(crate) struct QueryPool {
    lines: TwoLines,
    general: Arc<Queue>,
    declared: Arc<Queue>,
    /// How long a query may wait and run.
    time_max: Duration,
    refused: AtomicU64,
}

/// What the waiting requests of one line hold.
struct Queue {
    line: Line,
    /// Limit of [`Share::size`].
    size_max: usize,
    waiting: Mutex<Waiting>,
}

/// Bound: one entry for each client with a waiting request.
#[derive(Default)]
struct Waiting {
    all: Share,
    by_client: HashMap<IpAddr, Share>,
}

#[derive(Clone, Copy, Default)]
struct Share {
    count: u64,
    /// Bytes of declared queries; number of requests of `/_/`.
    size: usize,
    /// Sum of the expected times.
    expected_ns: u64,
}

impl Share {
    fn add(&mut self, other: Share) {
        self.count += other.count;
        self.size += other.size;
        self.expected_ns += other.expected_ns;
    }

    fn remove(&mut self, other: Share) {
        self.count -= other.count;
        self.size -= other.size;
        self.expected_ns -= other.expected_ns;
    }
}

/// A place in a queue. Released when the query begins, or is given up.
pub(crate) struct QueuePlace {
    of: Arc<Queue>,
    client: IpAddr,
    share: Share,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut waiting = self.of.lock();
        waiting.all.remove(self.share);
        if let Some(share) = waiting.by_client.get_mut(&self.client) {
            share.remove(self.share);
            if share.count == 0 {
                waiting.by_client.remove(&self.client);
            }
        }
    }
}

/// Why a queue has no place.
enum NoPlace {
    /// Its client would wait so long.
    TooLong(Duration),
    /// The queue is full, or its client has its share.
    Full,
}

impl Queue {
    fn new(line: Line, size_max: usize) -> Arc<Queue> {
        Arc::new(Queue { line, size_max, waiting: Mutex::default() })
    }

    /// No foreign code runs under the lock, so the state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>, client: IpAddr, share: Share, time_max: Duration) -> Result<QueuePlace, NoPlace> {
        let mut waiting = self.lock();
        let own = waiting.by_client.get(&client).copied().unwrap_or_default();
        let wait = waiting.expected_wait(own.expected_ns, time_max);
        if wait > time_max {
            return Err(NoPlace::TooLong(wait));
        }
        let free = self.size_max.saturating_sub(waiting.all.size);
        if share.size > free || own.size + share.size > CLIENT_FACTOR * free {
            return Err(NoPlace::Full);
        }
        waiting.all.add(share);
        waiting.by_client.entry(client).or_default().add(share);
        Ok(QueuePlace { of: Arc::clone(self), client, share })
    }
}

impl Waiting {
    /// How long a further query waits whose client's waiting ones take `own_ns`: clients take turns, so of each other client it
    /// waits for about as much.
    fn expected_wait(&self, own_ns: u64, time_max: Duration) -> Duration {
        let of = |ns: u64| Duration::from_nanos(ns / POOL_THREADS as u64);
        if of(self.all.expected_ns) <= time_max {
            return of(self.all.expected_ns);
        }
        of(self.by_client.values().map(|share| share.expected_ns.min(own_ns)).sum())
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
            general: Queue::new(Line::First, GENERAL_MAX),
            declared: Queue::new(Line::Second, bytes_max),
            time_max,
            refused: AtomicU64::new(0),
        })
    }

    /// A place for a declared query that holds this many bytes besides its own structures and is expected to take this time.
    pub(crate) fn place(&self, client: IpAddr, bytes: usize, expected: Duration) -> Result<QueuePlace, Failure> {
        let expected_ns = u64::try_from(expected.min(self.time_max).as_nanos()).unwrap_or(u64::MAX);
        let share = Share { count: 1, size: WAITING_QUERY_BYTES + bytes, expected_ns };
        self.declared.place(client, share, self.time_max).map_err(|no_place| {
            let (count, most) = (self.declared.lock().all.count, self.declared.size_max);
            let why = match no_place {
                NoPlace::TooLong(wait) => format!(
                    "about {} s, and a query may wait and run {} s (`[server] query_seconds`)",
                    wait.as_secs(),
                    self.time_max.as_secs()
                ),
                NoPlace::Full => format!(
                    "and their memory is {most} bytes, a part of `[server] memory`, of which one client may fill two thirds"
                ),
            };
            self.refuse(&format!("{count} declared queries, {why}"))
        })
    }

    /// A place for a request of `/_/`.
    pub(crate) fn general_place(&self, client: IpAddr) -> Result<QueuePlace, Failure> {
        let share = Share { count: 1, size: 1, expected_ns: 0 };
        self.general.place(client, share, self.time_max).map_err(|_| {
            let count = self.general.lock().all.count;
            self.refuse(&format!(
                "{count} of `/_/`, and at most {GENERAL_MAX} of them may wait, of which one client may have two thirds"
            ))
        })
    }

    #[cold]
    fn refuse(&self, why: &str) -> Failure {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Failure::new(FailureKind::Busy, format!("too many requests wait for a thread: {why}"))
    }

    /// Queues work that has a place.
    pub(crate) fn try_submit(&self, place: &QueuePlace, job: Job) -> Result<(), Refused<Job>> {
        self.lines.try_submit(place.client, place.of.line, job)
    }

    /// The counters now.
    pub(crate) fn metrics(&self) -> ExecutorMetrics {
        let metrics = self.lines.metrics();
        ExecutorMetrics { refused: metrics.refused + self.refused.load(Ordering::Relaxed), ..metrics }
    }

    /// Bytes of declared queries that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.declared.lock().all.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn a_client_that_fills_its_share_leaves_room_and_time_for_another() {
        let division = Division::of(&ServerConfig { threads: 2, ..ServerConfig::default() });
        let pool = QueryPool::start(BlockingModel::Pool, &division, Duration::from_secs(30)).unwrap();
        let mut places: Vec<QueuePlace> = std::iter::from_fn(|| pool.general_place(client(1)).ok()).collect();
        assert_eq!(places.len(), 64);
        places.extend((2..8).map(|number| pool.general_place(client(number)).expect("a place for another client")));
        let failure = pool.general_place(client(1)).err().expect("it has its share");
        assert!(failure.detail.contains("two thirds"), "{}", failure.detail);
        let second = Duration::from_secs(1);
        let declared: Vec<QueuePlace> = std::iter::from_fn(|| pool.place(client(1), 64, second).ok()).collect();
        assert_eq!(declared.len(), 61);
        assert!(pool.place(client(2), 64, second).is_ok(), "clients take turns: it waits for one query");
        drop((places, declared));
        assert!(pool.general.lock().by_client.is_empty() && pool.declared.lock().by_client.is_empty());
    }

    #[test]
    fn thousands_wait_at_the_default_memory_and_as_many_as_have_time() {
        let division = Division::of(&ServerConfig { threads: 2, ..ServerConfig::default() });
        let pool = QueryPool::start(BlockingModel::Pool, &division, Duration::from_secs(30)).unwrap();
        let fill = |expected| {
            let places: Vec<QueuePlace> = std::iter::from_fn(|| pool.place(client(1), 64, expected).ok()).collect();
            let failure = pool.place(client(1), 64, expected).err().expect("it is full");
            (places, failure)
        };
        let (places, failure) = fill(Duration::from_millis(1));
        assert!(places.len() > 2_000, "{}", places.len());
        assert!(failure.detail.contains("`[server] memory`"), "{}", failure.detail);
        assert!(failure.detail.contains(&format!("{} declared queries", places.len())), "{}", failure.detail);
        assert_eq!(failure.field(), Some(("Retry-After", "1")));
        drop(places);
        assert_eq!((pool.waiting_bytes(), pool.declared.lock().all.expected_ns), (0, 0));
        // Two threads, one second each: after 60 of them the next one would wait too long.
        let (places, failure) = fill(Duration::from_secs(1));
        assert_eq!(places.len(), 61);
        assert!(failure.detail.contains("30 s (`[server] query_seconds`)"), "{}", failure.detail);
        assert_eq!(pool.metrics().refused, 4);
    }
}
