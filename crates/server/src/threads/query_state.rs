//! State shared by queries: helper threads of scans, limits, counters for `/_/metrics`, and log lines for queries that read much
//! or are ended.

use crate::config::ServerConfig;
use crate::config::memory::Division;
use docs::sql::{ExecutionCounts, QueryError, ROWS_READ, Scratch, SpillSpace, Statements, Workers};
use http::Presence;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The field of a reply with the access path of its query; a request of a declared endpoint asks for it with a field of the same
/// name.
pub(crate) const PLAN_FIELD: &str = "Sapsan-Plan";

/// See the module's documentation. One for a service.
pub(crate) struct Queries {
    /// Threads that help with scans.
    pub(crate) workers: Arc<Workers>,
    /// Prepared statements of requests.
    pub(crate) statements: Statements,
    /// How long one query may run on the pool.
    pub(crate) time_max: Duration,
    /// Space for data of queries beyond their memory, if that is allowed.
    pub(crate) spill: Option<Arc<SpillSpace>>,
    /// A query that reads at least this many rows is logged.
    log_rows: u64,
    scans: AtomicU64,
    rows_read: AtomicU64,
    /// Queries that a loop started and passed to the pool, because they took longer.
    left_loop: AtomicU64,
    /// The server has stopped.
    is_stopped: AtomicBool,
}

impl Queries {
    /// `folder` is the data folder.
    pub(crate) fn new(config: &ServerConfig, folder: &Path) -> Queries {
        let bytes_max = config.query_spill_bytes;
        let workers = Workers::new(config.query_threads.saturating_sub(1)).on_start(executor::give_way);
        Queries {
            workers: Arc::new(workers),
            statements: Statements::new(Division::of(config).statement_bytes),
            time_max: config.query,
            spill: (bytes_max > 0).then(|| Arc::new(SpillSpace::new(folder, bytes_max))),
            log_rows: config.query_log_rows,
            scans: AtomicU64::new(0),
            rows_read: AtomicU64::new(0),
            left_loop: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Ends running queries: the loops have ended, and nobody waits for a reply.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Counts a query that a loop started, and that goes to the pool because it takes longer.
    pub(crate) fn count_left_loop(&self) {
        self.left_loop.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of these.
    pub(crate) fn left_loop(&self) -> u64 {
        self.left_loop.load(Ordering::Relaxed)
    }

    /// Whether queries are to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Work memory of a query that may take long.
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::new().with_workers(Arc::clone(&self.workers))
    }

    /// Whether a query is worth logging: it reads a whole collection, or has read many rows.
    #[inline]
    pub(crate) fn is_reported(&self, outcome: &ExecutionCounts) -> bool {
        outcome.scans || outcome.rows_read >= self.log_rows
    }

    /// Counts a query that was ended, with its known number of rows. `plan` is its access path.
    pub(crate) fn count_ended(
        &self,
        error: &QueryError,
        plan: &str,
        scans: bool,
        sql: &str,
        client: Option<&Presence>,
    ) {
        if let Some(client) = client {
            client.note_work(format!("ended: {error}; plan: {plan}"));
        }
        let read = match error {
            QueryError::Limit { what: ROWS_READ, limit } => *limit,
            _ => 0,
        };
        self.scans.fetch_add(u64::from(scans), Ordering::Relaxed);
        self.rows_read.fetch_add(read, Ordering::Relaxed);
        if read >= self.log_rows || matches!(error, QueryError::Deadline) {
            tracing::warn!(%error, plan, sql, "a query was ended");
        }
    }

    /// Counts a query. `plan` is its access path; if a client waits for the reply, the log of slow requests may show both.
    pub(crate) fn count(
        &self,
        outcome: &ExecutionCounts,
        plan: &str,
        scans: bool,
        sql: &str,
        client: Option<&Presence>,
    ) {
        if let Some(client) = client {
            client.note_work(format!("rows read: {}; rows: {}; plan: {plan}", outcome.rows_read, outcome.rows));
        }
        self.scans.fetch_add(u64::from(scans), Ordering::Relaxed);
        self.rows_read.fetch_add(outcome.rows_read, Ordering::Relaxed);
        if outcome.rows_read >= self.log_rows {
            let (read, rows) = (outcome.rows_read, outcome.rows);
            tracing::warn!(read, rows, plan, sql, "a query reads many rows");
        }
    }

    /// Bytes on disk that queries use now, and that they have written so far.
    pub(crate) fn spilled(&self) -> (u64, u64) {
        self.spill.as_ref().map_or((0, 0), |space| (space.used(), space.written()))
    }

    /// Queries that read a whole collection, and index entries and documents that queries scanned.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.scans.load(Ordering::Relaxed), self.rows_read.load(Ordering::Relaxed))
    }
}
