//! Number of open connections, in total and by address, over all loops.
//!
//! Used once for each connection, never for a request, so a lock is cheap enough.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::ClientLimits;

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts open connections. Bound: one entry for each address that has an open connection.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    open: Mutex<Open>,
}

impl Addresses {
    /// Admits a connection unless a limit is reached. The connection counts until the admission is dropped.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, limits: &ClientLimits) -> Option<Admission> {
        let mut open = self.lock();
        if open.all >= limits.connections_max {
            return None;
        }
        let count = open.by_address.entry(address).or_default();
        if *count >= limits.connections_per_address_max {
            return None;
        }
        *count += 1;
        open.all += 1;
        Some(Admission { addresses: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permission of one connection to be open.
#[derive(Debug)]
pub(crate) struct Admission {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open = self.addresses.lock();
        open.all -= 1;
        if let Some(count) = open.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_the_whole_have_limits_and_get_their_places_back() {
        let limits = ClientLimits { connections_max: 3, connections_per_address_max: 2, ..ClientLimits::default() };
        let addresses = Arc::new(Addresses::default());
        let [a, b] = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        let first = addresses.admit(a, &limits);
        let _second = addresses.admit(a, &limits).unwrap();
        assert!(addresses.admit(a, &limits).is_none());
        let _third = addresses.admit(b, &limits).unwrap();
        assert!(addresses.admit(b, &limits).is_none());
        drop(first);
        assert!(addresses.admit(b, &limits).is_some());
        assert_eq!(addresses.lock().by_address.len(), 2);
    }
}
