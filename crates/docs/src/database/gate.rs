//! The gate that every write passes, so that no write is in progress while a database is opened anew
//! ([`crate::DocumentDatabase::reopen`]) or a collection is emptied ([`crate::transactions::truncate`]).
//!
//! A write is counted from before its preparation until its result is reported. The gate closes in two steps. First it blocks
//! long writes (statements on threads that may block) and waits for those in progress. A blocked statement occupies a thread that
//! queries need too, so an attempt blocks them only for a moment. If a statement in progress takes longer, the gate opens again,
//! and a later attempt waits twice as long. If statements overlap without end, the last attempt refuses new ones, which occupies
//! no thread, until those in progress have ended. Then the gate blocks all writes; those still
//! in progress are single transactions on their way to the disk, so writers wait for some milliseconds. An event loop never
//! waits: [`Gate::try_enter`] reports that the gate is closed, and the event loop keeps the write and tries again.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long [`Gate::close_to_long`] looks for a moment without running statements.
const LONG_WAIT: Duration = Duration::from_secs(10);
/// How long [`Gate::try_close`] does.
const BRIEF_WAIT: Duration = Duration::from_millis(500);
/// How long the last attempt of [`Gate::close_to_long`] refuses statements: by default those in progress end by then.
const LAST_WAIT: Duration = Duration::from_secs(30);
/// How long the first attempt blocks statements, and the longest one.
const ATTEMPT_FIRST: Duration = Duration::from_millis(20);
const ATTEMPT_MAX: Duration = Duration::from_millis(320);
/// How long a closing waits for transactions on their way to the disk; all writes wait meanwhile.
const SHORT_WAIT: Duration = Duration::from_secs(3);
/// Interval of polling the counts.
const LOOK: Duration = Duration::from_micros(200);

const OPEN: u8 = 0;
const CLOSED_TO_LONG: u8 = 1;
const CLOSED: u8 = 2;
const GONE: u8 = 3;
/// As `CLOSED_TO_LONG`, but long writes are refused instead of blocked.
const REFUSES_LONG: u8 = 4;

/// Classes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// One transaction, possibly of an event loop.
    Short,
    /// May run for seconds, on a thread that may wait.
    Long,
}

/// Why a write could not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// Closed for some time; try again.
    Closed,
    /// Closed for ever: another database has taken over, or the catalog could not be restored after a refused change. Or closed to
    /// long writes for longer than they may wait.
    Gone,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: AtomicU8,
    short: AtomicUsize,
    long: AtomicUsize,
    changing: Mutex<()>,
    changed: Condvar,
    /// Held by the thread that closes the gate.
    closer: Mutex<()>,
}

/// A closed gate; dropping this opens it.
pub(crate) struct Closed<'g> {
    gate: &'g Gate,
    _closer: MutexGuard<'g, ()>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.open();
    }
}

impl Gate {
    fn inside(&self, kind: WriteKind) -> &AtomicUsize {
        if kind == WriteKind::Short { &self.short } else { &self.long }
    }

    /// Enters, or returns why not.
    #[inline]
    pub(crate) fn try_enter(&self, kind: WriteKind) -> Result<(), Shut> {
        // Counted before the state is read: closing sets the state before it reads the count.
        self.inside(kind).fetch_add(1, Ordering::SeqCst);
        match self.state.load(Ordering::SeqCst) {
            OPEN => Ok(()),
            state => self.judge(kind, state),
        }
    }

    #[cold]
    fn judge(&self, kind: WriteKind, state: u8) -> Result<(), Shut> {
        let shut = match state {
            OPEN => return Ok(()),
            CLOSED_TO_LONG | REFUSES_LONG if kind == WriteKind::Short => return Ok(()),
            REFUSES_LONG | GONE => Shut::Gone,
            _ => Shut::Closed,
        };
        self.leave(kind);
        Err(shut)
    }

    /// Enters, possibly after a wait; false if the gate is closed for ever, or for long.
    #[inline]
    pub(crate) fn enter(&self, kind: WriteKind) -> bool {
        loop {
            match self.try_enter(kind) {
                Ok(()) => return true,
                Err(Shut::Gone) => return false,
                Err(Shut::Closed) => self.wait(kind),
            }
        }
    }

