//! On which node a key lives.
//!
//! | name | node of a key | part of the key that counts |
//! |---|---|---|
//! | `crc32` | CRC-32 modulo the number of nodes, as RedisSharding | between the last `{` and a final `}` |
//! | `ketama`, `modula`, `random` | twemproxy's distributions, by one of twelve hash functions | between the first pair of the two bytes of `hash_tag` |
//! | `slots` | CRC-16 modulo 16,384 gives the slot, the cluster's table its node | between the first `{` and the next `}` |
//!
//! Where nothing stands between the marks, the whole key counts. Placement never moves a key by itself: a node that is down keeps its
//! keys, unless it is ejected (twemproxy's distributions are then made without it).

mod hash;
mod ketama;
mod slots;
mod tag;

pub use hash::Hash;
pub use ketama::{Ketama, Server};
pub use slots::{SLOTS, Slots, slot_of};
pub use tag::{at_end, between};

/// How keys are spread over nodes.
#[derive(Clone, Debug)]
pub enum Placement {
    /// CRC-32 of the key, or of the tag at its end, modulo so many nodes.
    Crc32 {
        /// Nodes, one at least.
        nodes: usize,
    },
    /// twemproxy's.
    Twemproxy {
        /// The hash function.
        hash: Hash,
        /// How a hash finds its node.
        distribution: Distribution,
        /// The bytes between which the part of a key stands that counts.
        hash_tag: Option<[u8; 2]>,
    },
    /// Redis Cluster's.
    Slots(Slots),
}

/// How twemproxy finds the node of a hash.
#[derive(Clone, Debug)]
pub enum Distribution {
    /// The next point of a ring.
    Ketama(Ketama),
    /// Modulo the sum of weights: the place in this list, where each node stands as often as its weight says.
    Modula(Box<[usize]>),
    /// Any of these nodes, whatever the key: a cache whose nodes hold the same. One at least.
    Random(Box<[usize]>),
}

impl Placement {
    /// The node of a key, by its place in the list that the placement was made of. `turn` is any number that differs from call to
    /// call: [`Distribution::Random`] takes the node by it.
    pub fn node(&self, key: &[u8], turn: u64) -> usize {
        match self {
            Placement::Crc32 { nodes } => crc32fast::hash(at_end(key)) as usize % nodes,
            Placement::Twemproxy { hash, distribution, hash_tag } => {
                let key = hash_tag.map_or(key, |[open, close]| between(key, open, close));
                distribution.node(|| if key.is_empty() { 0 } else { hash.of(key) }, turn)
            }
            Placement::Slots(slots) => slots.node(slot_of(key)),
        }
    }
}

impl Distribution {
    /// twemproxy's `modula` over those servers, one at least, that take keys: in the order of their names, the shorter ones first, in which
    /// twemproxy has sorted them. By their places in the list of all, as [`Ketama::new`].
    pub fn modula(servers: &[Server], takes_keys: impl Fn(usize) -> bool) -> Distribution {
        let mut sorted: Vec<(usize, &Server)> =
            servers.iter().enumerate().filter(|(place, _)| takes_keys(*place)).collect();
        sorted.sort_by_key(|(_, server)| (server.name.len(), &server.name));
        let places = sorted.into_iter().flat_map(|(place, server)| (0..server.weight).map(move |_| place));
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
