//! State that all handlers use: the part that depends on the configuration, and the part that outlasts a reload.

use super::large_write::LargeWrites;
use super::rerouting::Rerouting;
use crate::access::cors::Cors;
use crate::access::sender::Access;
use crate::access::token::Tokens;
use crate::access::tries::Tries;
use crate::changes::Feed;
use crate::config::ServerConfig;
use crate::config::memory::Division;
use crate::failure::{ErrorRules, Failure};
use crate::maintenance::backups::Backups;
use crate::maintenance::expiry::Expiry;
use crate::maintenance::reload_requests::Reloads;
use crate::maintenance::verification::Verifications;
use crate::metrics::route_series::RouteSeries;
use crate::metrics::slow_log::SlowRequests;
use crate::metrics::sources::Sources;
use crate::reads::cold::{ColdReads, Sessions};
use crate::threads::in_flight::InFlight;
use crate::threads::panics::Panics;
use crate::threads::query_pool::QueryPool;
use crate::threads::query_state::Queries;
use docs::DocumentDatabase;
use docs::engine::OF_TRANSACTION;
use docs::{Submission, WriteError};
use executor::ThreadPool;
use http::Reply;
use reactor::Loop;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The part of waiting writes that reports of failed lines of bulks may be.
const PARTS_OF_BULK_REPORTS: usize = 8;

/// The state that depends on the configuration, without its routes.
pub(crate) struct Service {
    pub(crate) database: DocumentDatabase,
    pub(crate) errors: Arc<ErrorRules>,
    pub(crate) feed: Arc<Feed>,
    /// The OpenAPI document.
    pub(crate) openapi: Arc<[u8]>,
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.services.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state that does not depend on the configuration.
pub(crate) struct Shared {
    /// Access to the general API.
    pub(crate) access: Access,
    /// Pages of other origins that may use declared endpoints.
    pub(crate) cors: Option<Cors>,
    /// The tokens of the newest configuration, of which work that may run for long holds permits.
    pub(crate) tokens: Tokens,
    /// Senders of wrong tokens.
    pub(crate) tries: Tries,
    /// Threads for cold reads. Dropped before the pool, because their reads may continue there; so the pool's last owner is a
    /// thread that may wait for the pool's jobs.
    pub(crate) cold: ColdReads,
    /// Long queries.
    pub(crate) pool: Arc<QueryPool>,
    /// Writes that are not prepared on a loop.
    pub(crate) large_writes: Arc<LargeWrites>,
    /// Limit of one transaction.
    pub(crate) transaction_bytes: usize,
    /// One thread, if backups are allowed.
    pub(crate) backup_thread: Option<ThreadPool>,
    pub(crate) scan_rows_max: u64,
    pub(crate) queries: Arc<Queries>,
    pub(crate) loops: Arc<[Loop]>,
    pub(crate) writes: InFlight,
    /// The part of them that is reports of failed lines of all bulks, so that writes of others have room beside them.
    pub(crate) bulk_reports: InFlight,
    /// Limit of a gathered body, and of a line of a body in pieces.
    pub(crate) body_bytes_max: usize,
    /// Large replies that wait for their clients.
    pub(crate) replies: InFlight,
    /// Limit of a query on a loop.
    pub(crate) loop_query_bytes: usize,
    /// Limit of a query on the pool.
    pub(crate) query_bytes: usize,
    /// Reads that left their loop because they would have waited for the disk.
    pub(crate) cold_reads: AtomicU64,
    /// The part of them that were read past the page cache.
    pub(crate) direct_reads: AtomicU64,
    /// Limit of concurrent direct reads of each loop.
    pub(super) direct_places: usize,
    /// Bytes of static files that each loop caches in memory.
    pub(super) file_cache_bytes: usize,
    pub(crate) pool_sessions: Arc<Sessions>,
    pub(crate) backups: Arc<Backups>,
    pub(crate) verifications: Arc<Verifications>,
    /// Panics of threads.
    pub(crate) panics: Arc<Panics>,
    pub(crate) expiry: Expiry,
    pub(crate) reloads: Reloads,
    /// Number of configurations in memory: the served one, and older ones that are still used.
    pub(crate) services: AtomicU64,
    /// Series of requests.
    pub(crate) series: Arc<RouteSeries>,
    /// Slow requests.
    pub(crate) slow: Arc<SlowRequests>,
    pub(crate) sources: OnceLock<Sources>,
    /// The newest configuration. Held weakly, because it holds this.
    pub(crate) newest: OnceLock<Weak<dyn Rerouting>>,
}

impl Deref for Service {
    type Target = Shared;
    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// The threads behind the loops.
pub(crate) struct Pools {
    pub(crate) cold: ColdReads,
    pub(crate) long: QueryPool,
    pub(crate) backup: Option<ThreadPool>,
}

impl Shared {
    pub(crate) fn new(
        config: &ServerConfig,
        pools: Pools,
        loops: Vec<Loop>,
        (division, folder): (&Division, &Path),
    ) -> Shared {
        let panics = Arc::<Panics>::default();
        Shared {
            access: Access::new(config),
            cors: config.cors.as_ref().map(Cors::new),
            tokens: Tokens::default(),
            tries: Tries::default(),
            cold: pools.cold,
            pool: Arc::new(pools.long),
            large_writes: Arc::default(),
            transaction_bytes: division.transaction_bytes,
            backup_thread: pools.backup,
            scan_rows_max: config.scan_rows_max,
            queries: Arc::new(Queries::new(config, folder)),
            loops: loops.into(),
            writes: InFlight::new(division.writes_bytes),
            bulk_reports: InFlight::new(division.writes_bytes / PARTS_OF_BULK_REPORTS),
            body_bytes_max: config.body_bytes_max,
            replies: InFlight::new(division.replies_held_max()),
            expiry: Expiry::new(&panics),
            panics,
            loop_query_bytes: division.loop_query_bytes,
            query_bytes: division.query_bytes,
            cold_reads: AtomicU64::new(0),
            direct_reads: AtomicU64::new(0),
            direct_places: division.direct_places,
            file_cache_bytes: division.file_cache_bytes(),
            pool_sessions: Arc::default(),
            backups: Arc::new(Backups::new(config.backups.clone())),
            verifications: Arc::default(),
            reloads: Reloads::default(),
            services: AtomicU64::new(0),
            series: Arc::default(),
            slow: Arc::default(),
            sources: OnceLock::new(),
            newest: OnceLock::new(),
        }
    }

