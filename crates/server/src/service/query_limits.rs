//! Limits of one query on the pool: rows, bytes and time, and the loops to which it yields.

use super::Shared;
use crate::reads::cold::ReadLimits;
use crate::threads::client::ClientWatch;
use crate::threads::query_state::Queries;
use docs::sql::{Budget, SpillSpace};
use reactor::Loop;
use std::sync::Arc;
use std::time::Instant;

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct QueryLimits {
    rows_max: u64,
    bytes_max: usize,
    /// End of its time, including its wait for a thread.
    ends: Instant,
    /// Space for data beyond its memory, if that is allowed.
    spill: Option<Arc<SpillSpace>>,
    /// The loops to which it yields.
    loops: Arc<[Loop]>,
    queries: Arc<Queries>,
}

impl QueryLimits {
    /// For a query that is requested now.
    pub(crate) fn of(shared: &Shared) -> QueryLimits {
        QueryLimits {
            rows_max: shared.scan_rows_max,
            bytes_max: shared.query_bytes,
            ends: Instant::now() + shared.queries.time_max,
            spill: shared.queries.spill.clone(),
            loops: Arc::clone(&shared.loops),
            queries: Arc::clone(&shared.queries),
        }
    }

    /// The limits of a writing statement: half of the memory is for its query. The other half is for its transaction and the rows that
    /// it will write: each of these two may be as large as a transaction may be.
    pub(crate) fn of_change(self) -> QueryLimits {
        QueryLimits { bytes_max: self.bytes_max / 2, ..self }
    }

    /// The same with another end of its time.
    pub(crate) fn until(self, ends: Instant) -> QueryLimits {
        QueryLimits { ends, ..self }
    }

    /// End of its time.
    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// Limit of its result's bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Reduced to the limits of a thread.
    pub(crate) fn within(self, limits: ReadLimits) -> QueryLimits {
        let spill = if limits.is_cold() { None } else { self.spill };
        let (rows_max, bytes_max) = (self.rows_max.min(limits.rows_max), self.bytes_max.min(limits.bytes_max));
        QueryLimits { rows_max, bytes_max, spill, ..self }
    }

    /// Runs a query within these limits.
    pub(crate) fn run<R>(self, now_ms: i64, run: impl FnOnce(&Budget<'_>) -> R) -> R {
        self.run_until(&|_| false, now_ms, run)
    }

    /// The same for a client that may disconnect.
    pub(crate) fn run_for<R>(self, client: &ClientWatch, now_ms: i64, run: impl FnOnce(&Budget<'_>) -> R) -> R {
        self.run_until(&|now| client.is_over(now), now_ms, run)
    }

    /// The same for a writing statement: the checks of its documents, too, end with its time, its client and the server.
    pub(crate) fn run_change<R>(self, client: &Arc<ClientWatch>, now_ms: i64, run: impl FnOnce(&Budget<'_>) -> R) -> R {
        let cancel_check = self.cancel_check(client);
        docs::with_cancel_check(Some(&cancel_check), || self.run_for(client, now_ms, run))
    }

    /// Whether its time is over, its client has left or the server has stopped.
    pub(crate) fn cancel_check(&self, client: &Arc<ClientWatch>) -> docs::CancelCheck {
        let (ends, client, queries) = (self.ends, Arc::clone(client), Arc::clone(&self.queries));
        Arc::new(move || {
            let now = Instant::now();
            now > ends || client.is_over(now) || queries.is_stopped()
        })
    }

    fn run_until<R>(
        self,
        is_over: &(dyn Fn(Instant) -> bool + Sync),
        now_ms: i64,
        run: impl FnOnce(&Budget<'_>) -> R,
    ) -> R {
        let over = || {
            let now = Instant::now();
            executor::let_others(now, || self.loops.iter().any(Loop::waits));
            now > self.ends || is_over(now) || self.queries.is_stopped()
        };
        let (rows_max, output_bytes_max) = (self.rows_max, self.bytes_max);
        let (memory_bytes_max, spill) = (self.bytes_max, self.spill.as_ref());
        run(&Budget { rows_max, output_bytes_max, memory_bytes_max, spill, deadline: Some(&over), now_ms })
    }
}
