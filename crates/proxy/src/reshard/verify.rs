//! Compares the source with the nodes, key by key.
//!
//! Equal dumps are equal values. Dumps of equal values may differ (sets and hashes are unordered, versions have different
//! formats), so if they do, the values themselves are compared. A key that changes during the comparison is compared once more.
//! Streams are compared by their entries, not by their consumer groups.

use resp::{Client, ClientSettings, Pipeline, ReplyValue};

use super::source::{Change, Content, Expiry, Source};
use super::{Reshard, ReshardError, servers};

/// Largest number of keys that are reported by name.
const LISTED_MAX: usize = 20;
/// Times to live that differ by less are equal: they are read one after the other, and time passes in between.
const EXPIRY_DIFFERENCE_MS: u64 = 2_000;
/// Keys in one pipeline of queries.
const ASKED_AT_ONCE: usize = 500;

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Keys of the source that were compared.
    pub keys: u64,
    /// The keys that differ; only the first [`LISTED_MAX`] of them.
    pub differing: Vec<Differing>,
    /// Number of keys that differ.
    pub differing_keys: u64,
    /// Number of keys that are on the nodes but not in the source.
    pub extra_keys: u64,
    /// These keys; only the first [`LISTED_MAX`] of them.
    pub extra: Vec<Vec<u8>>,
}

/// A key that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// The key.
    pub key: Vec<u8>,
    /// How it differs, as text.
    pub how: &'static str,
}

impl Verified {
    /// Whether the nodes hold exactly the source's keys and values.
    pub fn is_equal(&self) -> bool {
        self.differing_keys == 0 && self.extra_keys == 0
    }

    fn add(&mut self, key: &[u8], how: &'static str) {
        self.differing_keys += 1;
        if self.differing.len() < LISTED_MAX {
            self.differing.push(Differing { key: key.to_vec(), how });
        }
    }
}

/// A compared node. Its connections are kept for the whole comparison, however many keys differ.
struct Compared<'s> {
    settings: &'s ClientSettings,
    /// Reads chunks of dumps.
    dumps: Source,
    /// Reads the values of single keys.
    values: Client,
}

impl<'s> Compared<'s> {
    fn new(settings: &'s ClientSettings) -> Compared<'s> {
        Compared { settings, dumps: Source::new(settings), values: servers::client(settings) }
    }

    /// Reads a key with the commands of its type, from the source and from this node.
    fn difference_of_values(&mut self, source: &mut Client, key: &[u8]) -> Result<Option<&'static str>, ReshardError> {
        let here = read(source, key).map_err(ReshardError::Source)?;
        let there = read(&mut self.values, key).map_err(|error| ReshardError::of_node(self.settings, error))?;
        Ok(match (here, there) {
            (None, None) => None,
            // The key expires between the two reads.
            (Some((_, Some(left))), None) | (None, Some((_, Some(left)))) if left <= EXPIRY_DIFFERENCE_MS => None,
            (Some(_), None) => Some("is not on its node"),
            (None, Some(_)) => Some("is not in the source"),
            (Some((here, _)), Some((there, _))) if here != there => Some("has another value on its node"),
            (Some((_, here)), Some((_, there))) if !is_near(here, there) => {
                Some("has another time to live on its node")
            }
            _ => None,
        })
    }
}

