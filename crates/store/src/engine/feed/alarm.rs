//! Wakes readers of changes that have read everything. Costs a commit one load while no reader waits.
//!
//! A reader arms its callback, then checks again for new versions. A committer stores the new version, then checks whether a
//! callback is armed. Both have a full fence between the two steps, so at least one sees the other and no wake-up is lost, and
//! neither check takes a lock. A callback is armed for one call: a reader that does not return is not called again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::fail_stop::lock;
use crate::base::limits::CHANGE_READERS_MAX;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering, fence};

/// The callback, run on a thread of the store or on a committing thread.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Alarm {
    is_armed: AtomicBool,
    seats: Mutex<Seats>,
}

/// One seat for each reader of changes, with its callback while it is armed.
#[derive(Default)]
struct Seats {
    taken: Vec<(u64, Option<Wake>)>,
    next: u64,
}

impl Alarm {
    /// A seat for a reader; `None` at the maximum number of readers.
    pub(crate) fn register(&self) -> Option<u64> {
        let mut seats = lock(&self.seats);
        if seats.taken.len() >= CHANGE_READERS_MAX {
            return None;
        }
        let seat = seats.next;
        seats.next += 1;
        seats.taken.push((seat, None));
        Some(seat)
    }

    pub(crate) fn unregister(&self, seat: u64) {
        lock(&self.seats).taken.retain(|(taken, _)| *taken != seat);
    }

    pub(crate) fn readers(&self) -> usize {
        lock(&self.seats).taken.len()
    }

    /// Arms `wake` for the next [`Alarm::ring`]. The caller must check its condition again after this.
    pub(crate) fn arm(&self, seat: u64, wake: &Wake) {
        let mut seats = lock(&self.seats);
        if let Some((_, armed)) = seats.taken.iter_mut().find(|(taken, _)| *taken == seat) {
            *armed = Some(Arc::clone(wake));
        }
        self.is_armed.store(true, Ordering::Relaxed);
        drop(seats);
        fence(Ordering::SeqCst);
    }

    /// Calls all armed callbacks. To be called after the event that they wait for.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_armed.load(Ordering::Relaxed) {
            self.ring_armed();
        }
    }

    #[cold]
    fn ring_armed(&self) {
        let mut seats = lock(&self.seats);
        self.is_armed.store(false, Ordering::Relaxed);
        let wakes: Vec<Wake> = seats.taken.iter_mut().filter_map(|(_, wake)| wake.take()).collect();
        drop(seats);
        for wake in wakes {
            // A panic in a callback must not end a committer.
            if catch_unwind(AssertUnwindSafe(|| wake())).is_err() {
                tracing::error!("a reader of changes panicked when it was woken");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn counter() -> (Arc<AtomicUsize>, Wake) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        (
            count,
            Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
        )
    }

    #[test]
    fn a_call_is_made_once_for_each_time_it_is_armed() {
        let alarm = Alarm::default();
        let (count, wake) = counter();
        let seat = alarm.register().unwrap();
        alarm.ring();
        alarm.arm(seat, &wake);
        alarm.arm(seat, &wake);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        alarm.ring();
        alarm.ring();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        alarm.arm(seat, &wake);
        alarm.unregister(seat);
        alarm.ring();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn there_are_no_more_seats_than_the_bound() {
        let alarm = Alarm::default();
        let seats: Vec<u64> = (0..CHANGE_READERS_MAX).map(|_| alarm.register().unwrap()).collect();
        assert_eq!(alarm.register(), None);
        alarm.unregister(seats[3]);
        assert!(alarm.register().is_some());
        assert_eq!(alarm.readers(), CHANGE_READERS_MAX);
    }

    #[test]
    fn a_call_that_panics_keeps_no_other_from_being_made() {
        let alarm = Alarm::default();
        let (count, wake) = counter();
        let (bad, good) = (alarm.register().unwrap(), alarm.register().unwrap());
        let panicking: Wake = Arc::new(|| panic!("as a test wants it"));
        alarm.arm(bad, &panicking);
        alarm.arm(good, &wake);
        alarm.ring();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
