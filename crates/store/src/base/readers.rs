//! Published values: readers load the current value without a lock. The owner replaces it, and frees an old value once
//! no reader can hold it.
//!
//! Each reader owns a slot, a cache line of its own, in a fixed table. Values are numbered by epochs 1, 2, 3, …
//!
//! ```text
//!  reader                                      owner
//!  1  e := epoch                               1  current := value of epoch n + 1
//!  2  slot := from e                           2  epoch := n + 1
//!  3  barrier                                  3  barrier
//!  4  p := current                             4  read all slots
//!  5  slot := only k     ... uses p ...        5  free every value that no slot names: k is named by
//!  6  slot := 0                                   "only k", and by "from e" for each e <= k
//! ```
//!
//! Because of step 5 a reader that holds a guard for hours keeps one value alive, and not all later ones too.
//!
//! Proof that no value is freed while a reader uses it. Let p, the value of epoch k, be what reader step 4 loads.
//!
//! - e <= k: `epoch` became e only after `current` had become the value of epoch e (owner 1, 2), and reader 1 acquires
//!   what owner 2 released; so reader 4 sees that value or a later one.
//! - The owner frees p only after some step 3 that follows the replacement of p (owner 1 of epoch k + 1). Barriers are
//!   totally ordered. If the owner's came first, reader 4 would have seen the replacement, and p would not be p. So the
//!   reader's came first, and owner 4 sees `slot = e`, or what the slot held later.
//! - If it sees "from e" or "only k": both name k, and p stays. If it sees a later content, reader 6 came before it, with
//!   release, and the owner's acquire makes the uses of p happen before the free.
//! - A second guard on the same slot that finds the same value is covered by "only k". A second guard that finds another value
//!   does not use it yet: it sets the slot back to "from k", a lower bound of all epochs it may see, passes a barrier, and loads
//!   again. The argument is then the first guard's, with k for e. The slot keeps "from k" until its last guard is dropped.
//!
//! Readers need the barrier millions of times a second, the owner a few times a minute. So if the kernel has it, the
//! owner calls `membarrier(2)`, which executes a full barrier on every running thread of the process, and readers only
//! need a compiler fence. Otherwise both sides use a fence.
#![allow(unsafe_code)] // Values are reached through a raw pointer whose life the protocol above guards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::sync::PoisonError;
use super::sync::atomic::{Ordering, compiler_fence};
use super::sync::modelled::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, fence};
use super::sync::modelled::{Mutex, MutexGuard};

/// Maximum number of replaced values that wait for their readers, including places reserved for more. At the maximum
/// [`Published::reserve`] refuses.
pub const RETIRED_MAX: usize = 64;

/// Epoch of the first value. A slot with 0 names no value.
const FIRST_EPOCH: u64 = 1;

/// A value with its epoch.
struct Stamped<T> {
    epoch: u64,
    value: T,
}

/// One reader's line of the table.
#[derive(Default)]
struct Slot {
    taken: AtomicBool,
    /// The values its reader may use, see [`Named`].
    named: AtomicU64,
}

/// The content of a slot: 0 for nothing, else an epoch times two, plus one if only that epoch is named.
#[derive(Clone, Copy)]
struct Named(u64);

impl Named {
    const NOTHING: Named = Named(0);

    fn from(epoch: u64) -> Named {
        Named(epoch << 1)
    }

    fn only(epoch: u64) -> Named {
        Named(epoch << 1 | 1)
    }

    /// The least epoch named.
    fn least(self) -> Option<u64> {
        (self.0 != 0).then_some(self.0 >> 1)
    }

    fn names(self, epoch: u64) -> bool {
        self.least().is_some_and(|least| least == epoch || (least < epoch && self.0 & 1 == 0))
    }
}

/// The current value, and the replaced values that readers still hold.
pub struct Published<T> {
    current: AtomicPtr<Stamped<T>>,
    epoch: AtomicU64,
    slots: Box<[CachePadded<Slot>]>,
    /// True if the owner's barrier (membarrier) covers the readers' threads.
    asymmetric: bool,
    /// Its lock also ensures that there is one owner at a time.
    retired: Mutex<RetiredList<T>>,
    retired_len: AtomicUsize,
}

