//! The node of a key.
//!
//! | name | node of a key | hashed part of the key |
//! |---|---|---|
//! | `crc32` | CRC-32 modulo the number of nodes, as RedisSharding | between the last `{` and a final `}` |
//! | `ketama`, `modula`, `random` | twemproxy's distributions, by one of twelve hash functions | between the first pair of the two bytes of `hash_tag` |
//! | `slots` | CRC-16 modulo 16,384 gives the slot, the cluster's table its node | between the first `{` and the next `}` |
//!
//! If the enclosed part is empty, the whole key is hashed. Placement never moves a key by itself: a node that is down keeps its
//! keys, unless it is ejected (then twemproxy's distributions are computed without it).

mod hash;
mod ketama;
mod slots;
mod tag;

pub use hash::Hash;
pub use ketama::{Ketama, RingServer};
pub use slots::{SLOTS, Slots, slot_of};
pub use tag::{at_end, between};

/// How keys are distributed over nodes.
#[derive(Clone, Debug)]
pub enum Placement {
    /// CRC-32 of the key, or of its tag, modulo the number of nodes.
    Crc32 {
        /// Number of nodes; at least one.
        nodes: usize,
        /// The bytes that enclose a tag anywhere in a key; none: the tag is at its end, in braces.
        hash_tag: Option<[u8; 2]>,
    },
    /// As twemproxy does.
    Twemproxy {
        /// The hash function.
        hash: Hash,
        /// How a hash is mapped to a node.
        distribution: Distribution,
        /// The bytes that enclose the hashed part of a key.
        hash_tag: Option<[u8; 2]>,
    },
    /// As Redis Cluster does.
    Slots(Slots),
}

/// How twemproxy maps a hash to a node.
#[derive(Clone, Debug)]
pub enum Distribution {
    /// The next point of a ring.
    Ketama(Ketama),
    /// Modulo the sum of weights: the index in this list, which contains each node as often as its weight.
    Modula(Box<[usize]>),
    /// Any of these nodes, whatever the key, for caches with equal contents on all nodes. At least one.
    Random(Box<[usize]>),
}

impl Placement {
    /// The node of a key, by its position in the list from which the placement was made. `turn` is any number that differs from
    /// call to call: [`Distribution::Random`] chooses the node by it.
    pub fn node(&self, key: &[u8], turn: u64) -> usize {
        match self {
            Placement::Crc32 { nodes, hash_tag } => {
                let tag = hash_tag.map_or_else(|| at_end(key), |[open, close]| between(key, open, close));
                crc32fast::hash(tag) as usize % nodes
            }
            Placement::Twemproxy { hash, distribution, hash_tag } => {
                let key = hash_tag.map_or(key, |[open, close]| between(key, open, close));
                distribution.node(|| if key.is_empty() { 0 } else { hash.of(key) }, turn)
            }
            Placement::Slots(slots) => slots.node(slot_of(key)),
        }
    }
}

impl Distribution {
    /// twemproxy's `modula` over the servers for which `takes_keys` is true; at least one must be. They stand in the order of
    /// their names, shorter names first. Positions are those in the list of all, as in [`Ketama::new`].
    pub fn modula(servers: &[RingServer], takes_keys: impl Fn(usize) -> bool) -> Distribution {
        let places = ketama::sorted_by_name(servers, takes_keys)
            .into_iter()
            .flat_map(|(place, server)| (0..server.weight).map(move |_| place));
        Distribution::Modula(places.collect())
    }

    fn node(&self, hash: impl FnOnce() -> u32, turn: u64) -> usize {
        match self {
            Distribution::Ketama(ring) => ring.node(hash()),
            Distribution::Modula(places) => places[hash() as usize % places.len()],
            Distribution::Random(places) => places[(turn % places.len() as u64) as usize],
        }
    }
}
