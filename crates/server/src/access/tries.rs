//! Wrong tokens by address. After a burst, only one wrong token a second of an address is answered with 401; the others are
//! answered with 429. Valid tokens are not counted here, so no client is refused because of other clients at its address.
//!
//! The table is bounded. An IPv6 address counts by its first 64 bits, because a host may use all addresses of its network. Behind
//! a proxy of `[server] trusted_proxies` each client has its own address; behind any other proxy all have the proxy's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tokens that an address may send at once.
const BURST: u32 = 10;
/// Time after which an address may send one more.
const REFILL: Duration = Duration::from_secs(1);
/// Addresses in the table; beyond that the one with the fewest attempts is evicted.
const ADDRESSES_MAX: usize = 4096;

/// The addresses that have sent wrong tokens lately.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// For each address, the time at which it may send a whole burst again.
    paid_at: Mutex<HashMap<IpAddr, Instant>>,
    failed: AtomicU64,
    slowed: AtomicU64,
}

impl Tries {
    /// Counts a wrong token of this address. `false`: the address has sent too many recently.
    pub(crate) fn failed(&self, address: IpAddr) -> bool {
        self.failed_at(address, Instant::now())
    }

    /// Wrong tokens, and those that were answered with 429.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.failed.load(Ordering::Relaxed), self.slowed.load(Ordering::Relaxed))
    }

    fn failed_at(&self, address: IpAddr, now: Instant) -> bool {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut table = self.lock();
        let address = counted(address);
        if table.len() >= ADDRESSES_MAX && !table.contains_key(&address) {
            table.retain(|_, paid_at| *paid_at > now);
            let least = table.iter().min_by_key(|(_, paid_at)| **paid_at).map(|(address, _)| *address);
            if let Some(least) = least.filter(|_| table.len() >= ADDRESSES_MAX) {
                table.remove(&least);
            }
        }
        let paid_at = table.entry(address).or_insert(now);
        let is_within = paid_at.saturating_duration_since(now) <= (BURST - 1) * REFILL;
        if is_within {
            *paid_at = (*paid_at).max(now) + REFILL;
        } else {
            self.slowed.fetch_add(1, Ordering::Relaxed);
        }
        is_within
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.paid_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address under which it counts.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_slowed_after_its_burst_and_others_are_not() {
        let (tries, now) = (Tries::default(), Instant::now());
        for _ in 0..BURST {
            assert!(tries.failed_at(ip("10.0.0.1"), now));
        }
        assert!(!tries.failed_at(ip("10.0.0.1"), now));
        assert!(!tries.failed_at(ip("::ffff:10.0.0.1"), now));
        assert!(tries.failed_at(ip("10.0.0.2"), now));
        // One more is allowed after each second, and only one.
        let later = now + REFILL;
        assert!(tries.failed_at(ip("10.0.0.1"), later));
        assert!(!tries.failed_at(ip("10.0.0.1"), later));
        // Time without attempts never permits more than a burst.
        let much_later = now + 1000 * REFILL;
        for _ in 0..BURST {
            assert!(tries.failed_at(ip("10.0.0.1"), much_later));
        }
        assert!(!tries.failed_at(ip("10.0.0.1"), much_later));
        assert_eq!(tries.counts(), (u64::from(2 * BURST) + 6, 4));
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_as_one() {
        let (tries, now) = (Tries::default(), Instant::now());
        for number in 0..BURST {
            assert!(tries.failed_at(ip(&format!("2001:db8::{number}")), now));
        }
        assert!(!tries.failed_at(ip("2001:db8::ffff"), now));
        assert!(tries.failed_at(ip("2001:db8:0:1::1"), now));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_those_who_try_most() {
        let (tries, now) = (Tries::default(), Instant::now());
        for _ in 0..BURST {
            tries.failed_at(ip("192.0.2.1"), now);
        }
        for number in 0..2 * ADDRESSES_MAX as u32 {
            tries.failed_at(IpAddr::V4((0x0a00_0000 + number).into()), now);
        }
        assert_eq!(tries.lock().len(), ADDRESSES_MAX);
        assert!(!tries.failed_at(ip("192.0.2.1"), now));
        // The address may send a whole burst again, so its entry is removed.
        tries.failed_at(ip("192.0.2.2"), now + 100 * REFILL);
        assert_eq!(tries.lock().len(), 1);
    }
}
