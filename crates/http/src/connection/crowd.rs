//! The connections of one loop, for the moment when no more may be open: then connections without a request in progress are
//! closed.
//!
//! Keeping connections in the order of their waiting time would cost every request a step. So there is no order: a clock hand
//! goes around, and asks some connections at a time to leave ([`Leave`]). Each connection knows whether it waits for its client
//! (`deadline.rs`), so busy connections pay only for a place in a table.

use reactor::ConnectionId;

/// Connections that are asked at a time. One that leaves is enough for the waiting connection; if more wait, the next batch is
/// asked soon.
const ASKED_AT_ONCE: usize = 256;

/// Message to a connection: leave, if you have waited for your client long enough, or your address has more than its share.
pub(crate) struct Leave {
    /// No further connection can be accepted: reserved places are needed too.
    pub(crate) is_full: bool,
}

/// See the module's documentation. Bound: one entry for each slot of the loop's slab.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// By slot.
    members: Vec<Option<ConnectionId>>,
    hand: usize,
    /// Those that were admitted to a reserved place.
    reserved: Vec<ConnectionId>,
}

impl Crowd {
    pub(crate) fn enter(&mut self, id: ConnectionId, is_reserved: bool) {
        self.reserved.extend(is_reserved.then_some(id));
        let slot = id.slot as usize;
        if slot >= self.members.len() {
            self.members.resize(slot + 1, None);
        }
        self.members[slot] = Some(id);
    }

    pub(crate) fn leave(&mut self, id: ConnectionId) {
        if let Some(member) = self.members.get_mut(id.slot as usize).filter(|member| **member == Some(id)) {
            *member = None;
        }
        self.reserved.retain(|reserved| *reserved != id);
    }

    /// The connections in reserved places.
    pub(crate) fn reserved(&self) -> &[ConnectionId] {
        &self.reserved
    }

    /// The next connections to ask.
    pub(crate) fn next(&mut self) -> Vec<ConnectionId> {
        let slots = self.members.len();
        let (before, behind) = self.members.split_at(self.hand.min(slots));
        let around = behind.iter().chain(before).enumerate();
        let mut asked = Vec::new();
        let mut passed = slots;
        for (place, member) in around {
            if asked.len() == ASKED_AT_ONCE {
                passed = place;
                break;
            }
            asked.extend(*member);
        }
        self.hand = if slots == 0 { 0 } else { (self.hand + passed) % slots };
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32, generation: u32) -> ConnectionId {
        ConnectionId { loop_index: 0, slot, generation }
    }

    #[test]
    fn the_hand_comes_to_all_who_are_there_and_to_nobody_else() {
        let mut crowd = Crowd::default();
        assert!(crowd.next().is_empty());
        for slot in 0..1000 {
            crowd.enter(id(slot, 1), slot == 4);
        }
        for slot in (0..1000).filter(|slot| slot % 3 == 0) {
            crowd.leave(id(slot, 1));
            crowd.enter(id(slot, 2), false);
            // The previous connection in that slot has gone already.
            crowd.leave(id(slot, 1));
        }
        assert_eq!(crowd.reserved(), [id(4, 1)]);
        crowd.leave(id(500, 1));
        crowd.leave(id(2000, 1));
        let mut seen: Vec<ConnectionId> = Vec::new();
        for _ in 0..4 {
            let asked = crowd.next();
            assert!(asked.len() <= ASKED_AT_ONCE);
            seen.extend(asked);
        }
        // All around, and a little further.
        assert_eq!(seen.len(), 4 * ASKED_AT_ONCE);
        let once = &seen[..999];
        let expected = (0..1000).filter(|slot| *slot != 500).map(|slot| id(slot, 1 + u32::from(slot % 3 == 0)));
        assert!(once.iter().copied().eq(expected) && seen[999..] == seen[..4 * ASKED_AT_ONCE - 999]);
    }
}
