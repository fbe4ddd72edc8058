//! Bounded memory of waiting work: writes and queries that were submitted and are not answered yet, and large replies that their
//! clients have not received. Above the bound of its kind a request is answered with 503.
//!
//! For large replies one ledger knows who holds what ([`Account`]): replies that wait for their clients, and readers of the log
//! for consumers of changes. Before the bound is reached, the holders without progress let go, the largest first, ranked by bytes
//! times the time since they last made progress; sums of addresses are compared first. Letting go takes a tick of a loop, so it
//! begins while there is some room left. A holder that asks for more never makes a smaller one let go: it waits or is refused. An
//! eighth of the bound is reserved for small replies, so that large ones never displace them.

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
/// With less room than this part of the bound, the largest holders let go.
const PARTS_FREE: usize = 4;
/// A holder that made progress within this time is not asked to let go.
const BEHIND_MIN: Duration = Duration::from_millis(100);
/// Least time between two lines of the log about a shortage.
const REPORTS: Duration = Duration::from_secs(1);

/// Makes a holder release its memory: closes a connection, or withdraws what can be made again.
pub(crate) trait Cut: Send {
    /// Begins to release; called under the ledger's lock.
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
#[derive(Clone)]
pub(crate) struct InFlight {
    counted: Arc<Counted>,
    bytes_max: usize,
}

struct Counted {
    bytes: AtomicUsize,
    holders: Mutex<Holders>,
}

/// Bound: one entry for each account.
#[derive(Default)]
struct Holders {
    by_number: HashMap<u64, Holder>,
    next: u64,
    /// When the last line about a shortage was logged.
    reported: Option<Instant>,
}

struct Holder {
    cutter: Box<dyn Cut>,
    bytes: usize,
    /// Since when it holds bytes without progress.
    since: Instant,
    /// It was asked to let go.
    is_cut: bool,
}

impl Holder {
    fn holds(&mut self, bytes: usize) {
        if self.bytes == 0 {
            (self.since, self.is_cut) = (Instant::now(), false);
        }
        self.bytes = bytes;
    }
}

/// Counted bytes; released when dropped.
pub(crate) struct Taken {
    from: Arc<Counted>,
    bytes: usize,
    holder: Option<u64>,
}

/// Bytes that one holder has of the bound.
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
        let counted = Counted { bytes: AtomicUsize::new(0), holders: Mutex::default() };
        InFlight { counted: Arc::new(counted), bytes_max }
    }

    /// Counts bytes, unless that would exceed the bound.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        self.take_for(bytes, None, self.bytes_max)
    }

    /// The same with a lower bound.
    pub(crate) fn take_up_to(&self, bytes: usize, bytes_max: usize) -> Option<Taken> {
        // Checked before it is counted: a frequent caller would otherwise briefly take bytes from others.
        (self.bytes() + bytes <= bytes_max).then(|| self.take_for(bytes, None, bytes_max)).flatten()
    }

    /// Opens the account of a holder, which `cutter` makes let go if it holds most without progress.
    pub(crate) fn account(&self, cutter: impl Cut + 'static) -> Account {
        let mut holders = self.counted.lock();
        let number = holders.next;
        holders.next += 1;
        let holder = Holder { cutter: Box::new(cutter), bytes: 0, since: Instant::now(), is_cut: false };
        holders.by_number.insert(number, holder);
        Account { of: self.clone(), number }
    }

    fn take_for(&self, bytes: usize, holder: Option<u64>, bytes_max: usize) -> Option<Taken> {
        if bytes > bytes_max {
            // No room helps it.
            return None;
        }
        let before = self.counted.bytes.fetch_add(bytes, Ordering::Relaxed);
        let (all, enough) = (before + bytes, self.bytes_max - self.bytes_max / PARTS_FREE);
        if all > enough {
            self.counted.make_room(all - enough, holder);
        }
        if all > bytes_max {
            self.counted.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        if let Some(holder) = holder {
            self.counted.note(holder, |held| held + bytes);
        }
        Some(Taken { from: Arc::clone(&self.counted), bytes, holder })
    }

    /// Logs that a request is refused, at most once a second.
    #[cold]
    pub(crate) fn report_refusal(&self, wanted: usize) {
        if self.counted.lock().may_report() {
            let (bytes, bytes_max) = (self.bytes(), self.bytes_max);
            tracing::warn!(
                wanted,
                bytes,
                bytes_max,
                "requests are answered 503: the memory for large replies is in use"
            );
        }
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

impl Holders {
    fn may_report(&mut self) -> bool {
        let now = Instant::now();
        let may = self.reported.is_none_or(|last| now.saturating_duration_since(last) >= REPORTS);
        if may {
            self.reported = Some(now);
        }
        may
    }

    /// Holders without progress, in the order in which they let go.
    fn ranked(&self) -> Vec<u64> {
        let now = Instant::now();
        let mut by_host: HashMap<IpAddr, u128> = HashMap::new();
        let mut ranked = Vec::new();
        for (number, holder) in &self.by_number {
            let behind = now.saturating_duration_since(holder.since);
            if holder.bytes > 0 && !holder.is_cut && behind >= BEHIND_MIN {
                let (weight, host) = (holder.bytes as u128 * behind.as_micros(), holder.cutter.host());
                *by_host.entry(host).or_default() += weight;
                ranked.push((host, weight, *number));
            }
        }
        ranked.sort_by_key(|(host, weight, _)| std::cmp::Reverse((by_host.get(host).copied(), *weight)));
        ranked.into_iter().map(|(_, _, number)| number).collect()
    }
}

impl Counted {
    fn note(&self, holder: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(holder) = self.lock().by_number.get_mut(&holder) {
            holder.holds(change(holder.bytes));
        }
    }

    /// Makes the largest holders without progress let go, until this many bytes are being released. If the one that asks for room
    /// is the largest that is left, it has to wait.
    #[cold]
    fn make_room(&self, wanted: usize, asker: Option<u64>) {
        let mut holders = self.lock();
        let mut coming: usize = holders.by_number.values().filter(|holder| holder.is_cut).map(|cut| cut.bytes).sum();
        if coming >= wanted {
            return;
        }
        let mut largest = None;
        for number in holders.ranked() {
            if coming >= wanted || Some(number) == asker {
                break;
            }
            let Some(holder) = holders.by_number.get_mut(&number) else { continue };
            holder.is_cut = true;
            holder.cutter.cut();
            coming += holder.bytes;
            largest = largest.or(Some((holder.cutter.host(), holder.bytes)));
        }
        let may_report = largest.is_some() && holders.may_report();
        drop(holders);
        if let Some((client, bytes)) = largest.filter(|_| may_report) {
            let what =
                "the memory for large replies is short: the clients that hold most of it without reading lose it";
            tracing::warn!(%client, bytes, "{what}");
        }
    }
}

impl Account {
    /// Counts further bytes, unless that would exceed the bound, or for a large reply the part that is not reserved for small
    /// ones.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        let of = &self.of;
        let is_small = bytes <= SMALL_BYTES_MAX;
        let bytes_max = if is_small { of.bytes_max } else { of.bytes_max - of.bytes_max / PARTS_FOR_SMALL };
        of.take_for(bytes, Some(self.number), bytes_max)
    }

    /// The holder made progress: its client took a piece.
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

impl Taken {
    /// Corrects the number of bytes, without a check: their owner has found out how many it holds.
    pub(crate) fn correct(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.from.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.from.bytes.fetch_sub(before, Ordering::Relaxed);
        if let Some(holder) = self.holder {
            self.from.note(holder, |held| held + bytes - before);
        }
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
        let mut held: Vec<Taken> = std::iter::from_fn(|| large.take(piece)).collect();
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
    fn the_largest_holder_waits_for_more_and_a_smaller_one_is_not_cut_for_it() {
        let flight = InFlight::new(1000);
        let ((large, large_is_cut), (small, small_is_cut)) = (connection(1), connection(2));
        let (large, small) = (flight.account(large), flight.account(small));
        let held = (large.take(600), small.take(100));
        assert!(held.0.is_some() && held.1.is_some());
        std::thread::sleep(BEHIND_MIN * 2);
        assert!(large.take(400).is_none(), "it would hold more than there is");
        assert_eq!(flight.bytes(), 700, "what was refused is not held");
        let is_cut = || [&large_is_cut, &small_is_cut].map(|is_cut| is_cut.load(Ordering::Relaxed));
        assert_eq!(is_cut(), [false, false], "nobody else holds more");
        assert!(small.take(150).is_some());
        assert_eq!(is_cut(), [true, false], "with 850 bytes less than a quarter is free");
    }

    #[test]
    fn an_account_that_held_nothing_for_long_is_no_hoarder_with_its_first_bytes() {
        let flight = InFlight::new(1000);
        let shared = flight.take(700).expect("there is room");
        let (query, is_cut) = connection(1);
        let query = flight.account(query);
        std::thread::sleep(BEHIND_MIN * 2);
        let first = query.take(100);
        assert!(first.is_some() && query.take(100).is_some());
        assert!(!is_cut.load(Ordering::Relaxed), "it has held bytes for no time");
        drop((shared, first));
    }

    #[test]
    fn nobody_is_cut_for_what_exceeds_the_whole_bound() {
        let flight = InFlight::new(1000);
        let ((holder, is_cut), (asker, _)) = (connection(1), connection(2));
        let (holder, asker) = (flight.account(holder), flight.account(asker));
        let held = holder.take(500);
        std::thread::sleep(BEHIND_MIN * 2);
        assert!(asker.take(1001).is_none());
        assert!(held.is_some() && !is_cut.load(Ordering::Relaxed), "no room would have been enough");
    }

    #[test]
    fn corrected_bytes_are_released_as_corrected() {
        let flight = InFlight::new(1000);
        let (client, _) = connection(1);
        let account = flight.account(client);
        let mut taken = account.take(100).expect("there is room");
        for bytes in [700, 20] {
            taken.correct(bytes);
            assert_eq!(flight.bytes(), bytes);
        }
        drop(taken);
        assert_eq!(flight.bytes(), 0);
    }

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
