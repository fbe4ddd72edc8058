//! Connections that others pay for: those that do not take what waits for them, and those that hold most of a part of the
//! memory when it is short.
//!
//! - While a connection has unsent output its [`Pace`] is looked at a few times in [`Traffic::send_behind_max`]; one that is
//!   behind by more than that is closed.
//! - Each part of what connections hold between their turns ([`Part`]) has a bound. A turn that passes it is followed, before
//!   any other turn, by the closing of those that hold most: so whoever asks for little always finds room. No more are closed than
//!   that takes, since closing one that holds much takes the kernel a tenth of a millisecond; where many hold something, the search
//!   through all connections finds those who hold an eighth of the part, and the next closings begin with who is left of them.
//!
//! What counts is bytes times how long they have been held for nothing: since the connection was last at the least rate, or
//! last consumed something. Bytes alone would close a client that receives a large reply at full speed before a hundred that
//! hold a little less for half a minute. The sums of all connections of an address come first, so that many connections are
//! no more than one. An IPv6 host has a whole /64, which counts as one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::connection::{Link, Phase};
use crate::core::Core;
use crate::event_loop::EventLoop;
use crate::fleet::nanoseconds;
use crate::protocol::{Closed, ConnectionId, Part};
use crate::timers::Due;

#[cfg(doc)]
use crate::{Traffic, pace::Pace};

/// How often the paces are looked at while a peer may be behind, and between which bounds.
const LOOKS: u64 = 8;
const LOOK_NS_MIN: u64 = 10_000_000;
const LOOK_NS_MAX: u64 = 250_000_000;
/// Which part of the bound those hold together who are found where many hold something, how many are many, and how long it
/// holds that they are the ones who hold most.
const FOUND_PART: usize = 8;
const MANY: usize = 64;
const FOUND_FOR_NS: u64 = 100_000_000;
/// What was held for no time at all weighs as much as this.
const HELD_NS_MIN: u64 = 1_000_000;

/// A connection that holds something of a part.
struct Hoarder {
    id: ConnectionId,
    address: IpAddr,
    bytes: usize,
    /// Bytes times nanoseconds.
    weight: u128,
}

/// Who goes next when a part is short: what is left of the last search.
#[derive(Default)]
pub(crate) struct NextToGo {
    /// The first stands last.
    ids: Vec<ConnectionId>,
    found_ns: u64,
}

impl Core {
    /// After a turn: watches the peer of a connection that has unsent output.
    pub(crate) fn watch_pace(&mut self, link: &mut Link) {
        link.pace.begin(self.now_ns);
        if !link.pace_watched {
            link.pace_watched = true;
            self.owing.push(link.id);
            self.look_later(nanoseconds(link.traffic.send_behind_max));
        }
    }

    /// Looks again soon enough for a peer that may be behind for so long.
    fn look_later(&mut self, behind_max_ns: u64) {
        if std::mem::replace(&mut self.looks_at_paces, true) {
            return;
        }
        let every_ns = (behind_max_ns / LOOKS).clamp(LOOK_NS_MIN, LOOK_NS_MAX);
        self.timers.push(self.now_ns.saturating_add(every_ns), Due::LookAtPaces);
    }
}

impl EventLoop {
    /// Looks at all peers that have something to take.
    pub(crate) fn look_at_paces(&mut self) {
        let (now_ns, mut shortest_ns) = (self.core.now_ns, u64::MAX);
        self.core.looks_at_paces = false;
        let mut owing = std::mem::take(&mut self.core.owing);
        owing.retain(|id| {
            let Some(connection) = self.core.connections.get(id.slot, id.generation) else { return false };
            let link = &mut connection.link;
            if !link.has_unsent() || !matches!(link.phase, Phase::Open | Phase::Finishing) {
                link.pace_watched = false;
                return false;
            }
            let in_kernel = link.transport.unacknowledged();
            link.pace.look(link.sent.saturating_sub(in_kernel), now_ns, link.traffic.send_rate_min);
            let behind_max_ns = nanoseconds(link.traffic.send_behind_max);
            if link.pace.behind_ns(now_ns) <= behind_max_ns {
                shortest_ns = shortest_ns.min(behind_max_ns);
                return true;
            }
            link.close(Closed::Stalled);
            self.settle(id.slot, true);
            false
        });
        // Closing one may have let another begin to owe.
        owing.append(&mut self.core.owing);
        self.core.owing = owing;
        if !self.core.owing.is_empty() {
            self.core.look_later(shortest_ns);
        }
    }

