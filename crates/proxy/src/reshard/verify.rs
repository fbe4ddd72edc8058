//! Compares the source with the nodes, key by key.
//!
//! Equal dumps are equal values. Dumps of equal values may differ (sets and hashes are unordered, versions have different
//! formats), so if they do, the values themselves are compared: of a stream the entries, the greatest id, and its groups with their
//! consumers and pending entries. A key that changes during the comparison is compared once more. A key that only one side has, and that
//! expires at this time, is no difference.

use resp::{ClientSettings, CommandError, Pipeline, ReplyValue};

use super::error::ServerRole;
use super::reader::{Change, Content, EXPIRY_DIFFERENCE_MS, Expiry, Reader};
use super::servers::{Server, clock_offset};
use super::{Reshard, ReshardError, groups};

/// Largest number of keys that are reported by name.
const LISTED_MAX: usize = 20;
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

/// Whether a key of a node that the source does not have, and that expires about now, is the node's own or an extra key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiring {
    Own,
    Extra,
}

/// A compared node. Its connections are kept for the whole comparison, however many keys differ.
struct Compared {
    reader: Reader,
    /// By how much its clock is ahead of the source's, in milliseconds.
    clock_offset: i64,
}

impl Compared {
    fn new(source: &mut Server, settings: &ClientSettings) -> Result<Compared, ReshardError> {
        let mut reader = Reader::new(settings, ServerRole::Node);
        let clock_offset = clock_offset(source, &mut reader.server)?;
        Ok(Compared { reader, clock_offset })
    }

    /// Reads a key with the commands of its type, from the source and from this node.
    fn difference_of_values(&mut self, source: &mut Reader, key: &[u8]) -> Result<Option<&'static str>, ReshardError> {
        let (here, there) = (read(source, key)?, read(&mut self.reader, key)?);
        Ok(match (here, there) {
            (None, None) => None,
            (Some((_, expiry)), None) if is_over(expiry, &mut self.reader.server, self.clock_offset)? => None,
            (None, Some((_, expiry))) if is_over(expiry, &mut source.server, -self.clock_offset)? => None,
            (Some(_), None) => Some("is not on its node"),
            (None, Some(_)) => Some("is not in the source"),
            (Some((here, _)), Some((there, _))) if here != there => Some("has another value on its node"),
            (Some((_, here)), Some((_, there))) if !here.is_near(there, self.clock_offset) => {
                Some("has another time to live on its node")
            }
            _ => None,
        })
    }
}

/// Whether a key that one server has expires about now, by the clock of the other, which is ahead by `clock_offset`.
fn is_over(expiry: Expiry, other: &mut Server, clock_offset: i64) -> Result<bool, ReshardError> {
    let Some(at) = expiry.at(clock_offset) else { return Ok(false) };
    Ok(at <= other.time_ms()?.saturating_add(EXPIRY_DIFFERENCE_MS))
}

