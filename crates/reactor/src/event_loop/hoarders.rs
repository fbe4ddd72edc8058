//! Closes connections that would harm others: slow readers, and the largest holders of memory when it is short.
//!
//! - While a connection has unsent output, its [`Pace`] is checked several times within [`Traffic::send_behind_max`]; a
//!   connection that is behind by more than that is closed.
//! - Each [`MemoryPart`] of the memory that connections hold between their turns has a bound. If a turn exceeds it, the
//!   connections that hold most are closed before any other turn, so a client that needs little always finds room. Only as many
//!   are closed as the bound requires, since closing a connection with much memory takes the kernel a tenth of a millisecond. If
//!   many connections hold memory, one search through all of them selects the holders of an eighth of the bound; later closings
//!   within 100 ms take the next of that list.
//!
//! Connections are ranked by bytes times the time held without progress: since the connection was last at the minimum rate, or
//! last consumed input. A ranking by bytes alone would close a client that receives a large reply at full speed before a hundred
//! clients that hold a little less for half a minute. The sums of all connections of an address are compared first, so many
//! connections have no advantage over one. An IPv6 host has a whole /64, which counts as one address.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::connection::{Link, Phase};
use crate::event_loop::EventLoop;
use crate::event_loop::core::Core;
use crate::event_loop::next_to_go::NextToGo;
use crate::fleet::nanoseconds;
use crate::host::host;
use crate::protocol::{Closed, ConnectionId, MemoryPart};
use crate::timers::Due;

#[cfg(doc)]
use crate::{Traffic, connection::pace::Pace};

/// If a part of the memory is held by so many connections or more, a search selects several to be closed.
const MANY: usize = 64;
/// Such a search selects the holders of this fraction of the part's bound: one eighth.
const FOUND_PART: usize = 8;
/// How long the result of a search is used.
const FOUND_FOR_NS: u64 = 100_000_000;
/// The least time that counts for held bytes.
const HELD_NS_MIN: u64 = 1_000_000;

/// A connection that holds memory of a part.
struct Hoarder {
    id: ConnectionId,
    address: IpAddr,
    bytes: usize,
    /// Bytes times nanoseconds.
    weight: u128,
}

impl Core {
    /// Called after a turn: begins to watch the peer of a connection that has unsent output.
    pub(crate) fn watch_pace(&mut self, link: &mut Link) {
        link.pace.begin(self.now_ns);
        if !link.pace_watched {
            link.pace_watched = true;
            self.owing.push(link.id);
            self.look_later(nanoseconds(link.traffic.send_behind_max));
        }
    }

    /// Schedules the next check, soon enough for a peer that may be behind for `behind_max_ns`.
    fn look_later(&mut self, behind_max_ns: u64) {
        if let Some(due_ns) = self.pace_checks.schedule(self.now_ns, behind_max_ns) {
            self.timers.push(due_ns, Due::LookAtPaces);
        }
    }
}

impl EventLoop {
    /// Checks the paces of all peers that have unsent output.
    pub(crate) fn look_at_paces(&mut self) {
        let (now_ns, mut shortest_ns) = (self.core.now_ns, u64::MAX);
        if !self.core.pace_checks.begin(now_ns) {
            return;
        }
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
        // Closing one connection may have given another one unsent output.
        owing.append(&mut self.core.owing);
        self.core.owing = owing;
        if !self.core.owing.is_empty() {
            self.core.look_later(shortest_ns);
        }
    }

    /// Closes the largest holders of each part that is short.
    #[cold]
    pub(crate) fn close_hoarders(&mut self) {
        self.core.is_short = false;
        for part in MemoryPart::ALL {
            let bound = self.core.bound_of(part);
            if self.core.held_bytes[part as usize] > bound {
                self.free(part, bound);
            }
        }
    }

    fn free(&mut self, part: MemoryPart, bound: usize) {
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
            // A connection that has made progress since the search is spared.
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

    fn find_next_to_go(&mut self, part: MemoryPart, bound: usize) {
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

    /// The connections that hold memory of a part, in the order in which they are closed.
    fn hoarders(&mut self, part: MemoryPart) -> Vec<Hoarder> {
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