    /// Closes those that hold most of each part that is short.
    #[cold]
    pub(crate) fn close_hoarders(&mut self) {
        self.core.is_short = false;
        for part in Part::ALL {
            let bound = self.core.bound_of(part);
            if self.core.held_bytes[part as usize] > bound {
                self.free(part, bound);
            }
        }
    }

    fn free(&mut self, part: Part, bound: usize) {
        let now_ns = self.core.now_ns;
        let mut may_search = true;
        while self.core.held_bytes[part as usize] > bound {
            let next = &mut self.next_to_go[part as usize];
            let found_before_ns = now_ns.saturating_sub(next.found_ns);
            let Some(id) = next.ids.pop().filter(|_| found_before_ns <= FOUND_FOR_NS) else {
                if !std::mem::take(&mut may_search) {
                    return;
                }
                self.find_next_to_go(part, bound);
                continue;
            };
            let Some(mut connection) = self.core.connections.lend(id.slot, id.generation) else { continue };
            // Another one where it has taken or sent something since.
            if connection.link.held_for_ns(part, now_ns) >= found_before_ns {
                self.core.let_go(&mut connection, part);
            }
            let closed = connection.link.is_closed();
            self.core.connections.take_back(connection);
            if closed {
                self.remove(id.slot);
            }
        }
    }

    fn find_next_to_go(&mut self, part: Part, bound: usize) {
        let hoarders = self.hoarders(part);
        let goal = if hoarders.len() < MANY { bound } else { bound - bound / FOUND_PART };
        let mut left = self.core.held_bytes[part as usize];
        let go = hoarders.iter().take_while(|hoarder| {
            let goes = left > goal;
            left = left.saturating_sub(hoarder.bytes);
            goes
        });
        let mut ids: Vec<ConnectionId> = go.map(|hoarder| hoarder.id).collect();
        ids.reverse();
        self.next_to_go[part as usize] = NextToGo { ids, found_ns: self.core.now_ns };
    }

    /// Those that hold something of a part, in the order in which they go.
    fn hoarders(&mut self, part: Part) -> Vec<Hoarder> {
        let now_ns = self.core.now_ns;
        let mut hoarders = Vec::new();
        let mut by_address: HashMap<IpAddr, u128> = HashMap::new();
        for slot in 0..self.core.connections.slots() {
            let Some(connection) = self.core.connections.at(slot) else { continue };
            let link = &connection.link;
            let bytes = link.held_bytes[part as usize];
            if bytes > 0 {
                let weight = bytes as u128 * u128::from(link.held_for_ns(part, now_ns).max(HELD_NS_MIN));
                let address = host(link.peer.ip());
                *by_address.entry(address).or_default() += weight;
                hoarders.push(Hoarder { id: link.id, address, bytes, weight });
            }
        }
        let of_all = |hoarder: &Hoarder| by_address.get(&hoarder.address).copied().unwrap_or_default();
        hoarders.sort_by_key(|hoarder| std::cmp::Reverse((of_all(hoarder), hoarder.weight)));
        hoarders
    }
}

/// What counts as one address where shares are counted: an IPv6 host has a whole /64.
pub fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let host_of = |text: &str| host(text.parse().expect("an address")).to_string();
        assert_eq!(host_of("192.0.2.7"), "192.0.2.7");
        assert_eq!(host_of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(host_of("2001:db8:1:2:3:4:5:6"), host_of("2001:db8:1:2::9"));
        assert_ne!(host_of("2001:db8:1:2:3:4:5:6"), host_of("2001:db8:1:3:3:4:5:6"));
    }
}
