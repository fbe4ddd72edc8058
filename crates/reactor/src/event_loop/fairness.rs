//! Order of turns when a loop cannot serve all connections in a tick: addresses that have used the loop least go first.
//!
//! While a loop keeps up, connections are served in the order of their events. A loop that does not keep up
//! ([`crate::event_loop::work_time`]) lists all connections that have work, and sorts the list by the time that the turns of each address
//! have taken lately; each further connection of an address counts as further turns of that address. So a client with one cheap
//! request is served before clients that flood the loop, however many connections they open and however long their turns are.
//! Addresses that all want more than they can get have equal shares of the time.
//!
//! Within an address, connections that waited in the last tick and connections that arrived since take turns, and which of the
//! two goes first alternates from tick to tick: even if all clients have one address, no connection waits for ever. No address
//! waits for ever either: past use decays, and among addresses with equal use the connection that has waited longest goes first.

use std::net::IpAddr;

use hashbrown::HashMap;

use crate::connection::slab::Connections;
use crate::host::host;
use crate::protocol::ConnectionId;

/// Half of an address's use is forgotten after this time.
const HALVED_EVERY_NS: u64 = 64_000_000;
/// An address with less use counts as one with none.
const FORGOTTEN_NS: u64 = 20_000;
/// The shortest and the longest time that a turn counts. If a turn took longer, its thread most likely had no processor.
const TURN_NS: std::ops::RangeInclusive<u64> = 10_000..=2_000_000;
/// Addresses whose use is tracked. Any further address counts as one with no use.
const ADDRESSES_MAX: usize = 4096;
/// Initial capacity: a loop with few connections allocates nothing later.
const ROOM: usize = 64;
/// Largest capacity that is kept from one sort to the next.
const ROOM_KEPT_MAX: usize = 16_384;

/// Use of the loop by an address: its decayed total, and a moving average of the time of its turns.
#[derive(Clone, Copy, Default)]
struct Use {
    all_ns: u64,
    turn_ns: u64,
}

/// The order of turns.
pub(crate) struct Fairness {
    new_go_first: bool,
    uses: HashMap<IpAddr, Use>,
    halved_ns: u64,
    /// Scratch space, empty between two sorts: the list with its sort keys, and the number of connections of an address seen so
    /// far, by whether they waited.
    keyed: Vec<Keyed>,
    before: HashMap<(IpAddr, bool), u64>,
}

/// A listed connection: the use of its address when its turn comes, and its position in the list.
#[derive(Clone, Copy)]
struct Keyed {
    used_ns: u64,
    place: usize,
    id: ConnectionId,
}

impl Fairness {
    pub(crate) fn new() -> Self {
        Self {
            new_go_first: false,
            uses: HashMap::with_capacity(ROOM),
            halved_ns: 0,
            keyed: Vec::with_capacity(ROOM),
            before: HashMap::with_capacity(ROOM),
        }
    }

    /// Records the time of one turn of a peer.
    pub(crate) fn count(&mut self, peer: IpAddr, took_ns: u64) {
        let address = host(peer);
        if self.uses.len() >= ADDRESSES_MAX && !self.uses.contains_key(&address) {
            return;
        }
        let used = self.uses.entry(address).or_default();
        let took_ns = took_ns.clamp(*TURN_NS.start(), *TURN_NS.end());
        used.all_ns += took_ns;
        used.turn_ns = if used.turn_ns == 0 { took_ns } else { (used.turn_ns * 3 + took_ns) / 4 };
    }

    /// Sorts a list of connections. It holds them in order of arrival; the first `waited` of them waited in the last tick.
    pub(crate) fn order(
        &mut self,
        list: &mut Vec<ConnectionId>,
        waited: usize,
        connections: &mut Connections,
        now_ns: u64,
    ) {
        let peer = |id: ConnectionId| Some(connections.get(id.slot, id.generation)?.link.peer.ip());
        self.order_by(list, waited, peer, now_ns);
    }

    /// The same with a function that returns a connection's peer. A connection that is gone has none, and is removed from the
    /// list.
    fn order_by(
        &mut self,
        list: &mut Vec<ConnectionId>,
        waited: usize,
        mut peer: impl FnMut(ConnectionId) -> Option<IpAddr>,
        now_ns: u64,
    ) {
        self.forget(now_ns);
        self.new_go_first = !self.new_go_first;
        if waited == 0 && are_of_one_address(list, &mut peer) {
            // Each counts as one turn more than the one before it: the order of arrival.
            return;
        }
        for (place, id) in list.drain(..).enumerate() {
            let Some(peer) = peer(id) else { continue };
            let (address, has_waited) = (host(peer), place < waited);
            let used = self.uses.get(&address).copied().unwrap_or_default();
            let before = self.before.entry((address, has_waited)).or_default();
            let turns = *before * 2 + u64::from(has_waited == self.new_go_first);
            *before += 1;
            let used_ns = used.all_ns + turns * used.turn_ns.max(*TURN_NS.start());
            self.keyed.push(Keyed { used_ns, place, id });
        }
        // At equal use, the connection that has waited longest goes first.
        self.keyed.sort_unstable_by_key(|one| (one.used_ns, one.place));
        list.extend(self.keyed.drain(..).map(|one| one.id));
        self.keyed.shrink_to(ROOM_KEPT_MAX);
        self.before.clear();
        self.before.shrink_to(ROOM_KEPT_MAX);
    }

