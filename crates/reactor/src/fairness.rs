//! Who goes on first where a loop has more to do than it gets done: who has used it least lately.
//!
//! While a loop keeps up, connections are served as their events come. One that does not ([`crate::work_time`]) lists all that have
//! something to do, and puts the list in an order: by what the turns of each address have taken lately, and for each
//! connection of an address one turn of that address more. So a client with a single cheap request goes before those who flood
//! the loop, over however many connections and with however long turns; and addresses that all want as much as they can get have
//! equal shares of the time.
//!
//! Of one address, a connection that waited in the tick before and one that has come since take turns, and which of the two goes first
//! changes from tick to tick: also where all have one address nobody waits for ever. Nor does an address: what it has used is
//! forgotten by and by, and of those who have used nothing who waits longest goes first.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::connections::Connections;
use crate::hoarders::host;
use crate::protocol::ConnectionId;

/// After so long half of what was used is forgotten.
const HALVED_EVERY_NS: u64 = 64_000_000;
/// Who has used less counts as one who has used nothing.
const FORGOTTEN_NS: u64 = 20_000;
/// A turn counts as this at least, and at most: where a turn took longer, its thread most likely had no processor.
const TURN_NS: std::ops::RangeInclusive<u64> = 10_000..=2_000_000;
/// Addresses whose use is known. Any others count as ones who have used nothing.
const ADDRESSES_MAX: usize = 4096;
/// Room made at the start, so that a loop with few connections allocates nothing later; and the most that is kept from one
/// order to the next.
const ROOM: usize = 64;
const ROOM_KEPT_MAX: usize = 16_384;

/// What an address has used lately, and what a turn of it takes: the average of the last few.
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
    /// Empty between two orders: a list with what each goes by, and how many of an address have gone before, by whether they waited.
    keyed: Vec<Keyed>,
    before: HashMap<(IpAddr, bool), u64>,
}

/// A listed connection: what its address will have used when its turn comes, and its place in the list.
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

    /// A turn for a peer took so long.
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

    /// Puts a list into order: connections in the order in which they came, `waited` of them in the tick before.
    pub(crate) fn order(
        &mut self,
        list: &mut Vec<ConnectionId>,
        waited: usize,
        connections: &mut Connections,
        now_ns: u64,
    ) {
        let peers = |id: ConnectionId| Some(connections.get(id.slot, id.generation)?.link.peer.ip());
        self.order_by(list, waited, peers, now_ns);
    }

    /// The same, asking for each connection's peer; one that is gone has none, and leaves the list.
    fn order_by(
        &mut self,
        list: &mut Vec<ConnectionId>,
        waited: usize,
        mut peer: impl FnMut(ConnectionId) -> Option<IpAddr>,
        now_ns: u64,
    ) {
        self.forget(now_ns);
        self.new_go_first = !self.new_go_first;
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
        // Of those who have used as much who waits longest goes first.
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
        self.halved_ns = now_ns;
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX).min(u64::BITS - 1);
        self.uses.retain(|_, used| {
            used.all_ns >>= halvings;
            used.all_ns >= FORGOTTEN_NS
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn host_number(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x7f00_0000 + number).into()
    }

    /// The order of connections, each given as its address's number and whether it waited: their places in the list.
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
        // Each has thirty connections that wait, and new ones as many.
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
}
