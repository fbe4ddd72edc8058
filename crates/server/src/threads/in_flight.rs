//! Bounded memory of waiting work: writes and queries that were submitted and are not answered yet, and large replies that their
//! clients have not received. Above the bound of its kind a request is answered with 503.
//!
//! For large replies it is known how much each connection holds ([`Account`]). Before the bound is reached, the connections that
//! hold most without progress are closed, ranked by bytes times the time since their client last took a piece; sums of addresses
//! are compared first. Closing takes a tick of their loops, so it begins while there is some room left. An eighth of the bound is
//! reserved for small replies, so that large ones never displace them.

use http::Cutter;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Size from which on a reply is large.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// This part of the bound is reserved for small replies.
const PARTS_FOR_SMALL: usize = 8;
/// With less room than this part of the bound, the largest holders are closed.
const PARTS_FREE: usize = 4;
/// A client that took a piece within this time makes progress.
const BEHIND_MIN: Duration = Duration::from_millis(100);

/// Closes a connection that holds memory without progress.
pub(crate) trait Cut {
    fn cut(&self);
    /// The address under which its client counts.
    fn host(&self) -> IpAddr;
}

impl Cut for Cutter {
    fn cut(&self) {
        self.send();
    }

    fn host(&self) -> IpAddr {
        Cutter::host(self)
    }
}

/// Counts bytes against a bound. Cheap to clone.
pub(crate) struct InFlight<C: Cut = Cutter> {
    counted: Arc<Counted<C>>,
    bytes_max: usize,
}

impl<C: Cut> Clone for InFlight<C> {
    fn clone(&self) -> InFlight<C> {
        InFlight { counted: Arc::clone(&self.counted), bytes_max: self.bytes_max }
    }
}

struct Counted<C> {
    bytes: AtomicUsize,
    holders: Mutex<Holders<C>>,
}

/// Bound: one entry for each counted reply.
struct Holders<C> {
    by_number: HashMap<u64, Holder<C>>,
    next: u64,
}

struct Holder<C> {
    cutter: C,
    bytes: usize,
    /// When its client last took a piece.
    since: Instant,
    /// Its connection is being closed.
    is_cut: bool,
}

/// Counted bytes; released when dropped.
pub(crate) struct Taken<C: Cut = Cutter> {
    from: Arc<Counted<C>>,
    bytes: usize,
    holder: Option<u64>,
}

/// Bytes that one reply holds of the bound.
pub(crate) struct Account<C: Cut = Cutter> {
    of: InFlight<C>,
    number: u64,
}

impl<C: Cut> Counted<C> {
    fn lock(&self) -> MutexGuard<'_, Holders<C>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Cut> InFlight<C> {
    pub(crate) fn new(bytes_max: usize) -> InFlight<C> {
        let holders = Holders { by_number: HashMap::new(), next: 0 };
        let counted = Counted { bytes: AtomicUsize::new(0), holders: Mutex::new(holders) };
        InFlight { counted: Arc::new(counted), bytes_max }
    }

    /// Counts bytes, unless that would exceed the bound.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken<C>> {
        self.take_for(bytes, None, self.bytes_max)
    }

    /// The same with a lower bound.
    pub(crate) fn take_up_to(&self, bytes: usize, bytes_max: usize) -> Option<Taken<C>> {
        // Checked before it is counted: a frequent caller would otherwise briefly take bytes from others.
        (self.bytes() + bytes <= bytes_max).then(|| self.take_for(bytes, None, bytes_max)).flatten()
    }

    /// Opens the account of a reply, whose connection is closed by `cutter` if it holds most without progress.
    pub(crate) fn account(&self, cutter: C) -> Account<C> {
        let mut holders = self.counted.lock();
        let number = holders.next;
        holders.next += 1;
        let holder = Holder { cutter, bytes: 0, since: Instant::now(), is_cut: false };
        holders.by_number.insert(number, holder);
        Account { of: self.clone(), number }
    }

    fn take_for(&self, bytes: usize, holder: Option<u64>, bytes_max: usize) -> Option<Taken<C>> {
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

impl<C: Cut> Counted<C> {
    fn note(&self, holder: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(holder) = self.lock().by_number.get_mut(&holder) {
            holder.bytes = change(holder.bytes);
        }
    }

    /// Closes the largest holders without progress, until this many bytes are being released.
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
            holder.cutter.cut();
            coming += holder.bytes;
        }
    }
}

