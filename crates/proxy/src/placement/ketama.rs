//! Consistent hashing as libketama and twemproxy do it.
//!
//! Each server has 160 points on a ring of 32 bits, more or fewer by its weight, four from each MD5 of `NAME-0`, `NAME-1` …. A hash
//! belongs to the server of the first point at or behind it; behind the last one the first takes over. A server that is added or removed
//! so moves only the keys next to its points.

use super::hash::md5_word;

/// Points of a server of average weight.
const POINTS: u32 = 160;
/// Points from one MD5.
const POINTS_PER_DIGEST: u32 = 4;
/// twemproxy cuts the text of a point here.
const POINT_TEXT_MAX: usize = 85;

/// One server of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What its points are made from: its name, or else `HOST:PORT`, and of the port 11211 the host alone.
    pub name: String,
    /// How many keys it takes beside others; one at least.
    pub weight: u32,
}

/// The ring. Points as (hash, server), in their order.
#[derive(Clone, Debug)]
pub struct Ketama {
    points: Box<[(u32, u32)]>,
}

impl Ketama {
    /// The ring of those servers, one at least, that take keys: by their places in the list of all. One that is left out is ejected, and
    /// its keys go to the others.
    pub fn new(servers: &[Server], takes_keys: impl Fn(usize) -> bool) -> Ketama {
        let taking: Vec<(usize, &Server)> =
            servers.iter().enumerate().filter(|(place, _)| takes_keys(*place)).collect();
        let weights: u32 = taking.iter().map(|(_, server)| server.weight).sum();
        let mut points = Vec::with_capacity(taking.len() * POINTS as usize);
        for (place, server) in &taking {
            for digest in 0..digests(server.weight, weights, taking.len()) {
                let mut text = format!("{}-{digest}", server.name);
                text.truncate(floor_boundary(&text, POINT_TEXT_MAX));
                let words = (0..POINTS_PER_DIGEST as usize).map(|word| md5_word(text.as_bytes(), word));
                points.extend(words.map(|word| (word, *place as u32)));
            }
        }
        // Two servers with a point in common: the one that stands first in the list.
        points.sort_by_key(|(word, _)| *word);
        Ketama { points: points.into() }
    }

    /// The server of a hash, by its place in the list of all.
    pub fn node(&self, hash: u32) -> usize {
        let next = self.points.partition_point(|(point, _)| *point < hash);
        self.points[if next == self.points.len() { 0 } else { next }].1 as usize
    }
}

/// Digests of a server: in single precision, as twemproxy computes them, or points would differ for some weights.
fn digests(weight: u32, weights: u32, servers: usize) -> u32 {
    let part = weight as f32 / weights as f32;
    let digests = f64::from(part * POINTS as f32 / POINTS_PER_DIGEST as f32 * servers as f32) + 0.000_000_000_1;
    (digests as f32).floor() as u32
}

fn floor_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
