//! The ledger of open connections, in total and by address, over all loops.
//!
//! Each address with open connections has the same share of the places. If all places are taken, a connection of an address below
//! its share is admitted all the same, and one of an address above its share leaves ([`Admission::has_to_leave`]): the address
//! that holds most pays. Any other further connection gets one of a few reserved places. There only vital requests are answered;
//! another one waits for a place, for a short time.
//!
//! Connections of another listener ([`crate::HttpServer::beside`]) have no address here. Such a connection takes a place at once,
//! and an address above its share leaves for it. If even the reserved places are taken, as many more are left for that listener.
//!
//! Used once for each connection, and while there are too many, never for a request. So a lock is cheap enough.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::{ConnectionId, Loop, Message};

use crate::limits::ClientLimits;

/// Message to a connection in a reserved place: there is a place for it.
pub(crate) struct PlaceIsFree;

#[derive(Default)]
struct Open {
    all: usize,
    /// The part of `all` in reserved places.
    reserved: usize,
    /// Connections that were told to leave for others, and have not left yet.
    leaving: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Connections in reserved places whose request waits. Bound: the reserved places.
    waiting: VecDeque<(Loop, ConnectionId)>,
}

/// Counts open connections. Bound: one entry for each address that has an open connection.
pub(crate) struct Addresses {
    places_max: usize,
    reserved_max: usize,
    per_address_max: usize,
    open: Mutex<Open>,
}

impl Addresses {
    pub(crate) fn new(limits: &ClientLimits) -> Arc<Self> {
        Arc::new(Addresses {
            places_max: limits.connections_max,
            reserved_max: limits.connections_reserved,
            per_address_max: limits.connections_per_address_max,
            open: Mutex::default(),
        })
    }

    /// Admits a connection unless a limit is reached. The connection counts until the admission is dropped. `None`: it is of
    /// another listener.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Admission> {
        let mut open = self.lock();
        let Some(address) = address else {
            if open.all >= self.places_max + 2 * self.reserved_max {
                return None;
            }
            open.all += 1;
            return Some(Admission { addresses: Arc::clone(self), address, is_reserved: false, is_leaving: false });
        };
        let known = open.by_address.len() + usize::from(!open.by_address.contains_key(&address));
        let count = open.by_address.get(&address).copied().unwrap_or_default();
        if count >= self.per_address_max || open.all >= self.places_max + self.reserved_max {
            return None;
        }
        let is_reserved = open.in_places() >= self.places_max && count >= self.places_max / known;
        open.all += 1;
        open.reserved += usize::from(is_reserved);
        open.by_address.insert(address, count + 1);
        Some(Admission { addresses: Arc::clone(self), address: Some(address), is_reserved, is_leaving: false })
    }

    /// Whether more connections are open than there are places.
    pub(crate) fn are_short(&self) -> bool {
        self.lock().all > self.places_max
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn in_places(&self) -> usize {
        self.all - self.reserved
    }
}

/// Permission of one connection to be open.
pub(crate) struct Admission {
    addresses: Arc<Addresses>,
    /// `None` for a connection of another listener.
    address: Option<IpAddr>,
    is_reserved: bool,
    /// Counted in [`Open::leaving`].
    is_leaving: bool,
}

impl Admission {
    /// Whether the connection has a reserved place only.
    #[inline]
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Takes an ordinary place for a connection that has a reserved one. If no ordinary place is free, the connection gets the
    /// message [`PlaceIsFree`] as soon as one is.
    #[cold]
    pub(crate) fn take_place(&mut self, lp: &Loop, id: ConnectionId) -> bool {
        let mut open = self.addresses.lock();
        if open.in_places() < self.addresses.places_max {
            open.reserved -= usize::from(self.is_reserved);
            self.is_reserved = false;
            // It may have waited, and another one has been told of the place.
            open.waiting.retain(|(_, waiting)| *waiting != id);
        } else if open.waiting.iter().all(|(_, waiting)| *waiting != id) {
            open.waiting.push_back((lp.clone(), id));
        }
        !self.is_reserved
    }

    /// The connection waits for a place no longer.
    pub(crate) fn give_up(&self, id: ConnectionId) {
        if self.is_reserved {
            self.addresses.lock().waiting.retain(|(_, waiting)| *waiting != id);
        }
    }

    /// Whether the connection has to leave: there are too many, its address has more than its share, and no other connection
    /// leaves for this one.
    pub(crate) fn has_to_leave(&mut self) -> bool {
        let mut open = self.addresses.lock();
        let beyond = open.in_places().saturating_sub(self.addresses.places_max);
        if self.is_leaving || open.leaving >= beyond {
            return false;
        }
        let share = self.addresses.places_max / open.by_address.len().max(1);
        let held = self.address.and_then(|address| open.by_address.get(&address));
        self.is_leaving = held.is_some_and(|count| *count > share);
        open.leaving += usize::from(self.is_leaving);
        self.is_leaving
    }