impl Reshard<'_> {
    /// Compares every key, its value and its time to live.
    ///
    /// # Errors
    /// The source or a node is unreachable, or refuses a command; [`ReshardError::Stopped`].
    pub fn verify(&self, on_progress: &mut dyn FnMut(u64)) -> Result<Verified, ReshardError> {
        let mut found = Verified::default();
        for one in self.each_database()? {
            one.verify_database(&mut found, on_progress)?;
        }
        let extra = &mut found.extra;
        let mut extra_keys = 0;
        for one in self.each_database()? {
            extra_keys += one.each_extra_key(Expiring::Own, |_, keys| {
                extra.extend(keys.iter().take(LISTED_MAX.saturating_sub(extra.len())).cloned());
                Ok(())
            })?;
        }
        found.extra_keys = extra_keys;
        Ok(found)
    }

    fn verify_database(&self, found: &mut Verified, on_progress: &mut dyn FnMut(u64)) -> Result<(), ReshardError> {
        let mut source = Reader::new(&self.plan.source, ServerRole::Source);
        let nodes = self.plan.nodes.iter().map(|node| Compared::new(&mut source.server, node));
        let mut nodes = nodes.collect::<Result<Vec<Compared>, ReshardError>>()?;
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            self.check_stop()?;
            let (next, mut keys) = source.scan(at)?;
            cursor = (next != 0).then_some(next);
            let scanned = keys.len() as u64;
            keys.retain(|key| self.plan.has(key));
            for chunk in keys.chunks(source.chunk_keys().max(1)) {
                self.check_stop()?;
                self.compare(&mut source, &mut nodes, chunk, found)?;
            }
            on_progress(scanned);
        }
        Ok(())
    }

    /// Compares some keys.
    fn compare(
        &self,
        source: &mut Reader,
        nodes: &mut [Compared],
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
            let there = node.reader.dump(keys)?;
            for (here, there) in changes.iter().zip(&there) {
                if differs(&here.content, &there.content, node.clock_offset)
                    && let Some(how) = node.difference_of_values(source, &here.key)?
                {
                    found.add(&here.key, how);
                }
            }
        }
        Ok(())
    }

    /// Finds keys on the nodes that the source does not have or that belong to another node. Calls `each` with a connection to a node
    /// and the extra keys of one chunk; returns their number. Checks for a stop before each chunk.
    pub(super) fn each_extra_key(
        &self,
        expiring: Expiring,
        mut each: impl FnMut(&mut Server, &[Vec<u8>]) -> Result<(), ReshardError>,
    ) -> Result<u64, ReshardError> {
        let (mut source, mut count) = (Reader::new(&self.plan.source, ServerRole::Source), 0);
        for (place, settings) in self.plan.nodes.iter().enumerate() {
            let mut node = Compared::new(&mut source.server, settings)?;
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                self.check_stop()?;
                let (next, mut keys) = node.reader.scan(at)?;
                cursor = (next != 0).then_some(next);
                keys.retain(|key| self.plan.has(key));
                for keys in keys.chunks(ASKED_AT_ONCE) {
                    self.check_stop()?;
                    let extra = self.extra_keys(&mut source.server, &mut node, place, keys, expiring)?;
                    count += extra.len() as u64;
                    if !extra.is_empty() {
                        each(&mut node.reader.server, &extra)?;
                    }
                }
            }
        }
        Ok(count)
    }

    /// The keys of the node at this position that the source does not have or that belong to another node.
    fn extra_keys(
        &self,
        source: &mut Server,
        node: &mut Compared,
        place: usize,
        keys: &[Vec<u8>],
        expiring: Expiring,
    ) -> Result<Vec<Vec<u8>>, ReshardError> {
        let mut pipeline = Pipeline::new();
        for key in keys {
            pipeline.add(("EXISTS", key));
        }
        let known = source.pipeline::<bool>(&pipeline)?;
        let mut extra = Vec::new();
        for (key, known) in keys.iter().zip(known) {
            let is_known = known.map_err(|error| source.error(CommandError::Server(error)))?;
            if self.plan.placement.node(key, 0) != place {
                extra.push(key.clone());
            } else if !is_known {
                let expiry = node.reader.expiry(key)?;
                let expires = expiring == Expiring::Own && is_over(expiry, source, -node.clock_offset)?;
                if expiry != Expiry::Missing && !expires {
                    extra.push(key.clone());
                }
            }
        }
        Ok(extra)
    }
}

/// Whether dumps or expiry times differ.
fn differs(here: &Content, there: &Content, clock_offset: i64) -> bool {
    match (here, there) {
        (Content::Dumped { dump: a, expiry: x }, Content::Dumped { dump: b, expiry: y }) => {
            a != b || !x.is_near(*y, clock_offset)
        }
        (Content::Gone, Content::Gone) => false,
        _ => true,
    }
}

/// A value in a canonical form.
#[derive(PartialEq)]
struct Value {
    kind: String,
    value: ReplyValue,
    /// Of a stream.
    last_id: Vec<u8>,
    groups: Vec<groups::Group>,
}

/// The value of a key, and when it expires; none if the key does not exist.
fn read(reader: &mut Reader, key: &[u8]) -> Result<Option<(Value, Expiry)>, ReshardError> {
    let value = read_value(&mut reader.server, key);
    match (reader.expiry(key)?, value) {
        // It may have expired between two commands.
        (Expiry::Missing, Ok(_) | Err(ReshardError::Server { error: CommandError::Server(_), .. })) => Ok(None),
        (expiry, value) => Ok(Some((value?, expiry))),
    }
}

fn read_value(server: &mut Server, key: &[u8]) -> Result<Value, ReshardError> {
    let kind: String = server.command(("TYPE", key))?;
    let mut value: ReplyValue = match kind.as_str() {
        "string" => server.command(("GET", key))?,
        "list" => server.command(("LRANGE", key, 0, -1))?,
        "hash" => server.command(("HGETALL", key))?,
        "set" => server.command(("SMEMBERS", key))?,
        "zset" => server.command(("ZRANGE", key, 0, -1, "WITHSCORES"))?,
        "stream" => server.command(("XRANGE", key, "-", "+"))?,
        _ => server.command(("DUMP", key))?,
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
    let (last_id, groups) = match kind.as_str() {
        "stream" => (groups::last_id(server, key)?, groups::read(server, key)?),
        _ => Default::default(),
    };
    Ok(Value { kind, value, last_id, groups })
}