    fn forget(&mut self, now_ns: u64) {
        let halvings = now_ns.saturating_sub(self.halved_ns) / HALVED_EVERY_NS;
        if halvings == 0 {
            return;
        }
        self.halved_ns += halvings * HALVED_EVERY_NS;
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX).min(u64::BITS - 1);
        self.uses.retain(|_, used| {
            used.all_ns >>= halvings;
            used.all_ns >= FORGOTTEN_NS
        });
    }
}

/// Whether all connections are there and have one address.
fn are_of_one_address(list: &[ConnectionId], peer: &mut impl FnMut(ConnectionId) -> Option<IpAddr>) -> bool {
    let Some((first, others)) = list.split_first() else { return true };
    let Some(address) = peer(*first).map(host) else { return false };
    others.iter().all(|id| peer(*id).map(host) == Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn host_number(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x7f00_0000 + number).into()
    }

    /// Sorts connections, each given as its address's number and whether it waited; returns their positions in the list.
    fn order(fairness: &mut Fairness, now_ns: u64, list: &[(u32, bool)]) -> Vec<usize> {
        let mut ids: Vec<_> =
            (0..list.len() as u32).map(|slot| ConnectionId { loop_index: 0, slot, generation: 1 }).collect();
        let waited = list.iter().filter(|(_, waited)| *waited).count();
        assert!(list[..waited].iter().all(|(_, waited)| *waited), "those who waited stand first");
        fairness.order_by(&mut ids, waited, |id| Some(host_number(list[id.slot as usize].0)), now_ns);
        ids.into_iter().map(|id| id.slot as usize).collect()
    }

    #[test]
    fn all_connections_of_who_has_used_little_go_before_the_first_of_who_has_used_much() {
        let mut fairness = Fairness::new();
        fairness.forget(HALVED_EVERY_NS);
        for _ in 0..20 {
            fairness.count(host_number(1), 500_000);
            fairness.count(host_number(2), 20_000);
        }
        for _ in 0..2 {
            let order =
                order(&mut fairness, HALVED_EVERY_NS, &[(1, true), (1, true), (2, false), (2, false), (3, false)]);
            assert_eq!(order[..3], [4, 2, 3], "{order:?}");
        }
    }

    #[test]
    fn of_one_address_those_that_came_keep_their_order_and_those_that_are_gone_leave() {
        let mut fairness = Fairness::new();
        (0..100).for_each(|_| fairness.count(host_number(1), 500_000));
        assert_eq!(order(&mut fairness, 0, &[(1, false); 70]), (0..70).collect::<Vec<_>>());
        let ids = || (0..3).map(|slot| ConnectionId { loop_index: 0, slot, generation: 1 });
        let mut list = ids().collect();
        fairness.order_by(&mut list, 0, |id| (id.slot != 1).then(|| host_number(1)), 0);
        assert_eq!(list, ids().filter(|id| id.slot != 1).collect::<Vec<_>>());
    }

    #[test]
    fn of_one_address_those_who_waited_and_those_who_came_take_turns() {
        let mut fairness = Fairness::new();
        let list = [(1, true), (1, true), (1, true), (1, false), (1, false)];
        let orders = [(); 2].map(|()| order(&mut fairness, 0, &list));
        assert_eq!(orders, [vec![3, 0, 4, 1, 2], vec![0, 3, 1, 4, 2]]);
    }

    #[test]
    fn addresses_that_want_all_they_can_get_have_equal_times_whatever_their_turns_take() {
        let mut fairness = Fairness::new();
        let turn_ns = [1_000_000, 100_000, 30_000];
        let (mut had_ns, mut now_ns) = ([0_u64; 3], 0);
        // Each address has thirty connections that wait, and as many new ones.
        let list: Vec<(u32, bool)> = (0..180).map(|n| (n % 3, n < 90)).collect();
        for _ in 0..3_000 {
            // The tick is over after a millisecond.
            let until_ns = now_ns + 1_000_000;
            for place in order(&mut fairness, now_ns, &list) {
                let number = list[place].0;
                let took_ns = turn_ns[number as usize];
                fairness.count(host_number(number), took_ns);
                had_ns[number as usize] += took_ns;
                now_ns += took_ns;
                if now_ns >= until_ns {
                    break;
                }
            }
        }
        let (least, most) = (had_ns.iter().min().unwrap(), had_ns.iter().max().unwrap());
        assert!(*most < least * 3 / 2, "{had_ns:?}");
    }

    #[test]
    fn what_was_used_is_forgotten_and_who_waits_longest_goes_first() {
        let mut fairness = Fairness::new();
        (0..1000).for_each(|_| fairness.count(host_number(1), 1_000_000));
        let list = [(1, true), (2, true), (3, false)];
        assert_eq!(order(&mut fairness, HALVED_EVERY_NS, &list).last(), Some(&0));
        let later = order(&mut fairness, HALVED_EVERY_NS * 40, &list);
        assert!(later[..2] == [0, 1] || later == [2, 0, 1], "{later:?}");
        assert!(fairness.uses.is_empty());
    }

    #[test]
    fn many_addresses_take_no_more_room_than_some() {
        let mut fairness = Fairness::new();
        (0..3 * ADDRESSES_MAX as u32).for_each(|number| fairness.count(host_number(number), 50_000));
        assert_eq!(fairness.uses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn time_that_is_left_after_a_halving_counts_for_the_next() {
        let (mut fairness, one) = (Fairness::new(), host_number(1));
        fairness.count(one, 2_000_000);
        for now_ns in [HALVED_EVERY_NS * 3 / 2, HALVED_EVERY_NS * 3] {
            fairness.forget(now_ns);
        }
        assert_eq!(fairness.uses[&one].all_ns, 2_000_000 / 8);
    }
}