/// Replaced values that wait for their readers.
struct RetiredList<T> {
    /// Oldest first.
    values: VecDeque<Retired<T>>,
    /// Number of places reserved by [`Reservation`]s.
    reserved: usize,
}

impl<T> RetiredList<T> {
    fn is_full(&self) -> bool {
        self.values.len() + self.reserved >= RETIRED_MAX
    }
}

/// A replaced value. A raw pointer, since a `Box` would claim exclusive access.
struct Retired<T>(*mut Stamped<T>);

// SAFETY: it owns a `T` that other threads may still read, and that may be dropped on any thread.
unsafe impl<T: Send + Sync> Send for Retired<T> {}

/// The right of one thread at a time to read the published value.
pub struct ReaderSlot<T> {
    published: Arc<Published<T>>,
    index: usize,
    /// Number of live guards. Not atomic: it makes the slot `!Sync`, which the protocol needs.
    guards: Cell<usize>,
    /// The value that the slot names alone; null if it names more values, or none.
    settled: Cell<*const Stamped<T>>,
}

// SAFETY: a slot moves to another thread only while no guard borrows it; then its pointer is not followed. Guards lend
// out only `&T`, and a `T` may be dropped on any thread.
unsafe impl<T: Send + Sync> Send for ReaderSlot<T> {}

/// Access to a value, which lives at least as long as the guard.
pub struct ReadGuard<'s, T> {
    slot: &'s ReaderSlot<T>,
    seen: *const Stamped<T>,
}

/// The right to replace the current value once, however many old values readers hold by then. Dropping it releases the reservation.
pub struct Reservation<'p, T: Send + Sync> {
    published: &'p Published<T>,
}

impl<T: Send + Sync> Published<T> {
    /// Publishes a first value for at most `readers_max` readers.
    pub fn new(value: T, readers_max: usize) -> Arc<Published<T>> {
        Arc::new(Published {
            current: AtomicPtr::new(Box::into_raw(Box::new(Stamped { epoch: FIRST_EPOCH, value }))),
            epoch: AtomicU64::new(FIRST_EPOCH),
            slots: (0..readers_max).map(|_| CachePadded::default()).collect(),
            asymmetric: membarrier::register(),
            retired: Mutex::new(RetiredList { values: VecDeque::new(), reserved: 0 }),
            retired_len: AtomicUsize::new(0),
        })
    }

    /// Takes a reader's slot; `None` if all are taken.
    pub fn register(self: &Arc<Self>) -> Option<ReaderSlot<T>> {
        let index = self.slots.iter().position(|slot| !slot.taken.swap(true, Ordering::Acquire))?;
        Some(ReaderSlot {
            published: Arc::clone(self),
            index,
            guards: Cell::new(0),
            settled: Cell::new(std::ptr::null()),
        })
    }