    /// The connection does not leave yet: it works.
    pub(crate) fn stays(&mut self) {
        if std::mem::take(&mut self.is_leaving) {
            self.addresses.lock().leaving -= 1;
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open = self.addresses.lock();
        open.all -= 1;
        open.reserved -= usize::from(self.is_reserved);
        open.leaving -= usize::from(self.is_leaving);
        if let Some(address) = self.address
            && let Some(count) = open.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&address);
            }
        }
        let is_free = open.in_places() < self.addresses.places_max;
        let next = if is_free { open.waiting.pop_front() } else { None };
        drop(open);
        if let Some((lp, id)) = next {
            lp.send(id, Message { tag: 0, payload: Box::new(PlaceIsFree) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(places: usize, reserved: usize, per_address: usize) -> Arc<Addresses> {
        Addresses::new(&ClientLimits {
            connections_max: places,
            connections_reserved: reserved,
            connections_per_address_max: per_address,
            ..ClientLimits::default()
        })
    }

    fn address(number: u8) -> Option<IpAddr> {
        Some([10, 0, 0, number].into())
    }

    #[test]
    fn an_address_and_the_whole_have_limits_and_get_their_places_back() {
        let addresses = ledger(3, 0, 2);
        let [a, b] = [address(1), address(2)];
        let first = addresses.admit(a);
        let _second = addresses.admit(a).unwrap();
        assert!(addresses.admit(a).is_none());
        let _third = addresses.admit(b).unwrap();
        assert!(addresses.admit(b).is_none());
        drop(first);
        assert!(addresses.admit(b).is_some());
        assert_eq!(addresses.lock().by_address.len(), 2);
    }

    #[test]
    fn an_address_below_its_share_is_admitted_and_one_above_its_share_leaves() {
        let addresses = ledger(6, 2, 100);
        let mut many: Vec<Admission> = (0..6).map(|_| addresses.admit(address(1)).unwrap()).collect();
        assert!(many.iter_mut().all(|one| !one.has_to_leave()), "there are no more than places");
        let mut few = addresses.admit(address(2)).unwrap();
        assert!(!few.is_reserved() && addresses.are_short() && !few.has_to_leave());
        let leaving: Vec<bool> = many.iter_mut().map(Admission::has_to_leave).collect();
        assert_eq!(leaving, [true, false, false, false, false, false], "one for one");
        many[0].stays();
        assert!(many[1].has_to_leave(), "another one in its place");
        drop(many.remove(1));
        assert!(!addresses.are_short() && many.iter_mut().all(|one| !one.has_to_leave()));
        let beyond = addresses.admit(address(1)).unwrap();
        assert!(beyond.is_reserved(), "it would hold more than its share");
        drop((beyond, few, many));
        let open = addresses.lock();
        assert_eq!((open.all, open.reserved, open.leaving, open.by_address.len()), (0, 0, 0, 0));
    }

    #[test]
    fn with_more_addresses_than_places_the_others_get_reserved_places() {
        let addresses = ledger(3, 2, 100);
        let mut open: Vec<Admission> = (0..5).map(|number| addresses.admit(address(number)).unwrap()).collect();
        assert!(addresses.admit(address(9)).is_none());
        let are_reserved: Vec<bool> = open.iter().map(Admission::is_reserved).collect();
        assert_eq!(are_reserved, [false, false, false, true, true]);
        assert!(open.iter_mut().all(|one| !one.has_to_leave()), "nobody has more than another");
    }

    #[test]
    fn a_connection_that_has_found_a_place_waits_for_none() {
        let settings = reactor::ReactorSettings { loops: 1, ..reactor::ReactorSettings::default() };
        let running = reactor::Reactor::new(settings).unwrap().start().unwrap();
        let lp = &running.loops()[0];
        let id = |slot| ConnectionId { loop_index: 0, slot, generation: 0 };
        let addresses = ledger(1, 2, 100);
        let holder = addresses.admit(address(1)).unwrap();
        let mut waiting = [2, 3].map(|number| addresses.admit(address(number)).unwrap());
        assert_eq!([0, 1].map(|slot| waiting[slot as usize].take_place(lp, id(slot))), [false; 2]);
        // The ledger wakes connection 0 for the freed place. Connection 1 has just received more of its request, asks first, and gets
        // the place.
        drop(holder);
        assert!(waiting[1].take_place(lp, id(1)) && !waiting[0].take_place(lp, id(0)));
        let of = |open: &Open| open.waiting.iter().map(|(_, id)| id.slot).collect::<Vec<_>>();
        assert_eq!(of(&addresses.lock()), [0], "the second would be told of the next place, for nothing");
        running.drain(std::time::Duration::ZERO);
        running.join().unwrap();
    }

    #[test]
    fn a_connection_of_another_listener_takes_a_place_for_which_an_address_leaves() {
        let addresses = ledger(3, 2, 100);
        let mut crowd: Vec<Admission> = (0..5).map_while(|_| addresses.admit(address(1))).collect();
        assert_eq!(crowd.len(), 5, "places and reserved places");
        let mut own: Vec<Admission> = (0..9).map_while(|_| addresses.admit(None)).collect();
        assert_eq!(own.len(), 2, "as many as there are reserved places");
        assert!(own.iter_mut().all(|one| !one.is_reserved() && !one.has_to_leave()));
        let leaving: Vec<bool> = crowd.iter_mut().map(Admission::has_to_leave).collect();
        assert_eq!(leaving.iter().filter(|leaves| **leaves).count(), 2, "one for one");
        drop((crowd, own));
        let open = addresses.lock();
        assert_eq!((open.all, open.reserved, open.leaving, open.by_address.len()), (0, 0, 0, 0));
    }
}
