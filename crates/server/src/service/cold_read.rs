//! Reads that leave their loop because they would wait for the disk: on the threads for cold reads (`reads::cold`), or on the pool.

use super::Service;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::reads::cold::{DiskWaits, ReadLimits};
use crate::service::query_limits::QueryLimits;
use crate::threads::background;
use docs::ReaderSession;
use executor::blocking;
use http::LateReply;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Counts a read that leaves its loop.
pub(crate) fn count_cold(service: &Service, cold: &mut DiskWaits) {
    service.cold_reads.fetch_add(1, Ordering::Relaxed);
    cold.handed_over();
}

/// Reads on a thread that may wait for the disk, then calls `done`, which answers. `read` returns `None` if its limits are too
/// small: then it is called again on the pool.
pub(crate) fn read_late<T>(
    service: &Service,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    read: impl Fn(&ReaderSession, ReadLimits) -> Result<Option<T>, Failure> + Send + 'static,
    done: impl FnOnce(LateReply, Result<T, Failure>) + Send + 'static,
) {
    let (database, sessions) = (service.database.clone(), Arc::clone(&service.pool_sessions));
    let ends = QueryLimits::of(service).ends();
    let (pool, for_pool) = (Arc::clone(&service.pool), Arc::clone(errors));
    read_or(service, errors, late, (read, done), move |late, (read, done)| {
        background::run_until(ends, &pool, &for_pool, late, move |late| {
            let result = sessions.with(&database, |session| read(session, ReadLimits::WHOLE));
            let too_large = || Failure::new(FailureKind::Internal, "a read has no end");
            done(late, result.and_then(|result| result.ok_or_else(too_large)));
        });
    });
}

/// The same, but calls `go_on` if the limits of a thread for cold reads are too small.
pub(crate) fn read_or<T, R, D>(
    service: &Service,
    errors: &Arc<ErrorRules>,
    late: LateReply,
    (read, done): (R, D),
    go_on: impl FnOnce(LateReply, (R, D)) + Send + 'static,
) where
    R: Fn(&ReaderSession, ReadLimits) -> Result<Option<T>, Failure> + Send + 'static,
    D: FnOnce(LateReply, Result<T, Failure>) + Send + 'static,
{
    let (database, sessions) = (service.database.clone(), Arc::clone(&service.cold.sessions));
    background::run(&*service.cold.pool, errors, late, move |late| {
        // Announced as blocking, since it may wait for the disk.
        let result = blocking(|| sessions.with(&database, |session| read(session, ReadLimits::COLD)));
        match result.transpose() {
            Some(result) => done(late, result),
            None => go_on(late, (read, done)),
        }
    });
}
