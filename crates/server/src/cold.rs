//! Cold reads: those that would wait for the disk leave their loop, so that they delay nobody else on it.
//!
//! A page of the data file that is not in memory makes the thread that touches it wait, for a major fault. Asking the
//! kernel before each touch would cost every read a system call, and where all data fits into memory for nothing. So a
//! loop looks now and then whether it has waited. Only while it has, reads ask before they touch a page; one whose page is
//! not there is answered late by the pool, which does the waiting.
//!
//! Declared `get` and `query` ask, and the general API's documents and lists; a scan asks for each of its pages. What
//! writes read while they are prepared, and the later pieces of a large document, are not asked for.

use crate::failure::{Failure, Kind};
use docs::Session;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

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

/// While this lives the session's reads ask.
pub(crate) struct Asking {
    session: Rc<Session>,
}

impl Asking {
    pub(crate) fn new(session: &Rc<Session>) -> Asking {
        session.reader().ask_before_waiting(true);
        Asking { session: Rc::clone(session) }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.session.reader().ask_before_waiting(false);
    }
}

/// Sessions of the pool's threads: as many as have been in use at the same moment.
#[derive(Default)]
pub(crate) struct Sessions {
    idle: Mutex<Vec<Session>>,
}

impl Sessions {
    /// Runs `read` with a session of its own.
    pub(crate) fn with<R>(
        &self,
        database: &docs::Database,
        read: impl FnOnce(&Session) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let session = match kept {
            Some(session) => session,
            None => database.session().map_err(|_| Failure::new(Kind::Busy, "no reader is free"))?,
        };
        let outcome = read(&session);
        idle().push(session);
        outcome
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
