//! Fail-stop: when the content of memory or disk is in doubt, all writing stops until the store is reopened.
//!
//! There are two causes: after a failed sync the content of the disk is unknown, and after a panic during a change the
//! content of memory is. Every acknowledged change is in the log, so reopening is safe where continuing might not be.
//!
//! All writing parts of a store share one [`FailStop`]: the engine, its log and its tree file. A panicking thread stops the
//! store before it releases any lock that it held ([`FailStop::lock`]), so the next holder of the lock finds the store stopped.

use std::io;
use std::ops::{Deref, DerefMut};

use super::error::StoreError;
use super::sync::atomic::{AtomicBool, Ordering};
use super::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, thread};

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

    /// Returns [`StoreError::Poisoned`] once the store is stopped.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_stopped() { Err(StoreError::Poisoned) } else { Ok(()) }
    }

    /// The cause of the stop; `None` while the store runs, or if it was only closed.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.get().map(String::as_str)
    }

    /// Stops the store after a disk operation with unknown outcome. Logs the cause once.
    #[cold]
    pub(crate) fn stop(&self, what: &str, error: &io::Error) {
        self.stop_because(|| format!("{what} failed: {error}"));
    }

    /// Stops the store after a thread has panicked while it was `doing` this.
    #[cold]
    pub(crate) fn stop_after_panic(&self, doing: &str) {
        self.stop_because(|| format!("a panic while {doing}"));
    }

    /// Stops writes without a failure: the store is closed.
    pub(crate) fn close(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    fn stop_because(&self, cause: impl FnOnce() -> String) {
        if self.is_stopped() {
            return;
        }
        // The cause is set first, so that a thread that finds the store stopped also finds the cause.
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

    /// Stops the store if the calling thread panics while the returned value lives.
    #[inline]
    pub(crate) fn watch(&self, doing: &'static str) -> PanicWatch<'_> {
        PanicWatch { fail_stop: self, doing, was_panicking: thread::panicking() }
    }

    /// Locks state that a panic would leave half changed: a panic stops the store before the lock is released.
    #[inline]
    pub(crate) fn lock<'f, T>(&'f self, mutex: &'f Mutex<T>, doing: &'static str) -> Held<'f, T> {
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        Held { _watch: self.watch(doing), guard }
    }

    /// The same if the lock is free.
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

/// Locks state that no panic leaves half changed. Other state is locked by [`FailStop::lock`].
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error for a caller whose change was in progress when a thread panicked.
pub(crate) fn panicked() -> StoreError {
    StoreError::Unknown(io::Error::other("a thread of the store panicked").into())
}

/// See [`FailStop::watch`].
pub(crate) struct PanicWatch<'f> {
    fail_stop: &'f FailStop,
    doing: &'static str,
    /// The store may be used by code that runs while an unrelated panic unwinds.
    was_panicking: bool,
}

impl Drop for PanicWatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.fail_stop.stop_after_panic(self.doing);
        }
    }
}

/// See [`FailStop::lock`]. The fields are dropped in this order.
pub(crate) struct Held<'f, T> {
    _watch: PanicWatch<'f>,
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
            let (sender, receiver) = std::sync::mpsc::channel();
            let (fail_stop, mutex) = (&fail_stop, &mutex);
            let panicking = scope.spawn(move || {
                let _held = fail_stop.lock(mutex, "changing it");
                sender.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                panic!("as a test wants it");
            });
            receiver.recv().unwrap();
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
        assert!(matches!(fail_stop.check(), Err(StoreError::Poisoned)));
    }
}
