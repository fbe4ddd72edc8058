//! What queries may take together, and what they took: helpers of scans, limits, counts for `/_/metrics`, a line in the log
//! for one that reads much or is ended.

use crate::config::ServerConfig;
use crate::memory::Division;
use docs::sql::{Outcome, QueryError, ROWS_READ, Scratch, SpillSpace, Statements, Workers};
use http::Presence;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The field of a reply that tells how its query found its rows; a request of a declared endpoint asks for it by the same name.
pub(crate) const PLAN_FIELD: &str = "Sapsan-Plan";

/// See the module's text. One for a service.
pub(crate) struct Queries {
    /// Threads that help with scans.
    pub(crate) workers: Arc<Workers>,
    /// Those that came as text, prepared.
    pub(crate) statements: Statements,
    /// How long one query may run on the pool.
    pub(crate) time_max: Duration,
    /// Where queries put what exceeds their memory, if they may.
    pub(crate) spill: Option<Arc<SpillSpace>>,
    /// A query that reads so many rows is told in the log.
    log_rows: u64,
    scans: AtomicU64,
    rows_read: AtomicU64,
    /// Those that were begun on a loop in vain.
    left_loop: AtomicU64,
    /// Nobody is served any more.
    is_stopped: AtomicBool,
}

impl Queries {
    /// `folder` is the data's.
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

    /// Ends what runs: the loops have ended, and nobody waits for a reply.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Counts one that a loop began, and that goes on to the pool since it takes longer.
    pub(crate) fn count_left_loop(&self) {
        self.left_loop.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
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

    /// Whether what a query did is worth a word: it reads a collection whole, or has read many rows.
    #[inline]
    pub(crate) fn is_told(&self, outcome: &Outcome) -> bool {
        outcome.scans || outcome.rows_read >= self.log_rows
    }

    /// Counts what a query did that was ended before its end: of rows as many as are known. `plan` tells how it found its rows.
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

    /// Counts what a query did. `plan` tells how it found its rows; where somebody waits for the reply, the log of slow
    /// requests may tell both.
    pub(crate) fn count(&self, outcome: &Outcome, plan: &str, scans: bool, sql: &str, client: Option<&Presence>) {
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

    /// Bytes on disk that queries take now, and that they have written so far.
    pub(crate) fn spilled(&self) -> (u64, u64) {
        self.spill.as_ref().map_or((0, 0), |space| (space.used(), space.written()))
    }

    /// Queries that read a collection whole, and index entries and documents that queries looked at.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.scans.load(Ordering::Relaxed), self.rows_read.load(Ordering::Relaxed))
    }
}
