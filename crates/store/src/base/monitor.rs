//! State with the condition that announces its changes, so that no wake-up is lost.
//!
//! A wake-up is lost if a thread tests a flag, another one sets the flag and wakes, and only then the first begins to wait.
//! Here the test is made under the lock that the wait releases, and a change is made under that lock and always wakes.

use std::time::Duration;

use super::sync::modelled::{Condvar, Mutex, MutexGuard};
use super::sync::{Instant, PoisonError};

/// See the module's text. No panic leaves the state half changed.
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T: Default> Default for Monitor<T> {
    fn default() -> Monitor<T> {
        Monitor::new(T::default())
    }
}

impl<T> Monitor<T> {
    pub(crate) fn new(state: T) -> Monitor<T> {
        Monitor { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The state, to look at, or for a change that no thread waits for.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes all waiting threads.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `ready` returns something, at most for `time`.
    pub(crate) fn wait<R>(&self, time: Option<Duration>, mut ready: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let until = time.map(|time| Instant::now() + time);
        let mut state = self.lock();
        loop {
            let found = ready(&mut state);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if found.is_some() || left.is_some_and(|left| left.is_zero()) {
                return found;
            }
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod model {
    use loom::sync::Arc;
    use loom::thread::spawn;

    use super::*;

    #[test]
    fn no_change_is_missed_wherever_the_waiting_thread_is() {
        loom::model(|| {
            let monitor = Arc::new(Monitor::new((false, false)));
            let waiting = {
                let monitor = Arc::clone(&monitor);
                // As the space keeper: it serves a request, then waits for the next one, until it is closed.
                spawn(move || {
                    while monitor.wait(None, |(request, end)| (*end || std::mem::take(request)).then_some(!*end))
                        == Some(true)
                    {}
                })
            };
            monitor.change(|(request, _)| *request = true);
            monitor.change(|(_, end)| *end = true);
            waiting.join().unwrap();
        });
    }
}
