//! Redis Cluster's placement (Redis Cluster Specification, "Key distribution model"): 16,384 slots, each on one node.

use super::hash::crc16;
use super::tag::between;

/// Number of slots of a cluster.
pub const SLOTS: usize = 16_384;

/// The slot of a key, computed from its tag in braces if it has one.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(between(key, b'{', b'}')) % SLOTS as u16
}

/// The node of each slot.
#[derive(Clone, Debug)]
pub struct Slots {
    nodes: Box<[u16]>,
}

impl Slots {
    /// All slots on node 0.
    pub fn new() -> Slots {
        Slots { nodes: vec![0; SLOTS].into() }
    }

    /// The node of a slot, by its position in the list of nodes.
    pub fn node(&self, slot: u16) -> usize {
        usize::from(self.nodes[usize::from(slot) % SLOTS])
    }

    /// Assigns slots to a node: a range of the cluster's table, or the single slot of a MOVED error.
    pub fn assign(&mut self, slots: std::ops::RangeInclusive<u16>, node: u16) {
        for slot in slots {
            if let Some(place) = self.nodes.get_mut(usize::from(slot)) {
                *place = node;
            }
        }
    }
}

impl Default for Slots {
    fn default() -> Slots {
        Slots::new()
    }
}

#[cfg(test)]
mod cluster {
    use super::{Slots, slot_of};

    #[test]
    fn slots_are_those_of_the_specification() {
        // The specification's own example of the CRC, and keys that were checked with redis-cli's CLUSTER KEYSLOT.
        assert_eq!(super::crc16(b"123456789"), 0x31c3);
        for (key, slot) in [("foo", 12_182), ("{foo}bar", 12_182), ("foo{}{bar}", 8_363), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_range_of_slots_goes_to_its_node() {
        let mut slots = Slots::new();
        slots.assign(5_000..=16_383, 2);
        slots.assign(7_000..=7_000, 1);
        assert_eq!([0, 4_999, 5_000, 7_000, 16_383].map(|slot| slots.node(slot)), [0, 0, 2, 1, 2]);
    }
}