    /// Waits until the gate is no longer closed to this kind.
    #[cold]
    fn wait(&self, kind: WriteKind) {
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_closed_to(kind) {
            changing = self.changed.wait(changing).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_closed_to(&self, kind: WriteKind) -> bool {
        match self.state.load(Ordering::SeqCst) {
            CLOSED => true,
            CLOSED_TO_LONG => kind == WriteKind::Long,
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn leave(&self, kind: WriteKind) {
        self.inside(kind).fetch_sub(1, Ordering::SeqCst);
    }

    fn set(&self, state: u8) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::SeqCst) != GONE {
            self.state.store(state, Ordering::SeqCst);
        }
        self.changed.notify_all();
    }

    /// The right to close the gate, held by one thread at a time.
    pub(crate) fn closer(&self) -> MutexGuard<'_, ()> {
        self.closer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the gate to all writes for a moment. `None`: it is closed already, or the writes inside take too long.
    pub(crate) fn try_close(&self) -> Option<Closed<'_>> {
        let closer = match self.closer.try_lock() {
            Ok(closer) => closer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.state.load(Ordering::SeqCst) != OPEN {
            return None;
        }
        let is_closed = self.close_to_long_within(BRIEF_WAIT, None) && self.close();
        is_closed.then(|| Closed { gate: self, _closer: closer })
    }

    /// Blocks long writes at a moment when none is inside. If there is none for too long, the gate is open, and the result
    /// false.
    pub(crate) fn close_to_long(&self) -> bool {
        self.close_to_long_within(LONG_WAIT, Some(LAST_WAIT))
    }

    /// `last`: how long the last attempt refuses long writes, if it may.
    fn close_to_long_within(&self, most: Duration, last: Option<Duration>) -> bool {
        let (until, mut attempt) = (Instant::now() + most, ATTEMPT_FIRST);
        loop {
            self.set(CLOSED_TO_LONG);
            if self.empties(WriteKind::Long, attempt) {
                return true;
            }
            if Instant::now() >= until {
                return last.is_some_and(|last| self.refuse_long(last)) || self.give_up();
            }
            self.open();
            // Statements that were blocked run in between.
            std::thread::sleep(2 * attempt);
            attempt = (2 * attempt).min(ATTEMPT_MAX);
        }
    }

    /// Refuses long writes until none is inside, and then blocks them. False if that takes too long.
    fn refuse_long(&self, most: Duration) -> bool {
        self.set(REFUSES_LONG);
        let is_empty = self.empties(WriteKind::Long, most);
        if is_empty {
            self.set(CLOSED_TO_LONG);
        }
        is_empty
    }

    /// After [`Gate::close_to_long`]: blocks all writes and waits until none is inside. If that takes too long, opens the gate
    /// again and returns false.
    pub(crate) fn close(&self) -> bool {
        self.set(CLOSED);
        self.empties(WriteKind::Short, SHORT_WAIT) || self.give_up()
    }

    fn give_up(&self) -> bool {
        self.open();
        false
    }

    fn empties(&self, kind: WriteKind, most: Duration) -> bool {
        let until = Instant::now() + most;
        while self.inside(kind).load(Ordering::SeqCst) > 0 {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Opens the gate to all writes.
    pub(crate) fn open(&self) {
        self.set(OPEN);
    }

    /// Closes the gate for ever.
    pub(crate) fn end(&self) {
        self.set(GONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn one_closes_it_at_a_time_and_it_is_open_again_after() {
        let gate = Gate::default();
        let closed = gate.try_close();
        assert!(closed.is_some() && gate.try_close().is_none());
        assert_eq!(gate.try_enter(WriteKind::Short), Err(Shut::Closed));
        drop(closed);
        assert_eq!(gate.try_enter(WriteKind::Long), Ok(()));
        // It does not wait long for writes inside.
        assert!(gate.try_close().is_none());
        assert_eq!(gate.try_enter(WriteKind::Short), Ok(()));
        gate.leave(WriteKind::Short);
        gate.leave(WriteKind::Long);
        gate.end();
        assert!(gate.try_close().is_none());
    }

    #[test]
    fn a_closing_beside_a_long_write_lets_others_pass_and_closes_when_that_write_has_left() {
        let gate = Gate::default();
        assert!(gate.enter(WriteKind::Long));
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| gate.close_to_long());
            while gate.state.load(Ordering::SeqCst) == OPEN {
                std::thread::yield_now();
            }
            // Blocked at first, but not until the first write has left.
            assert!(gate.enter(WriteKind::Long));
            assert!(!closing.is_finished());
            gate.leave(WriteKind::Long);
            gate.leave(WriteKind::Long);
            assert!(closing.join().unwrap());
        });
        assert_eq!(gate.try_enter(WriteKind::Long), Err(Shut::Closed));
    }

    #[test]
    fn a_closing_beside_statements_that_overlap_without_end_refuses_new_ones_until_the_last_has_left() {
        let gate = Gate::default();
        assert!(gate.enter(WriteKind::Long));
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| gate.close_to_long_within(Duration::ZERO, Some(LAST_WAIT)));
            while gate.state.load(Ordering::SeqCst) != REFUSES_LONG {
                std::thread::yield_now();
            }
            assert!(!gate.enter(WriteKind::Long), "it does not wait inside a thread");
            assert_eq!(gate.try_enter(WriteKind::Short), Ok(()));
            gate.leave(WriteKind::Short);
            gate.leave(WriteKind::Long);
            assert!(closing.join().unwrap());
        });
        assert_eq!(gate.try_enter(WriteKind::Long), Err(Shut::Closed));
        gate.open();
        // Nobody refuses statements for a closing that may fail.
        assert!(gate.enter(WriteKind::Long));
        assert!(!gate.close_to_long_within(Duration::ZERO, None) && gate.enter(WriteKind::Long));
    }

    #[test]
    fn nobody_is_inside_while_it_is_closed_and_nobody_comes_in_when_it_is_gone() {
        let (gate, is_closed, inside) = (Gate::default(), AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (gate, is_closed, inside) = (&gate, &is_closed, &inside);
                scope.spawn(move || {
                    let kind = if number == 0 { WriteKind::Long } else { WriteKind::Short };
                    while gate.enter(kind) {
                        let before = is_closed.load(Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_add(usize::from(before || is_closed.load(Ordering::SeqCst)), Ordering::SeqCst);
                        gate.leave(kind);
                    }
                });
            }
            for round in 0..200 {
                assert!(gate.close_to_long() && gate.close());
                is_closed.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                is_closed.store(false, Ordering::SeqCst);
                if round == 199 { gate.end() } else { gate.open() }
            }
        });
        assert_eq!(inside.into_inner(), 0);
        assert!(!gate.enter(WriteKind::Short));
    }
}
