//! Wakes readers of changes that have read all there is: one load for a commit while none waits.
//!
//! A reader arms its call and looks once more whether there is something new; a committer stores the new version and looks
//! whether anybody is armed. With a full fence between the two steps on either side one of them sees the other, so no
//! wake-up is lost, and neither takes a lock for looking. A call is armed for once: a reader that does not come back is
//! not called again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};

use super::limits::CHANGE_READERS_MAX;
use super::lock;

/// What is called, on a thread of the store or on one that commits.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Alarm {
    is_armed: AtomicBool,
    seats: Mutex<Seats>,
}

/// One for each reader of changes; its call while it is armed.
#[derive(Default)]
struct Seats {
    taken: Vec<(u64, Option<Wake>)>,
    next: u64,
}

impl Alarm {
    /// A seat for a reader; none when there are too many.
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

    /// Has `wake` called at the next [`Alarm::ring`]. What the caller waits for it must look at again after this.
    pub(crate) fn arm(&self, seat: u64, wake: &Wake) {
        let mut seats = lock(&self.seats);
        if let Some((_, armed)) = seats.taken.iter_mut().find(|(taken, _)| *taken == seat) {
            *armed = Some(Arc::clone(wake));
        }
        self.is_armed.store(true, Ordering::Relaxed);
        drop(seats);
        fence(Ordering::SeqCst);
    }

    /// Calls all that are armed: after what they wait for has happened.
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
            // A panic in a caller's code must not take a committer with it.
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
