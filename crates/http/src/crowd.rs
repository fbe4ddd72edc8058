//! The connections of one loop, for when no more may be open: who keeps a place and asks for nothing goes then.
//!
//! To find who has waited longest would cost every request a step in some order. So nobody is ordered: a hand goes around, and
//! asks some connections at a time to go ([`Leave`]). Each knows itself whether it is waited for (`deadline.rs`), so that those
//! at work pay for nothing but a place in a table.

use reactor::ConnectionId;

/// Connections that are asked at a time: who waits for a place has the first that goes, and there is a next time soon.
const ASKED_AT_ONCE: usize = 256;

/// Said to a connection that is to go, if it has waited for its client long enough.
pub(crate) struct Leave;

/// See the module's text. Bound: one entry for each place of the loop's slab.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// By slot.
    members: Vec<Option<ConnectionId>>,
    hand: usize,
}

impl Crowd {
    pub(crate) fn enter(&mut self, id: ConnectionId) {
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
    }

    /// The next ones to ask.
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
            crowd.enter(id(slot, 1));
        }
        for slot in (0..1000).filter(|slot| slot % 3 == 0) {
            crowd.leave(id(slot, 1));
            crowd.enter(id(slot, 2));
            // The one that was there before has gone already.
            crowd.leave(id(slot, 1));
        }
        crowd.leave(id(500, 1));
        crowd.leave(id(2000, 1));
        let mut seen: Vec<ConnectionId> = Vec::new();
        for _ in 0..4 {
            let asked = crowd.next();
            assert!(asked.len() <= ASKED_AT_ONCE);
            seen.extend(asked);
        }
        // Around, and a little further.
        assert_eq!(seen.len(), 4 * ASKED_AT_ONCE);
        let once = &seen[..999];
        let expected = (0..1000).filter(|slot| *slot != 500).map(|slot| id(slot, 1 + u32::from(slot % 3 == 0)));
        assert!(once.iter().copied().eq(expected) && seen[999..] == seen[..4 * ASKED_AT_ONCE - 999]);
    }
}
