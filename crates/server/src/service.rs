//! The service: state that all handlers use, and state of each loop. It knows no routes: see `routing`.

use crate::access::{Access, Listener};
use crate::backups::Backups;
use crate::changes::Feed;
use crate::cold::{ColdReads, Sessions, Watch};
use crate::config::ServerConfig;
use crate::cors::Cors;
use crate::direct::Direct;
use crate::expiry::Expiry;
use crate::failure::{ErrorRules, Failure};
use crate::held::HeldWrites;
use crate::in_flight::InFlight;
use crate::long_write::LongWrites;
use crate::memory::Division;
use crate::panics::Panics;
use crate::queries::Queries;
use crate::query_pool::QueryPool;
use crate::reloads::Reloads;
use crate::route_series::RouteSeries;
use crate::slow_log::SlowRequests;
use crate::sources::Sources;
use crate::switch::Switch;
use crate::token::Tokens;
use crate::tries::Tries;
use crate::verification::Verifications;
use crate::writing::LargeWrites;
use docs::{Database, Session};
use executor::Pool;
use http::{FileCache, Reply};
use reactor::Loop;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Bytes of buffers that a loop keeps between two requests; larger ones are freed.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Limit of parameters of a declared route's path.
pub(crate) const PATH_PARAMETERS_MAX: usize = 8;

/// The state that depends on the configuration, without its routes.
pub(crate) struct Service {
    pub(crate) database: Database,
    pub(crate) errors: Arc<ErrorRules>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) tokens: Tokens,
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
    pub(crate) backup_thread: Option<Pool>,
    pub(crate) scan_rows_max: u64,
    pub(crate) queries: Arc<Queries>,
    pub(crate) loops: Arc<[Loop]>,
    pub(crate) writes: InFlight,
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
    direct_places: usize,
    /// Bytes of static files that each loop caches in memory.
    file_cache_bytes: usize,
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
    pub(crate) switch: OnceLock<Weak<Switch>>,
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
    pub(crate) backup: Option<Pool>,
}

/// A buffer for each parameter of a path.
pub(crate) type PathTexts = [Vec<u8>; PATH_PARAMETERS_MAX];

/// State of one loop: its reader of the store, and reusable buffers.
pub(crate) struct Local {
    /// The listener of its requests.
    pub(crate) listener: Listener,
    /// Shared with large documents that are being sent.
    pub(crate) session: Rc<Session>,
    /// Whether this loop waits for the disk.
    pub(crate) cold: Watch,
    /// Its reads past the page cache.
    pub(crate) direct: Option<Direct>,
    pub(crate) lp: Loop,
    /// Writes that are not submitted yet.
    pub(crate) held: HeldWrites,
    /// Takes writes that turn out to be too long for a loop.
    pub(crate) long_writes: Arc<LongWrites>,
    /// Decoded texts of the query.
    pub(crate) text: Vec<u8>,
    /// Decoded texts of the path.
    pub(crate) path_texts: PathTexts,
    /// Static files.
    pub(crate) files: FileCache,
    /// Work memory of queries.
    pub(crate) scratch: docs::sql::Scratch,
    /// Result rows.
    pub(crate) out: Vec<u8>,
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
            body_bytes_max: config.body_bytes_max,
            replies: InFlight::new(division.replies_bytes),
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
            switch: OnceLock::new(),
        }
    }
}

impl Service {
    pub(crate) fn new(
        (errors, tokens): (ErrorRules, Tokens),
        openapi: String,
        database: Database,
        shared: Arc<Shared>,
        feed: Arc<Feed>,
    ) -> Service {
        shared.services.fetch_add(1, Ordering::Relaxed);
        Service { database, errors: Arc::new(errors), feed, tokens, openapi: openapi.into_bytes().into(), shared }
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

impl Local {
    /// For a new loop.
    pub(crate) fn new(service: &Service, lp: &Loop, listener: Listener) -> Local {
        let session = session(&service.database, listener).expect("there are more reader slots than loops (see start)");
        // On the general API's own listener, reads that must wait go to threads.
        let places = Some(service.direct_places).filter(|_| listener == Listener::Public);
        Local {
            listener,
            session: Rc::new(session),
            cold: Watch::default(),
            direct: places.and_then(|places| Direct::new(&service.database, places)),
            lp: lp.clone(),
            held: HeldWrites::default(),
            long_writes: LongWrites::new(&service.shared),
            text: Vec::new(),
            path_texts: PathTexts::default(),
            files: FileCache::new(lp, service.file_cache_bytes),
            scratch: docs::sql::Scratch::new(),
            out: Vec::new(),
        }
    }

    pub(crate) fn completions(&self) -> Option<RawFd> {
        self.direct.as_ref().map(Direct::completions)
    }

    /// Begins the reads requested in a tick of the loop, and continues held writes.
    #[inline]
    pub(crate) fn tick_ended(&mut self) {
        if let Some(direct) = &mut self.direct {
            direct.begin();
        }
        self.held.turn_ended(&self.session, &self.lp);
    }

    /// Frees buffers that an unusual request enlarged. Path texts are no longer than a request's target, which has its own limit,
    /// and stay.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        self.out.clear();
        let buffers = [&mut self.text, &mut self.out];
        let kept = buffers.iter().fold(0, |kept, buffer| kept | buffer.capacity());
        // Both are tested by one comparison: the bitwise OR of the capacities is less than twice the larger one.
        if kept > KEPT_BYTES_MAX {
            give_back(buffers);
        }
    }
}

/// A reader for a listener on one loop. The general API's own listener caches no document places: the memory for them is the
/// loops'.
pub(crate) fn session(database: &Database, listener: Listener) -> Result<Session, store::Error> {
    let session = database.session()?;
    Ok(if listener == Listener::Admin { session.without_places() } else { session })
}

#[cold]
fn give_back(buffers: [&mut Vec<u8>; 2]) {
    for buffer in buffers {
        if buffer.capacity() > KEPT_BYTES_MAX {
            *buffer = Vec::new();
        }
    }
}
