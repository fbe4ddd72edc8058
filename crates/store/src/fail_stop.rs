//! Fail-stop: what leaves memory or the disk in doubt ends all writing at once, until the store is opened again.
//!
//! Two causes. A sync failed: nobody knows what is on the disk. A thread panicked in the midst of a change: nobody knows what
//! is in memory. The log has whatever was acknowledged, so a reopening is sound where going on might not be.
//!
//! One [`FailStop`] is shared by all of a store that writes: the engine, its log and its tree file. Who panics stops the
//! store before any lock is let go under which it worked ([`FailStop::lock`]), so that the next holder of the lock already
//! finds it stopped.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::error::Error;

/// See the module's text.
#[derive(Default)]
pub(crate) struct FailStop {
    is_stopped: AtomicBool,
    cause: OnceLock<String>,
}

impl FailStop {
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Refuses once it is stopped.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_stopped() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// What stopped it; nothing where it runs, or was just closed.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.get().map(String::as_str)
    }

    /// An operation of the disk failed whose outcome nobody knows. Says it once.
    #[cold]
    pub(crate) fn stop(&self, what: &str, error: &io::Error) {
        self.stop_because(|| format!("{what} failed: {error}"));
    }

    /// A thread panicked in the midst of this.
    #[cold]
    pub(crate) fn stop_after_panic(&self, doing: &str) {
        self.stop_because(|| format!("a panic while {doing}"));
    }

    /// No writes from now on, for no failure: the store is closed.
    pub(crate) fn close(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    fn stop_because(&self, cause: impl FnOnce() -> String) {
        if self.is_stopped() {
            return;
        }
        // The cause first: whoever finds it stopped finds that too.
        let mut is_first = false;
        let cause = self.cause.get_or_init(|| {
            is_first = true;
            cause()
        });
        self.is_stopped.store(true, Ordering::Release);
        if is_first {
            tracing::error!(%cause, "no writes until the store is reopened");
        }
    }

    /// Stops if the calling thread panics while the result lives.
    #[inline]
    pub(crate) fn watch(&self, doing: &'static str) -> Watch<'_> {
        Watch { fail_stop: self, doing, was_panicking: std::thread::panicking() }
    }

    /// Locks what a panic would leave half changed: a panic stops first, and then lets the lock go.
    #[inline]
    pub(crate) fn lock<'f, T>(&'f self, mutex: &'f Mutex<T>, doing: &'static str) -> Held<'f, T> {
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        Held { _watch: self.watch(doing), guard }
    }

    /// The same where nobody else has it.
    #[inline]
    pub(crate) fn try_lock<'f, T>(&'f self, mutex: &'f Mutex<T>, doing: &'static str) -> Option<Held<'f, T>> {
        let guard = match mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { _watch: self.watch(doing), guard })
    }
}

/// What a caller hears whose change was under way when a thread panicked.
pub(crate) fn panicked() -> Error {
    Error::Unknown(io::Error::other("a thread of the store panicked"))
}

/// See [`FailStop::watch`].
pub(crate) struct Watch<'f> {
    fail_stop: &'f FailStop,
    doing: &'static str,
    /// The store may be used by what runs while a panic of others unwinds.
    was_panicking: bool,
}

impl Drop for Watch<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.fail_stop.stop_after_panic(self.doing);
        }
    }
}

/// See [`FailStop::lock`]. The fields are dropped in this order.
pub(crate) struct Held<'f, T> {
    _watch: Watch<'f>,
    guard: MutexGuard<'f, T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_under_a_lock_stops_before_the_lock_is_free() {
        let (fail_stop, mutex) = (FailStop::default(), Mutex::new(0));
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (fail_stop, mutex) = (&fail_stop, &mutex);
            let panicking = scope.spawn(move || {
                let _held = fail_stop.lock(mutex, "changing it");
                tell.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                panic!("as a test wants it");
            });
            told.recv().unwrap();
            assert!(!fail_stop.is_stopped());
            let _held = fail_stop.lock(mutex, "changing it");
            assert!(fail_stop.is_stopped());
            assert!(panicking.join().is_err());
        });
        assert_eq!(fail_stop.cause(), Some("a panic while changing it"));
    }

    #[test]
    fn what_runs_while_a_panic_of_others_unwinds_does_not_stop() {
        struct Uses<'f>(&'f FailStop, &'f Mutex<u32>);
        impl Drop for Uses<'_> {
            fn drop(&mut self) {
                *self.0.lock(self.1, "changing it") += 1;
            }
        }
        let (fail_stop, mutex) = (FailStop::default(), Mutex::new(0));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _uses = Uses(&fail_stop, &mutex);
            panic!("as a test wants it");
        }));
        assert!(unwound.is_err() && !fail_stop.is_stopped());
        assert_eq!(*mutex.lock().unwrap(), 1);
    }

    #[test]
    fn the_first_cause_is_the_one_that_is_told() {
        let fail_stop = FailStop::default();
        fail_stop.check().unwrap();
        fail_stop.stop("sync of the tree", &io::Error::from_raw_os_error(5));
        fail_stop.stop_after_panic("placing a transaction");
        assert!(fail_stop.cause().is_some_and(|cause| cause.starts_with("sync of the tree failed: ")));
        assert!(matches!(fail_stop.check(), Err(Error::Poisoned)));
    }
}
