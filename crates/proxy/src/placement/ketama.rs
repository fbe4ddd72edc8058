//! Consistent hashing as in libketama and twemproxy.
//!
//! A server of average weight has 160 points on a ring of 32 bits, four from each MD5 of `NAME-0`, `NAME-1` …; other weights have
//! proportionally more or fewer. A hash belongs to the server of the first point at or after it; after the last point the ring
//! continues with the first. Adding or removing a server therefore moves only the keys next to its points.

use super::hash::md5_word;

/// Points of a server of average weight.
const POINTS: u32 = 160;
/// Points from one MD5.
const POINTS_PER_DIGEST: u32 = 4;
/// twemproxy truncates the text of a point at this length.
const POINT_TEXT_MAX: usize = 85;

/// One server of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingServer {
    /// The text from which its points are computed: its name, or else `HOST:PORT`, without the port if it is 11211.
    pub name: String,
    /// Its share of the keys, relative to the others; at least one.
    pub weight: u32,
}

/// The ring. Points are (hash, server), sorted by hash.
#[derive(Clone, Debug)]
pub struct Ketama {
    points: Box<[(u32, u32)]>,
}

impl Ketama {
    /// The ring of the servers for which `takes_keys` is true, by their positions in the list of all; at least one must be. The
    /// keys of an ejected server go to the others.
    pub fn new(servers: &[RingServer], takes_keys: impl Fn(usize) -> bool) -> Ketama {
        let taking = sorted_by_name(servers, takes_keys);
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
        // The sort is stable: a point that two servers share belongs to the first of them by name.
        points.sort_by_key(|(word, _)| *word);
        Ketama { points: points.into() }
    }

    /// The server of a hash, by its position in the list of all.
    pub fn node(&self, hash: u32) -> usize {
        let next = self.points.partition_point(|(point, _)| *point < hash);
        self.points[if next == self.points.len() { 0 } else { next }].1 as usize
    }
}

/// The servers for which `takes_keys` is true, with their positions in the list, as twemproxy sorts them: shorter names first.
pub(super) fn sorted_by_name(servers: &[RingServer], takes_keys: impl Fn(usize) -> bool) -> Vec<(usize, &RingServer)> {
    let mut taking: Vec<(usize, &RingServer)> =
        servers.iter().enumerate().filter(|(place, _)| takes_keys(*place)).collect();
    taking.sort_by_key(|(_, server)| (server.name.len(), &server.name));
    taking
}

/// Number of digests of a server, in single precision as twemproxy computes it; otherwise points would differ for some weights.
fn digests(weight: u32, weights: u32, servers: usize) -> u32 {
    let part = weight as f32 / weights as f32;
    let digests = f64::from(part * POINTS as f32 / POINTS_PER_DIGEST as f32 * servers as f32) + 0.000_000_000_1;
    (digests as f32).floor() as u32
}

fn floor_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
