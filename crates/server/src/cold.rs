//! Cold reads: those that would wait for the disk leave their loop, so that they delay nobody else on it.
//!
//! A page of the data file that is not in memory makes the thread that touches it wait, for a major fault. Asking the
//! kernel before each touch would cost every read a system call, and where all data fits into memory for nothing. So a
//! loop looks now and then whether it has waited. Only while it has, reads ask before they touch a page; one whose page is
//! not there is answered late: a single document mostly by the loop itself, which has its pages read past the page cache
//! (`direct`), and all else by threads that do the waiting.
//!
//! Those threads are for cold reads alone, so that none waits behind a long query. What would hold one of them long or make
//! a large result goes on to the pool of the long ones. The loop could have the disk asked for the page that it found
//! missing (madvise(2)), and a few threads would do: but where memory is short the kernel looks for a free page first, on the
//! loop. That gave 81,000 reads a second beside 75,000, and a p99 of the loop's other requests of 1.2 ms beside 0.4.
//!
//! They also compute the checksums of long values, which is done when a value is first read: those who wait for a loop would wait
//! for that too.
//!
//! Declared `get` and `query` ask, and the general API's documents and lists; a scan asks for each of its pages. What
//! writes read while they are prepared, and the later pieces of a large document, are not asked for.

use crate::config::ColdModel;
use crate::failure::{Failure, Kind};
use crate::memory::{COLD_RESULT_BYTES, COLD_WAITING_PER_THREAD};
use docs::{Database, Session};
use executor::{Executor, StartError};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows that a query may look at on a thread for cold reads: each may be a wait for the disk.
const ROWS_MAX: u64 = 1_000;

/// Longest value whose checksum a loop computes, which is done at the first read since the start: that took 0.35 ms for 4 MiB in
/// memory, and 1.5 for 16.
const CHECK_BYTES_MAX: usize = 4 << 20;

/// Requests between two looks.
const LOOK_EVERY: u32 = 64;
/// Looks without a new fault or a read handed over, after which reads do not ask any more.
const QUIET_LOOKS: u32 = 16;

/// What one loop knows of its waiting.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Requests until the next look.
    left: u32,
    quiet: u32,
    /// Major faults of this thread at the last look.
    seen: Option<u64>,
    is_asking: bool,
}

impl Watch {
    /// Counts a request: whether its reads should ask before they wait.
    #[inline]
    pub(crate) fn is_asking(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.look(),
        }
        self.is_asking
    }

    /// What the last request was told.
    #[inline]
    pub(crate) fn was_asking(&self) -> bool {
        self.is_asking
    }

    #[cold]
    fn look(&mut self) {
        self.note(store::disk::major_faults());
        self.left = LOOK_EVERY;
    }

    fn note(&mut self, faults: u64) {
        // What a thread waited for before its first request (its code, say) tells nothing of the data.
        if faults > *self.seen.get_or_insert(faults) {
            self.is_asking = true;
            self.quiet = 0;
        } else {
            self.quiet += 1;
            self.is_asking &= self.quiet <= QUIET_LOOKS;
        }
        self.seen = Some(faults);
    }

    /// A read left the loop: it would have been a fault.
    pub(crate) fn handed_over(&mut self) {
        self.quiet = 0;
    }
}

/// While this lives the session's reads are those of a loop: they leave the checksums of long values to others, and, where the loop
/// waits for the disk, they ask.
pub(crate) struct OnLoop {
    session: Rc<Session>,
}

impl OnLoop {
    pub(crate) fn new(session: &Rc<Session>, is_asking: bool) -> OnLoop {
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

/// The threads that wait, and their sessions.
pub(crate) struct ColdReads {
    pub(crate) pool: Box<dyn Executor>,
    pub(crate) sessions: Arc<Sessions>,
}

impl ColdReads {
    /// See [`Sessions::let_go`].
    pub(crate) fn let_go(&self) {
        self.sessions.let_go();
    }

    pub(crate) fn start(model: ColdModel, threads: usize) -> Result<ColdReads, StartError> {
        let pool = model.with_threads(threads).start("cold", threads * COLD_WAITING_PER_THREAD)?;
        // Their places would be those of documents that are hardly asked for twice.
        Ok(ColdReads { pool, sessions: Arc::new(Sessions { has_places: false, ..Sessions::default() }) })
    }
}

/// What a late read may take where it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) bytes_max: usize,
    pub(crate) rows_max: u64,
}

impl Room {
    /// On a thread for cold reads.
    pub(crate) const COLD: Room = Room { bytes_max: COLD_RESULT_BYTES, rows_max: ROWS_MAX };
    /// On the pool, within the service's own limits alone.
    pub(crate) const WHOLE: Room = Room { bytes_max: usize::MAX, rows_max: u64::MAX };

    /// Whether there is more elsewhere.
    pub(crate) fn is_cold(self) -> bool {
        self.rows_max != u64::MAX
    }
}

/// Sessions of a pool's threads: as many as have been in use at the same moment.
pub(crate) struct Sessions {
    idle: Mutex<Vec<Session>>,
    /// Whether they remember where they found documents.
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
        database: &Database,
        read: impl FnOnce(&Session) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // One of another configuration's database knows other collections.
        let kept = idle().pop().filter(|session| session.database().is_same(database));
        let session = match kept {
            Some(session) => session,
            None => {
                let session = database.session().map_err(|_| Failure::new(Kind::Busy, "no reader is free"))?;
                if self.has_places { session } else { session.without_places() }
            }
        };
        let outcome = read(&session);
        let mut idle = idle();
        // Under the lock: what `let_go` does not see here sees that another has taken over.
        if !session.database().is_superseded() {
            idle.push(session);
        }
        outcome
    }

    /// Lets the sessions go whose database another has taken over from: they would hold it until somebody reads.
    pub(crate) fn let_go(&self) {
        let is_old = |session: &mut Session| session.database().is_superseded();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let old: Vec<Session> = idle.extract_if(.., is_old).collect();
        drop(idle);
        // The last one ends its database, for which no reader waits.
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ask_from_a_new_fault_on_until_there_are_none_for_a_while() {
        let mut watch = Watch::default();
        watch.note(500);
        assert!(!watch.is_asking, "what was before the first look does not count");
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