    /// Takes a write that is not for a loop (`write::is_large`); returns any other. One that fits into no transaction is refused
    /// before it is read.
    pub(crate) fn take_large(
        &self,
        database: &DocumentDatabase,
        submission: Submission,
        is_large: bool,
    ) -> Option<Submission> {
        let bytes = submission.write.op.bytes();
        if bytes > self.transaction_bytes {
            let (what, limit) = (format!("{OF_TRANSACTION} by its body alone"), self.transaction_bytes as u64);
            (submission.done)(Err(WriteError::TooLarge { what, limit }));
            return None;
        }
        if !is_large {
            return Some(submission);
        }
        self.large_writes.take(&self.cold, database, submission);
        None
    }
}

impl Service {
    pub(crate) fn new(
        errors: ErrorRules,
        openapi: String,
        database: DocumentDatabase,
        shared: Arc<Shared>,
        feed: Arc<Feed>,
    ) -> Service {
        shared.services.fetch_add(1, Ordering::Relaxed);
        Service { database, errors: Arc::new(errors), feed, openapi: openapi.into_bytes().into(), shared }
    }

    /// Answers a failure according to `[errors]`.
    pub(crate) fn fail(&self, failure: &Failure, mut reply: Reply<'_>) {
        let (status, media, body) = self.errors.reply(failure);
        if let Some((name, value)) = failure.field() {
            reply.header(name, value);
        }
        reply.send(status, media, &body);
    }
}
