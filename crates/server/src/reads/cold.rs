//! Cold reads: reads that would wait for the disk leave their loop, so that they delay no other request on it.
//!
//! A page of the data file that is not in memory makes the thread that touches it wait for a major fault. Asking the kernel
//! before each access would cost every read a system call, in vain if all data fits into memory. So a loop checks now and then
//! whether it has waited. Only while it has, reads check a page's residency before they touch it. A read whose page is missing is
//! answered late: a single document mostly by the loop itself, which reads its pages past the page cache (`direct`), everything
//! else by threads that wait for the disk.
//!
//! These threads serve cold reads only, so that none waits behind a long query. A read that would hold one of them long or make a
//! large result goes on to the pool of long queries. As an alternative the loop could ask the kernel to load the missing page
//! (madvise(2)), and a few threads would be enough. But if memory is short, the kernel first searches for a free page, on the
//! loop. That gave 81,000 reads a second instead of 75,000, and a p99 of the loop's other requests of 1.2 ms instead of 0.4 ms.
//!
//! The threads also compute the checksums of long values, which is done when a value is first read: on a loop, other requests
//! would wait for that too.
//!
//! Declared `get` and `query`, and the general API's documents and lists, check residency; a scan checks each of its pages. Reads
//! made to prepare writes, and the later pieces of a large document, do not check.

use crate::config::BlockingModel;
use crate::config::memory::{COLD_RESULT_BYTES, COLD_WAITING_PER_THREAD};
use crate::failure::{Failure, FailureKind};
use docs::{DocumentDatabase, ReaderSession};
use executor::{Executor, ExecutorStartError};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows that a query may scan on a thread for cold reads: each may wait for the disk.
const ROWS_MAX: u64 = 1_000;

/// Longest value whose checksum a loop computes, at the first read since the start: that took 0.35 ms for 4 MiB in memory, and
/// 1.5 ms for 16 MiB.
const CHECK_BYTES_MAX: usize = 4 << 20;

/// Requests between two checks.
const LOOK_EVERY: u32 = 64;
/// After this many checks without a new fault or a handed-over read, reads no longer check residency.
const QUIET_LOOKS: u32 = 16;

/// One loop's record of its waits for the disk.
#[derive(Debug, Default)]
pub(crate) struct DiskWaits {
    /// Requests until the next check.
    left: u32,
    quiet: u32,
    /// Major faults of this thread at the last check.
    seen: Option<u64>,
    is_asking: bool,
}

impl DiskWaits {
    /// Counts a request, and returns whether its reads check residency.
    #[inline]
    pub(crate) fn is_asking(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.look(),
        }
        self.is_asking
    }

    /// The result of `is_asking` for the last request.
    #[inline]
    pub(crate) fn was_asking(&self) -> bool {
        self.is_asking
    }

    #[cold]
    fn look(&mut self) {
        self.note(docs::engine::major_faults());
        self.left = LOOK_EVERY;
    }

    fn note(&mut self, faults: u64) {
        // Faults before the thread's first request (its code, say) say nothing about the data.
        if faults > *self.seen.get_or_insert(faults) {
            self.is_asking = true;
            self.quiet = 0;
        } else {
            self.quiet += 1;
            self.is_asking &= self.quiet <= QUIET_LOOKS;
        }
        self.seen = Some(faults);
    }

    /// A read was handed over to another thread. On the loop it would have been a fault.
    pub(crate) fn handed_over(&mut self) {
        self.quiet = 0;
    }
}

/// While this value lives, the session's reads are those of a loop: they leave the checksums of long values to other threads and,
/// if the loop waits for the disk, they check residency.
pub(crate) struct OnLoop {
    session: Rc<ReaderSession>,
}

impl OnLoop {
    pub(crate) fn new(session: &Rc<ReaderSession>, is_asking: bool) -> OnLoop {
        session.reader().check_at_most(CHECK_BYTES_MAX);
        session.reader().ask_before_waiting(is_asking);
        OnLoop { session: Rc::clone(session) }
    }
}

impl Drop for OnLoop {
    fn drop(&mut self) {
        self.session.reader().check_at_most(usize::MAX);
        self.session.reader().ask_before_waiting(false);
    }
}

/// The threads that wait for the disk, and their sessions.
pub(crate) struct ColdReads {
    pub(crate) pool: Box<dyn Executor>,
    pub(crate) sessions: Arc<Sessions>,
}

impl ColdReads {
    /// See [`Sessions::let_go`].
    pub(crate) fn let_go(&self) {
        self.sessions.let_go();
    }

    pub(crate) fn start(model: BlockingModel, threads: usize) -> Result<ColdReads, ExecutorStartError> {
        let pool = model.with_threads(threads).start("cold", threads * COLD_WAITING_PER_THREAD)?;
        // Caching document places would not pay: a cold document is rarely read twice.
        Ok(ColdReads { pool, sessions: Arc::new(Sessions { has_places: false, ..Sessions::default() }) })
    }
}

/// Limits of a late read on the threads where it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) bytes_max: usize,
    pub(crate) rows_max: u64,
}

impl ReadLimits {
    /// On a thread for cold reads.
    pub(crate) const COLD: ReadLimits = ReadLimits { bytes_max: COLD_RESULT_BYTES, rows_max: ROWS_MAX };
    /// On the pool: only the service's own limits.
    pub(crate) const WHOLE: ReadLimits = ReadLimits { bytes_max: usize::MAX, rows_max: u64::MAX };

    /// Whether the pool has larger limits.
    pub(crate) fn is_cold(self) -> bool {
        self.rows_max != u64::MAX
    }
}

/// Sessions of a pool's threads: as many as have been used at the same time.
pub(crate) struct Sessions {
    idle: Mutex<Vec<ReaderSession>>,
    /// Whether they cache the places of documents.
    has_places: bool,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions { idle: Mutex::default(), has_places: true }
    }
}

impl Sessions {
    /// Runs `read` with a session of its own.
    pub(crate) fn with<R>(
        &self,
        database: &DocumentDatabase,
        read: impl FnOnce(&ReaderSession) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // A session of another configuration's database knows other collections.
        let kept = idle().pop().filter(|session| session.database().is_same(database));
        let session = match kept {
            Some(session) => session,
            None => {
                let session = database.session().map_err(|_| Failure::new(FailureKind::Busy, "no reader is free"))?;
                if self.has_places { session } else { session.without_places() }
            }
        };
        let outcome = read(&session);
        let mut idle = idle();
        // Under the lock: a session that `let_go` misses here sees that its database is superseded.
        if !session.database().is_superseded() {
            idle.push(session);
        }
        outcome
    }

    /// Drops the sessions of superseded databases, which would be held until the next read.
    pub(crate) fn let_go(&self) {
        let is_old = |session: &mut ReaderSession| session.database().is_superseded();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let old: Vec<ReaderSession> = idle.extract_if(.., is_old).collect();
        drop(idle);
        // Dropping the last session of a database closes it, which takes time: outside the lock, so that no read waits.
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ask_from_a_new_fault_on_until_there_are_none_for_a_while() {
        let mut watch = DiskWaits::default();
        watch.note(500);
        assert!(!watch.is_asking, "faults before the first check do not count");
        watch.note(501);
        assert!(watch.is_asking);
        (0..QUIET_LOOKS).for_each(|_| watch.note(501));
        assert!(watch.is_asking);
        watch.handed_over();
        (0..QUIET_LOOKS).for_each(|_| watch.note(501));
        assert!(watch.is_asking);
        watch.note(501);
        assert!(!watch.is_asking);
    }
}
