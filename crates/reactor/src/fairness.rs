//! Who goes on first where a loop has more to do than it gets done: each address in its turn.
//!
//! While a loop keeps up, connections are served as their events come. One that does not ([`crate::work_time`]) lists all that have
//! something to do, and serves the list in rounds: in a round each address has one connection served that waited in the tick
//! before, and one that has come since. Which of the two goes first changes from tick to tick. So who floods a loop over many
//! connections waits for himself, a client with a single request waits for some turns of other addresses, and also where all have
//! one address nobody waits for ever.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::connections::Connections;
use crate::hoarders::host;
use crate::protocol::ConnectionId;

/// The order of the rounds.
#[derive(Default)]
pub(crate) struct Fairness {
    new_go_first: bool,
}

impl Fairness {
    /// Puts a list into the order of the rounds: connections in the order in which they came, `waited` of them in the tick before.
    pub(crate) fn order(&mut self, list: &mut Vec<ConnectionId>, waited: usize, connections: &mut Connections) {
        self.new_go_first = !self.new_go_first;
        let mut rounds: HashMap<(IpAddr, bool), u32> = HashMap::new();
        let ordered = list.drain(..).enumerate().filter_map(|(place, id)| {
            let address = host(connections.get(id.slot, id.generation)?.link.peer.ip());
            let is_new = place >= waited;
            let round = rounds.entry((address, is_new)).or_default();
            *round += 1;
            Some(((*round, is_new != self.new_go_first), id))
        });
        let mut ordered: Vec<((u32, bool), ConnectionId)> = ordered.collect();
        // Stable: of one kind who waits longest goes first.
        ordered.sort_by_key(|(turn, _)| *turn);
        list.extend(ordered.into_iter().map(|(_, id)| id));
    }
}
