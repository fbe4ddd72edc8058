//! Published values: readers take the current one without a lock, the owner replaces it and frees the old ones once
//! nobody can be looking.
//!
//! Each reader owns a slot, a cache line of its own, in a fixed table. Values are numbered by epochs 1, 2, 3...
//!
//! ```text
//!  reader                                      owner
//!  1  e := epoch                               1  current := value of epoch n + 1
//!  2  slot := e                                2  epoch := n + 1
//!  3  barrier                                  3  barrier
//!  4  p := current        ... uses p ...       4  read all slots: m := the least that is not 0
//!  5  slot := 0                                5  free what has an epoch < m
//! ```
//!
//! Why no value is freed under a reader. Say that p has epoch k.
//!
//! - e <= k: `epoch` became e only after `current` had become the value of epoch e (owner 1, 2), and reader 1 acquires
//!   what owner 2 released; so reader 4 sees that value or a later one.
//! - The owner frees p only after some step 3 that follows the replacement of p (owner 1 of epoch k + 1). Barriers have
//!   one order. If the owner's came first, reader 4 would have seen the replacement, and p would not be p. So the
//!   reader's came first, and owner 4 sees `slot = e`, or what the slot held later.
//! - If it sees e: m <= e <= k, and p stays. If it sees a later content, reader 5 was before it, with release, and the
//!   owner's acquire makes the uses of p happen before the free.
//! - A second guard on the same slot needs no step 1 to 3: the slot still holds e, its p' is at least p, and the same
//!   argument holds with the first guard's barrier.
//!
//! The same m answers the engine's other question: what the values before epoch m alone could reach may be reused.
//!
//! The barrier is wanted millions of times a second on the reader's side and a few times a minute on the owner's. So
//! where the kernel has it, the owner calls `membarrier(2)`, which makes every running thread of the process pass a full
//! barrier, and the reader only keeps the compiler from reordering. Elsewhere both use a fence.
#![allow(unsafe_code)] // Values are reached through a raw pointer whose life the protocol above guards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

/// Replaced values that may wait for their readers; past it [`Published::replace`] refuses.
pub const RETIRED_MAX: usize = 64;

/// Epoch of the first value. 0 in a slot means that its reader looks at nothing.
const FIRST_EPOCH: u64 = 1;

/// A value with its number.
struct Stamped<T> {
    epoch: u64,
    value: T,
}

/// One reader's line of the table.
#[derive(Default)]
struct Slot {
    taken: AtomicBool,
    /// The epoch under which its reader looks, or 0.
    epoch: AtomicU64,
}

/// The current value, and those before it that somebody still looks at.
pub struct Published<T> {
    current: AtomicPtr<Stamped<T>>,
    epoch: AtomicU64,
    slots: Box<[CachePadded<Slot>]>,
    /// True when the owner's barrier reaches into the readers' threads.
    asymmetric: bool,
    /// Oldest first. Its lock also makes the owner one.
    retired: Mutex<VecDeque<Retired<T>>>,
    retired_len: AtomicUsize,
}

/// A replaced value. A raw pointer, since a `Box` would claim that nobody else looks.
struct Retired<T>(*mut Stamped<T>);

// SAFETY: it owns a `T` that other threads may still look at, and that may be dropped on any thread.
unsafe impl<T: Send + Sync> Send for Retired<T> {}

/// The right of one thread at a time to look.
pub struct ReaderSlot<T> {
    published: Arc<Published<T>>,
    index: usize,
    /// Guards alive. Not atomic: it makes the slot `!Sync`, which the protocol needs.
    guards: Cell<usize>,
}

/// A look at a value, which lives at least as long.
pub struct Guard<'s, T> {
    slot: &'s ReaderSlot<T>,
    seen: *const Stamped<T>,
}

/// Too many replaced values wait for readers: the value, given back.
pub struct RetiredFull<T>(
    /// What was to be published.
    pub T,
);

impl<T> std::fmt::Debug for RetiredFull<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RetiredFull")
    }
}

impl<T: Send + Sync> Published<T> {
    /// Publishes a first value to at most `readers_max` readers.
    pub fn new(value: T, readers_max: usize) -> Arc<Published<T>> {
        Arc::new(Published {
            current: AtomicPtr::new(Box::into_raw(Box::new(Stamped { epoch: FIRST_EPOCH, value }))),
            epoch: AtomicU64::new(FIRST_EPOCH),
            slots: (0..readers_max).map(|_| CachePadded::default()).collect(),
            asymmetric: membarrier::register(),
            retired: Mutex::default(),
            retired_len: AtomicUsize::new(0),
        })
    }

    /// Takes a reader's slot; `None` when all are taken.
    pub fn register(self: &Arc<Self>) -> Option<ReaderSlot<T>> {
        let index = self.slots.iter().position(|slot| !slot.taken.swap(true, Ordering::Acquire))?;
        Some(ReaderSlot { published: Arc::clone(self), index, guards: Cell::new(0) })
    }

    /// Makes `value` the current one and returns its epoch. The one before is freed by a later [`Published::reclaim`].
    pub fn replace(&self, value: T) -> Result<u64, RetiredFull<T>> {
        if self.retired_len() >= RETIRED_MAX {
            self.reclaim();
        }
        let mut retired = self.lock();
        if retired.len() >= RETIRED_MAX {
            return Err(RetiredFull(value));
        }
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        let old = self.current.swap(Box::into_raw(Box::new(Stamped { epoch, value })), Ordering::AcqRel);
        self.epoch.store(epoch, Ordering::Release);
        retired.push_back(Retired(old));
        self.retired_len.store(retired.len(), Ordering::Relaxed);
        Ok(epoch)
    }

