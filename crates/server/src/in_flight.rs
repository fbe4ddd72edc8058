//! What waits and may not grow without bound: writes and queries that were handed over and are not answered yet, large
//! replies that their clients have not taken. Past the bound of its kind a request is told to come again.
//!
//! Of large replies it is known which connection holds how much ([`Account`]). Before the bound is reached those pay that
//! hold most for nothing, bytes times the time since their client last took a piece, the sums of addresses first: their
//! connections are ended. That takes a turn of their loops, so it begins while there is some room left. An eighth of the
//! bound is for small replies alone, so that those who do not read large ones never refuse them.

use http::Cutter;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is more than this is a large reply.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// This part of the bound is for small replies.
const PARTS_FOR_SMALL: usize = 8;
/// With less room than this part of the bound those that hold most are ended.
const PARTS_FREE: usize = 4;
/// A client that took something so lately does not hold it for nothing.
const BEHIND_MIN: Duration = Duration::from_millis(100);

/// Counts bytes under a bound. Cheap to clone.
#[derive(Clone)]
pub(crate) struct InFlight {
    counted: Arc<Counted>,
    bytes_max: usize,
}

#[derive(Default)]
struct Counted {
    bytes: AtomicUsize,
    holders: Mutex<Holders>,
}

/// Bound: one entry for each reply that is counted.
#[derive(Default)]
struct Holders {
    by_number: HashMap<u64, Holder>,
    next: u64,
}

struct Holder {
    cutter: Cutter,
    bytes: usize,
    /// When its client last took a piece.
    since: Instant,
    /// Its connection is being ended.
    is_cut: bool,
}

/// Some counted bytes; given back when dropped.
pub(crate) struct Taken {
    from: Arc<Counted>,
    bytes: usize,
    holder: Option<u64>,
}

/// What one reply holds of the bound.
pub(crate) struct Account {
    of: InFlight,
    number: u64,
}

impl Counted {
    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight {
    pub(crate) fn new(bytes_max: usize) -> InFlight {
        InFlight { counted: Arc::default(), bytes_max }
    }

    /// Counts so many bytes, unless that would exceed the bound.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        self.take_for(bytes, None, self.bytes_max)
    }

    /// The same where not more than so many are to be counted afterwards.
    pub(crate) fn take_up_to(&self, bytes: usize, bytes_max: usize) -> Option<Taken> {
        // Only looked at first: who asks often would else take from others what it gives back at once.
        (self.bytes() + bytes <= bytes_max).then(|| self.take_for(bytes, None, bytes_max)).flatten()
    }

    /// Opens the account of a reply, whose connection is ended by `cutter` where it holds most for nothing.
    pub(crate) fn account(&self, cutter: Cutter) -> Account {
        let mut holders = self.counted.lock();
        let number = holders.next;
        holders.next += 1;
        let holder = Holder { cutter, bytes: 0, since: Instant::now(), is_cut: false };
        holders.by_number.insert(number, holder);
        Account { of: self.clone(), number }
    }

    fn take_for(&self, bytes: usize, holder: Option<u64>, bytes_max: usize) -> Option<Taken> {
        let before = self.counted.bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = Taken { from: Arc::clone(&self.counted), bytes, holder };
        if let Some(holder) = holder {
            self.counted.note(holder, |held| held + bytes);
        }
        let (all, enough) = (before + bytes, self.bytes_max - self.bytes_max / PARTS_FREE);
        if all > enough {
            self.counted.end_hoarders(all - enough);
        }
        (all <= bytes_max).then_some(taken)
    }

    /// The bound.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes counted now.
    pub(crate) fn bytes(&self) -> usize {
        self.counted.bytes.load(Ordering::Relaxed)
    }
}

impl Counted {
    fn note(&self, holder: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(holder) = self.lock().by_number.get_mut(&holder) {
            holder.bytes = change(holder.bytes);
        }
    }

    /// Ends those that hold most for nothing, until so many bytes are on their way back.
    #[cold]
    fn end_hoarders(&self, wanted: usize) {
        let now = Instant::now();
        let mut holders = self.lock();
        let mut coming: usize = holders.by_number.values().filter(|holder| holder.is_cut).map(|cut| cut.bytes).sum();
        if coming >= wanted {
            return;
        }
        let mut by_host: HashMap<IpAddr, u128> = HashMap::new();
        let mut hoarders = Vec::new();
        for (number, holder) in &holders.by_number {
            let behind = now.saturating_duration_since(holder.since);
            if holder.bytes > 0 && !holder.is_cut && behind >= BEHIND_MIN {
                let (weight, host) = (holder.bytes as u128 * behind.as_micros(), holder.cutter.host());
                *by_host.entry(host).or_default() += weight;
                hoarders.push((host, weight, *number));
            }
        }
        hoarders.sort_by_key(|(host, weight, _)| std::cmp::Reverse((by_host.get(host).copied(), *weight)));
        for (_, _, number) in hoarders {
            if coming >= wanted {
                break;
            }
            let Some(holder) = holders.by_number.get_mut(&number) else { continue };
            holder.is_cut = true;
            holder.cutter.send();
            coming += holder.bytes;
        }
    }
}

impl Account {
    /// Counts so many bytes more, unless that would exceed the bound, or for a large reply what is left to small ones.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        let of = &self.of;
        let is_small = bytes <= SMALL_BYTES_MAX;
        let bytes_max = if is_small { of.bytes_max } else { of.bytes_max - of.bytes_max / PARTS_FOR_SMALL };
        of.take_for(bytes, Some(self.number), bytes_max)
    }

    /// The client took a piece.
    pub(crate) fn went_on(&self) {
        if let Some(holder) = self.of.counted.lock().by_number.get_mut(&self.number) {
            holder.since = Instant::now();
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.of.counted.lock().by_number.remove(&self.number);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(holder) = self.holder {
            self.from.note(holder, |held| held.saturating_sub(self.bytes));
        }
    }
}

#[cfg(test)]
mod bound {
    use super::InFlight;

    #[test]
    fn what_exceeds_the_bound_is_refused_and_what_ends_makes_room() {
        let flight = InFlight::new(10);
        let first = flight.take(7);
        assert!(first.is_some());
        assert!(flight.take(4).is_none());
        assert_eq!(flight.bytes(), 7);
        drop(first);
        assert!(flight.take(10).is_some());
        assert_eq!(flight.bytes(), 0);
    }
}