impl Reshard<'_> {
    /// Compares every key, its value and its time to live.
    ///
    /// # Errors
    /// The source or a node is unreachable, or refuses a command; [`ReshardError::Stopped`].
    pub fn verify(&self, on_progress: &mut dyn FnMut(u64)) -> Result<Verified, ReshardError> {
        let mut source = Source::new(&self.plan.source);
        let mut nodes: Vec<Compared<'_>> = self.plan.nodes.iter().map(Compared::new).collect();
        let mut values = servers::client(&self.plan.source);
        let (mut found, mut cursor) = (Verified::default(), Some(0));
        while let Some(at) = cursor {
            self.check_stop()?;
            let (next, keys) = source.scan(at)?;
            cursor = (next != 0).then_some(next);
            for chunk in keys.chunks(source.chunk_keys().max(1)) {
                self.check_stop()?;
                self.compare((&mut source, &mut values), &mut nodes, chunk, &mut found)?;
                on_progress(chunk.len() as u64);
            }
        }
        let extra = &mut found.extra;
        found.extra_keys = self.each_extra_key(|_, keys| {
            extra.extend(keys.iter().take(LISTED_MAX - extra.len()).cloned());
            Ok(())
        })?;
        Ok(found)
    }

    /// Compares some keys. `source` and `values` both read from the source: dumps, and the values of keys whose dumps differ.
    fn compare(
        &self,
        (source, values): (&mut Source, &mut Client),
        nodes: &mut [Compared<'_>],
        keys: &[Vec<u8>],
        found: &mut Verified,
    ) -> Result<(), ReshardError> {
        found.keys += keys.len() as u64;
        let mut by_node: Vec<Vec<Change>> = nodes.iter().map(|_| Vec::new()).collect();
        for change in source.dump(keys.to_vec())? {
            by_node[self.plan.placement.node(&change.key, 0)].push(change);
        }
        for (node, changes) in nodes.iter_mut().zip(by_node) {
            let keys = changes.iter().map(|change| change.key.clone()).collect();
            let there = node.dumps.dump(keys).map_err(|error| error.at(node.settings))?;
            for (here, there) in changes.iter().zip(&there) {
                if differs(&here.content, &there.content)
                    && let Some(how) = node.difference_of_values(values, &here.key)?
                {
                    found.add(&here.key, how);
                }
            }
        }
        Ok(())
    }

    /// Finds keys on the nodes that the source does not have or that belong to another node. Calls `each` with a node's client
    /// and the extra keys of one chunk; returns their number. Checks for a stop before each chunk.
    pub(super) fn each_extra_key(
        &self,
        mut each: impl FnMut(&mut Client, &[Vec<u8>]) -> Result<(), ReshardError>,
    ) -> Result<u64, ReshardError> {
        let (mut client, mut count) = (servers::client(&self.plan.source), 0);
        for (place, settings) in self.plan.nodes.iter().enumerate() {
            let (mut node, mut writer) = (Source::new(settings), servers::client(settings));
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                self.check_stop()?;
                let (next, keys) = node.scan(at).map_err(|error| error.at(settings))?;
                cursor = (next != 0).then_some(next);
                for keys in keys.chunks(ASKED_AT_ONCE) {
                    self.check_stop()?;
                    let extra = self.extra_keys(&mut client, keys, place)?;
                    count += extra.len() as u64;
                    if !extra.is_empty() {
                        each(&mut writer, &extra)?;
                    }
                }
            }
        }
        Ok(count)
    }

    /// The keys of the node at this position that the source does not have or that belong to another node.
    fn extra_keys(&self, source: &mut Client, keys: &[Vec<u8>], place: usize) -> Result<Vec<Vec<u8>>, ReshardError> {
        let mut pipeline = Pipeline::new();
        for key in keys {
            pipeline.add(("EXISTS", key));
        }
        let known = source.pipeline::<bool>(&pipeline).map_err(ReshardError::Source)?;
        let mut extra = Vec::new();
        for (key, known) in keys.iter().zip(known) {
            if !known.map_err(ReshardError::Source)? || self.plan.placement.node(key, 0) != place {
                extra.push(key.clone());
            }
        }
        Ok(extra)
    }
}

impl ReshardError {
    /// Attributes an error of reading to the node that was read.
    fn at(self, node: &ClientSettings) -> ReshardError {
        match self {
            ReshardError::Source(error) => ReshardError::of_node(node, error),
            other => other,
        }
    }
}

/// Whether dumps or times to live differ.
fn differs(here: &Content, there: &Content) -> bool {
    match (here, there) {
        (Content::Dumped { dump: a, expiry: x }, Content::Dumped { dump: b, expiry: y }) => {
            a != b || !is_near(x.map(Expiry::milliseconds), y.map(Expiry::milliseconds))
        }
        (Content::Gone, Content::Gone) => false,
        _ => true,
    }
}

fn is_near(a: Option<u64>, b: Option<u64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(b) <= EXPIRY_DIFFERENCE_MS,
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// A value in a canonical form, and its time to live in milliseconds; none if the key does not exist.
fn read(client: &mut Client, key: &[u8]) -> Result<Option<(ReplyValue, Option<u64>)>, resp::CommandError> {
    let kind: String = client.command(("TYPE", key))?;
    let mut value: ReplyValue = match kind.as_str() {
        "none" => return Ok(None),
        "string" => client.command(("GET", key))?,
        "list" => client.command(("LRANGE", key, 0, -1))?,
        "hash" => client.command(("HGETALL", key))?,
        "set" => client.command(("SMEMBERS", key))?,
        "zset" => client.command(("ZRANGE", key, 0, -1, "WITHSCORES"))?,
        "stream" => client.command(("XRANGE", key, "-", "+"))?,
        _ => client.command(("DUMP", key))?,
    };
    let by_bytes = |value: &ReplyValue| format!("{value:?}");
    match (&mut value, kind.as_str()) {
        (ReplyValue::Array(members) | ReplyValue::Set(members), "set") => members.sort_by_cached_key(by_bytes),
        (ReplyValue::Array(flat), "hash") => {
            let (pairs, _) = flat.as_chunks::<2>();
            let mut pairs: Vec<ReplyValue> = pairs.iter().map(|pair| ReplyValue::Array(pair.to_vec())).collect();
            pairs.sort_by_cached_key(by_bytes);
            *flat = pairs;
        }
        (ReplyValue::Map(pairs), "hash") => pairs.sort_by_cached_key(|(field, _)| by_bytes(field)),
        _ => {}
    }
    let left: i64 = client.command(("PTTL", key))?;
    Ok(Some((ReplyValue::Array(vec![ReplyValue::Simple(kind), value]), u64::try_from(left).ok())))
}