impl<C: Cut> Account<C> {
    /// Counts further bytes, unless that would exceed the bound, or for a large reply the part that is not reserved for small
    /// ones.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken<C>> {
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

impl<C: Cut> Drop for Account<C> {
    fn drop(&mut self) {
        self.of.counted.lock().by_number.remove(&self.number);
    }
}

impl<C: Cut> Drop for Taken<C> {
    fn drop(&mut self) {
        self.from.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(holder) = self.holder {
            self.from.note(holder, |held| held.saturating_sub(self.bytes));
        }
    }
}

#[cfg(test)]
mod bound {
    use super::{BEHIND_MIN, Cut, InFlight, PARTS_FOR_SMALL, SMALL_BYTES_MAX, Taken};
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A connection of a client, and whether it was closed.
    struct Connection(IpAddr, Arc<AtomicBool>);

    impl Cut for Connection {
        fn cut(&self) {
            self.1.store(true, Ordering::Relaxed);
        }

        fn host(&self) -> IpAddr {
            self.0
        }
    }

    fn connection(host: u8) -> (Connection, Arc<AtomicBool>) {
        let is_cut = Arc::<AtomicBool>::default();
        (Connection([10, 0, 0, host].into(), Arc::clone(&is_cut)), is_cut)
    }

    #[test]
    fn what_large_replies_leave_is_for_small_ones() {
        let flight = InFlight::new(PARTS_FOR_SMALL * 4 * SMALL_BYTES_MAX);
        let (large, small) = (flight.account(connection(1).0), flight.account(connection(2).0));
        let piece = 2 * SMALL_BYTES_MAX;
        let mut held: Vec<Taken<Connection>> = std::iter::from_fn(|| large.take(piece)).collect();
        assert_eq!(held.len(), (PARTS_FOR_SMALL - 1) * 2, "all but the part for small replies");
        assert!(large.take(SMALL_BYTES_MAX + 1).is_none());
        for _ in 0..4 {
            held.push(small.take(SMALL_BYTES_MAX).expect("there is a part for small replies"));
        }
        assert!(small.take(1).is_none());
        drop(held);
        assert_eq!(flight.bytes(), 0);
    }

    #[test]
    fn the_address_that_holds_most_for_nothing_is_cut_though_another_connection_holds_more() {
        let flight = InFlight::new(1000);
        let accounts: Vec<_> = [1, 2, 2, 2, 3]
            .map(|host| {
                let (connection, is_cut) = connection(host);
                (flight.account(connection), is_cut)
            })
            .into();
        let held: Vec<_> =
            accounts.iter().zip([300, 150, 140, 130, 10]).map(|(one, bytes)| one.0.take(bytes)).collect();
        assert!(held.iter().all(Option::is_some), "with 730 bytes a quarter is free: nobody is cut");
        std::thread::sleep(BEHIND_MIN * 2);
        let more = accounts[4].0.take(100);
        assert!(more.is_some());
        let cut: Vec<bool> = accounts.iter().map(|one| one.1.load(Ordering::Relaxed)).collect();
        assert_eq!(cut, [false, true, false, false, false], "the largest one of the address that holds 420");
    }

    #[test]
    fn what_exceeds_the_bound_is_refused_and_what_ends_makes_room() {
        let flight = InFlight::<Connection>::new(10);
        let first = flight.take(7);
        assert!(first.is_some());
        assert!(flight.take(4).is_none());
        assert_eq!(flight.bytes(), 7);
        drop(first);
        assert!(flight.take(10).is_some());
        assert_eq!(flight.bytes(), 0);
    }
}
