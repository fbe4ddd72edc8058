//! Published values: no reader gets a freed one, and none is kept once no reader can hold it.
#![cfg(not(feature = "loom"))] // Loom's atomics work only inside its model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use store::readers::{Published, RETIRED_MAX};

const CANARY: u64 = 0x5afe_5afe_5afe_5afe;

/// Checks that it is alive, and counts drops.
struct Payload {
    canary: u64,
    number: u64,
    copy: Box<u64>,
    drops: Arc<AtomicUsize>,
}

impl Payload {
    fn new(number: u64, drops: &Arc<AtomicUsize>) -> Payload {
        Payload { canary: CANARY, number, copy: Box::new(number), drops: Arc::clone(drops) }
    }

    #[track_caller]
    fn check(&self) -> u64 {
        assert_eq!(self.canary, CANARY, "looked at a freed value");
        assert_eq!(*self.copy, self.number);
        self.number
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.check();
        self.canary = 0;
        *self.copy = u64::MAX;
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// Publishes a value, for which there is room; returns its epoch.
#[track_caller]
fn replace<T: Send + Sync>(published: &Published<T>, value: T) -> u64 {
    published.reserve().expect("room").replace(value)
}

#[test]
fn a_value_stays_while_somebody_looks_and_goes_afterwards() {
    let drops = Arc::new(AtomicUsize::new(0));
    let published = Published::new(Payload::new(1, &drops), 2);
    let slot = published.register().expect("a free slot");
    let first = slot.load();
    assert_eq!(first.epoch(), 1);
    assert_eq!(replace(&published, Payload::new(2, &drops)), 2);
    let nested = slot.load();
    assert_eq!((published.reclaim(), first.check(), nested.check(), nested.epoch()), (0, 1, 2, 2));
    drop(first);
    assert_eq!(published.reclaim(), 0, "the nested look still pins");
    drop(nested);
    assert_eq!((published.reclaim(), drops.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(published.retired_len(), 0);
    drop((slot, published));
    assert_eq!(drops.load(Ordering::Relaxed), 2, "each value is dropped once");
}

#[test]
fn slots_are_bounded_and_come_back() {
    let published = Published::new(0, 2);
    let first = published.register();
    let second = published.register();
    assert!(first.is_some() && second.is_some() && published.register().is_none());
    drop(first);
    assert!(published.register().is_some());
}

#[test]
fn replaced_values_that_wait_are_bounded() {
    let published = Published::new(0, RETIRED_MAX);
    let slots: Vec<_> = (0..RETIRED_MAX).map(|_| published.register().expect("a free slot")).collect();
    let mut guards = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        guards.push(slot.load());
        replace(&published, number + 1);
    }
    assert!(published.reserve().is_none(), "the list is full");
    assert_eq!((*guards[0], published.retired_len()), (0, RETIRED_MAX));
    guards.pop();
    replace(&published, 999);
    assert_eq!(*slots[RETIRED_MAX - 1].load(), 999);
}

#[test]
fn a_reader_that_stays_keeps_its_own_value_only() {
    let drops = Arc::new(AtomicUsize::new(0));
    let published = Published::new(Payload::new(1, &drops), 1);
    let slot = published.register().expect("a free slot");
    let guard = slot.load();
    for number in 2..2 + 10 * RETIRED_MAX as u64 {
        replace(&published, Payload::new(number, &drops));
    }
    published.reclaim();
    assert_eq!((guard.check(), published.retired_len()), (1, 1));
    drop(guard);
    assert_eq!((published.reclaim(), published.retired_len()), (1, 0));
}

#[test]
fn readers_never_look_at_a_freed_value_while_the_owner_replaces() {
    let drops = Arc::new(AtomicUsize::new(0));
    let published = Published::new(Payload::new(1, &drops), 4);
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (published, done) = (Arc::clone(&published), Arc::clone(&done));
            std::thread::spawn(move || {
                let mut newest = 0;
                while !done.load(Ordering::Relaxed) {
                    let slot = published.register().expect("a free slot");
                    for _ in 0..if cfg!(miri) { 5 } else { 1000 } {
                        let outer = slot.load();
                        let seen = outer.check();
                        let inner = slot.load();
                        assert!(seen >= newest && inner.check() >= seen, "nobody goes back in time");
                        newest = seen;
                        drop(outer);
                        inner.check();
                    }
                }
            })
        })
        .collect();
    let start = Instant::now();
    let mut number = 1;
    while start.elapsed() < Duration::from_millis(1500) && number < if cfg!(miri) { 60 } else { u64::MAX } {
        if let Some(place) = published.reserve() {
            number += 1;
            place.replace(Payload::new(number, &drops));
        }
        published.reclaim();
    }
    done.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().expect("the reader's checks hold"));
    published.reclaim();
    assert_eq!((published.retired_len(), drops.load(Ordering::Relaxed) as u64), (0, number - 1));
}

#[test]
fn a_reserved_place_is_kept_for_its_value_and_comes_back_unused() {
    let published = Published::new(0, 1);
    let slot = published.register().expect("a free slot");
    let oldest = slot.load();
    replace(&published, 1);
    // With both guards the reader keeps all values from the first on.
    let newer = slot.load();
    let place = published.reserve().expect("room");
    for number in 2..RETIRED_MAX {
        replace(&published, number);
    }
    assert!(published.reserve().is_none(), "the last place is reserved");
    drop(place);
    let place = published.reserve().expect("it came back");
    assert!(published.reserve().is_none());
    assert_eq!(place.replace(64), RETIRED_MAX as u64 + 1);
    assert_eq!((published.retired_len(), published.reserve().is_none()), (RETIRED_MAX, true));
    drop((oldest, newer));
    assert!(published.reserve().is_some());
    assert_eq!((*slot.load(), published.retired_len()), (64, 0));
}