    /// Reserves room for one replacement; `None` if readers hold the maximum number of old values.
    pub fn reserve(&self) -> Option<Reservation<'_, T>> {
        if self.lock().is_full() {
            self.reclaim();
        }
        let mut retired = self.lock();
        if retired.is_full() {
            return None;
        }
        retired.reserved += 1;
        Some(Reservation { published: self })
    }

    /// Frees the replaced values that no reader holds, dropping them on the calling thread; returns their number.
    pub fn reclaim(&self) -> usize {
        let mut retired = self.lock();
        if retired.values.is_empty() {
            return 0;
        }
        let Some(named) = self.named() else { return 0 };
        let is_named = |value: &Retired<T>| {
            // SAFETY: retired values stay allocated until they are taken off this list, under its lock.
            let epoch = unsafe { (*value.0).epoch };
            named.iter().any(|named| named.names(epoch))
        };
        let (kept, free): (Vec<_>, Vec<_>) = retired.values.drain(..).partition(is_named);
        retired.values = kept.into();
        self.retired_len.store(retired.values.len(), Ordering::Relaxed);
        drop(retired);
        for Retired(value) in &free {
            // SAFETY: made by `Box::into_raw`, taken off the list once; no reader holds it, by the module's proof.
            drop(unsafe { Box::from_raw(*value) });
        }
        free.len()
    }

    /// Epoch of the current value.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Number of replaced values that are not freed yet.
    pub fn retired_len(&self) -> usize {
        self.retired_len.load(Ordering::Relaxed)
    }

    /// The owner's steps 3 and 4: the contents of all slots in use. `None` if the kernel refuses the barrier, for
    /// example by a seccomp filter installed after the start; then it is unknown which values readers hold.
    fn named(&self) -> Option<Vec<Named>> {
        fence(Ordering::SeqCst);
        if self.asymmetric && !membarrier::everywhere() {
            return None;
        }
        let all = self.slots.iter().map(|slot| Named(slot.named.load(Ordering::Acquire)));
        Some(all.filter(|named| named.least().is_some()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, RetiredList<T>> {
        // No foreign code runs under the lock, so a poisoned one is still consistent.
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync> Reservation<'_, T> {
    /// Makes `value` the current one and returns its epoch. A later [`Published::reclaim`] frees the previous value.
    pub fn replace(self, value: T) -> u64 {
        let published = self.published;
        let mut retired = published.lock();
        retired.reserved -= 1;
        std::mem::forget(self);
        let epoch = published.epoch.load(Ordering::Relaxed) + 1;
        let old = published.current.swap(Box::into_raw(Box::new(Stamped { epoch, value })), Ordering::AcqRel);
        published.epoch.store(epoch, Ordering::Release);
        retired.values.push_back(Retired(old));
        published.retired_len.store(retired.values.len(), Ordering::Relaxed);
        epoch
    }
}

impl<T: Send + Sync> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        self.published.lock().reserved -= 1;
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let retired = self.retired.get_mut().unwrap_or_else(PoisonError::into_inner);
        let retired = std::mem::take(&mut retired.values);
        let current = self.current.load(Ordering::Acquire);
        for value in retired.into_iter().map(|Retired(value)| value).chain([current]) {
            // SAFETY: each was made by `Box::into_raw` and is in one place only. Every slot, and so every guard, holds
            // an `Arc` of this `Published`, so no guard exists.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T> ReaderSlot<T> {
    /// Takes the current value. Guards may overlap; while they hold different values, all values between them stay too.
    #[inline]
    pub fn load(&self) -> ReadGuard<'_, T> {
        let published = &*self.published;
        let guards = self.guards.get();
        self.guards.set(guards + 1);
        if guards > 0 {
            return ReadGuard { slot: self, seen: self.load_beside() };
        }
        self.announce(Named::from(published.epoch.load(Ordering::Acquire)));
        let seen = published.current.load(Ordering::Acquire);
        // SAFETY: the slot names all epochs from one that is not above this value's, so by the module's proof it stays.
        let epoch = unsafe { (*seen).epoch };
        published.slots[self.index].named.store(Named::only(epoch).0, Ordering::Release);
        self.settled.set(seen);
        ReadGuard { slot: self, seen }
    }

    /// Steps 2 and 3.
    #[inline]
    fn announce(&self, named: Named) {
        let published = &*self.published;
        published.slots[self.index].named.store(named.0, Ordering::Relaxed);
        if published.asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
    }

    /// The current value for a second guard of the slot.
    #[cold]
    fn load_beside(&self) -> *const Stamped<T> {
        let settled = self.settled.get();
        let seen: *const Stamped<T> = self.published.current.load(Ordering::Acquire);
        if settled.is_null() || settled == seen {
            return seen;
        }
        // SAFETY: the slot has named this value alone since its guard was made, so it was not freed. Its memory is
        // still in use, so `seen` cannot be another value at the same address.
        self.announce(Named::from(unsafe { (*settled).epoch }));
        self.settled.set(std::ptr::null());
        self.published.current.load(Ordering::Acquire)
    }
}

impl<T> Drop for ReaderSlot<T> {
    fn drop(&mut self) {
        // Guards borrow the slot. A leaked guard left its epoch behind.
        let slot = &self.published.slots[self.index];
        slot.named.store(Named::NOTHING.0, Ordering::Release);
        slot.taken.store(false, Ordering::Release);
    }
}

impl<T> ReadGuard<'_, T> {
    /// The value's epoch.
    pub fn epoch(&self) -> u64 {
        self.stamped().epoch
    }

    fn stamped(&self) -> &Stamped<T> {
        // SAFETY: `load` read the pointer under a slot that this guard keeps set, so by the module's proof the value is
        // not freed before the guard is dropped. A published value is never written.
        unsafe { &*self.seen }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.stamped().value
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let left = self.slot.guards.get() - 1;
        self.slot.guards.set(left);
        if left == 0 {
            self.slot.settled.set(std::ptr::null());
            self.slot.published.slots[self.slot.index].named.store(Named::NOTHING.0, Ordering::Release);
        }
    }
}

/// The owner's barrier, executed on every thread of the process.
mod membarrier {
    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, see membarrier(2).
    #[cfg(all(target_os = "linux", not(miri), not(any(feature = "loom", feature = "schedules"))))]
    const EXPEDITED: libc::c_int = 1 << 3;
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
    #[cfg(all(target_os = "linux", not(miri), not(any(feature = "loom", feature = "schedules"))))]
    const REGISTER: libc::c_int = 1 << 4;

    #[cfg(all(target_os = "linux", not(miri), not(any(feature = "loom", feature = "schedules"))))]
    fn call(command: libc::c_int) -> libc::c_long {
        // SAFETY: membarrier(2) takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    /// Registers the process for membarrier; false if the kernel or a sandbox does not allow it.
    #[cfg(all(target_os = "linux", not(miri), not(any(feature = "loom", feature = "schedules"))))]
    pub(super) fn register() -> bool {
        call(REGISTER) == 0
    }

    /// Executes a full barrier on every running thread of the process; false if the kernel refuses.
    #[cfg(all(target_os = "linux", not(miri), not(any(feature = "loom", feature = "schedules"))))]
    pub(super) fn everywhere() -> bool {
        call(EXPEDITED) == 0
    }

    #[cfg(any(not(target_os = "linux"), miri, feature = "loom", feature = "schedules"))]
    pub(super) fn register() -> bool {
        false
    }

    #[cfg(any(not(target_os = "linux"), miri, feature = "loom", feature = "schedules"))]
    pub(super) fn everywhere() -> bool {
        true
    }
}

/// Every interleaving of one reader and the owner, and every stale value that the memory model allows. The barrier is
/// the fence: loom has no membarrier.
#[cfg(all(test, feature = "loom"))]
mod model {
    use super::*;
    use std::sync::atomic::AtomicBool as Flag;

    /// Records its drop in a flag outside of itself.
    struct Payload(&'static Flag);

    impl Drop for Payload {
        fn drop(&mut self) {
            assert!(!self.0.swap(true, Ordering::Relaxed), "dropped twice");
        }
    }

    fn payload() -> (Payload, &'static Flag) {
        let dropped: &'static Flag = Box::leak(Box::new(Flag::new(false)));
        (Payload(dropped), dropped)
    }

    /// Runs reader and owner side by side, in every interleaving.
    fn check(reader: fn(&ReaderSlot<Payload>), owner: fn(&Published<Payload>)) {
        loom::model(move || {
            let published = Published::new(payload().0, 1);
            let slot = published.register().expect("a free slot");
            let thread = loom::thread::spawn(move || reader(&slot));
            owner(&published);
            thread.join().expect("the reader's checks hold");
            published.reclaim();
            assert_eq!(published.retired_len(), 0);
        });
    }

    #[track_caller]
    fn check_alive(guard: &ReadGuard<'_, Payload>) {
        assert!(!guard.0.load(Ordering::Relaxed), "looked at a freed value");
    }

    fn replace(published: &Published<Payload>) {
        published.reserve().expect("room").replace(payload().0);
        published.reclaim();
    }

    #[test]
    fn a_look_outlives_one_replacement() {
        check(
            |slot| {
                let guard = slot.load();
                check_alive(&guard);
                loom::thread::yield_now();
                check_alive(&guard);
            },
            replace,
        );
    }

    #[test]
    fn looks_one_after_the_other_and_nested_outlive_two_replacements() {
        check(
            |slot| {
                check_alive(&slot.load());
                let first = slot.load();
                let second = slot.load();
                drop(first);
                loom::thread::yield_now();
                check_alive(&second);
            },
            |published| {
                replace(published);
                replace(published);
            },
        );
    }
}