    /// Frees the replaced values that nobody looks at any more; returns how many. Drops them on the calling thread.
    pub fn reclaim(&self) -> usize {
        let mut retired = self.lock();
        if retired.is_empty() {
            return 0;
        }
        let oldest = self.oldest_seen();
        // SAFETY: retired values stay allocated until they are taken off this list, under its lock.
        let free = retired.iter().take_while(|retired| unsafe { (*retired.0).epoch } < oldest).count();
        let free: Vec<Retired<T>> = retired.drain(..free).collect();
        self.retired_len.store(retired.len(), Ordering::Relaxed);
        drop(retired);
        for Retired(value) in &free {
            // SAFETY: made by `Box::into_raw`, taken off the list once; nobody looks, by the module's proof.
            drop(unsafe { Box::from_raw(*value) });
        }
        free.len()
    }

    /// The least epoch under which a reader looks; `None` when none does. What only values before it could reach may
    /// be reused; on `None`, what only values before the current one could reach.
    pub fn oldest_pinned_epoch(&self) -> Option<u64> {
        // The lock keeps `epoch` still, so that "nobody" is told apart from a reader of the current epoch.
        let _owner = self.lock();
        self.least_slot()
    }

    /// Epoch of the current value.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Replaced values that are not freed yet.
    pub fn retired_len(&self) -> usize {
        self.retired_len.load(Ordering::Relaxed)
    }

    /// Values with a lower epoch are out of everybody's sight. Under the lock.
    fn oldest_seen(&self) -> u64 {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.least_slot().map_or(epoch, |least| least.min(epoch))
    }

    /// Owner's steps 3 and 4.
    fn least_slot(&self) -> Option<u64> {
        fence(Ordering::SeqCst);
        if self.asymmetric {
            membarrier::everywhere();
        }
        self.slots.iter().map(|slot| slot.epoch.load(Ordering::Acquire)).filter(|epoch| *epoch != 0).min()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Retired<T>>> {
        // Nothing of the user's runs under the lock, so a poisoned one is as good as new.
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let retired = self.retired.get_mut().unwrap_or_else(PoisonError::into_inner);
        let all = retired.drain(..).map(|Retired(value)| value).chain([*self.current.get_mut()]);
        for value in all {
            // SAFETY: each was made by `Box::into_raw` and is in one place only; every slot, and so every guard, holds
            // an `Arc` of this `Published`, so there is none.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T> ReaderSlot<T> {
    /// Looks at the current value. Guards may overlap; the oldest one decides what stays.
    #[inline]
    pub fn load(&self) -> Guard<'_, T> {
        let published = &*self.published;
        let guards = self.guards.get();
        if guards == 0 {
            let slot = &published.slots[self.index];
            slot.epoch.store(published.epoch.load(Ordering::Acquire), Ordering::Relaxed);
            if published.asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
        }
        self.guards.set(guards + 1);
        Guard { slot: self, seen: published.current.load(Ordering::Acquire) }
    }
}

impl<T> Drop for ReaderSlot<T> {
    fn drop(&mut self) {
        // Guards borrow the slot; one that was leaked left its epoch behind.
        let slot = &self.published.slots[self.index];
        slot.epoch.store(0, Ordering::Release);
        slot.taken.store(false, Ordering::Release);
    }
}

impl<T> Guard<'_, T> {
    /// The value's epoch.
    pub fn epoch(&self) -> u64 {
        self.stamped().epoch
    }

    fn stamped(&self) -> &Stamped<T> {
        // SAFETY: `load` read the pointer under a slot that this guard keeps set, so by the module's proof the value is
        // not freed before the guard is dropped; it is never written after it was published.
        unsafe { &*self.seen }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.stamped().value
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let left = self.slot.guards.get() - 1;
        self.slot.guards.set(left);
        if left == 0 {
            self.slot.published.slots[self.slot.index].epoch.store(0, Ordering::Release);
        }
    }
}

/// The owner's barrier that reaches into every thread of the process.
mod membarrier {
    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, see membarrier(2).
    #[cfg(all(target_os = "linux", not(miri)))]
    const EXPEDITED: libc::c_int = 1 << 3;
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
    #[cfg(all(target_os = "linux", not(miri)))]
    const REGISTER: libc::c_int = 1 << 4;

    #[cfg(all(target_os = "linux", not(miri)))]
    fn call(command: libc::c_int) -> libc::c_long {
        // SAFETY: membarrier(2) takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    /// Announces that the process will use it; false where the kernel (or a sandbox) has none.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) fn register() -> bool {
        call(REGISTER) == 0
    }

    /// Passes a full barrier on every running thread of the process.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) fn everywhere() {
        // It fails only for a process that did not register, and a child of fork inherits that.
        assert_eq!(call(EXPEDITED), 0, "membarrier(2) was registered");
    }

    #[cfg(any(not(target_os = "linux"), miri))]
    pub(super) fn register() -> bool {
        false
    }

    #[cfg(any(not(target_os = "linux"), miri))]
    pub(super) fn everywhere() {}
}
