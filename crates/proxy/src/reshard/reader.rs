//! Reads keys of the source, in SCAN's order, and the content of each.

use std::time::{Duration, Instant};

use resp::{Client, ClientSettings, Pipeline, ReplyValue};

use super::servers::{self, SourceIdentity};
use super::{CHUNK_BYTES, CHUNK_KEYS_MAX, ReshardError};

/// Approximate number of keys per SCAN.
const SCAN_COUNT: usize = 1_000;

/// What is written for a key.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) key: Vec<u8>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The result of DUMP.
    Dumped { dump: Vec<u8>, expiry: Option<Expiry> },
    /// The value that the source has at the time of writing, read with the commands of its type.
    ByType,
    /// The key does not exist.
    Gone,
}

/// When a key expires, on this machine's monotonic clock: the servers' clocks differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiry(Instant);

impl Expiry {
    /// From the reply to PTTL; none for a key that does not expire.
    pub(super) fn of(milliseconds: i64) -> Option<Expiry> {
        u64::try_from(milliseconds).ok().map(|left| Expiry(Instant::now() + Duration::from_millis(left)))
    }

    /// The time for RESTORE and PEXPIRE: at least one, because zero means never.
    pub(super) fn milliseconds(self) -> u64 {
        let left = self.0.saturating_duration_since(Instant::now());
        u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
    }
}

impl Change {
    pub(super) fn by_type(keys: Vec<Vec<u8>>) -> Vec<Change> {
        keys.into_iter().map(|key| Change { key, content: Content::ByType }).collect()
    }

    /// Bytes to write.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Dumped { dump, .. } => self.key.len() + dump.len(),
            Content::ByType | Content::Gone => self.key.len(),
        }
    }
}

/// A connection for reading.
pub(super) struct Source {
    client: Client,
    /// Number of keys of the next chunk, estimated from the last one.
    chunk_keys: usize,
}

impl Source {
    pub(super) fn new(settings: &ClientSettings) -> Source {
        Source { client: servers::client(settings), chunk_keys: CHUNK_KEYS_MAX / 10 }
    }

    /// Checks that the source is still what it was at the beginning.
    pub(super) fn check(&mut self, identity: &SourceIdentity) -> Result<(), ReshardError> {
        identity.check(&mut self.client)
    }

    /// Number of keys of the database.
    pub(super) fn count(&mut self) -> Result<u64, ReshardError> {
        self.client.command("DBSIZE").map_err(ReshardError::Source)
    }

    /// Some keys, and the next cursor; 0 at the end. A key may be returned twice.
    pub(super) fn scan(&mut self, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), ReshardError> {
        self.client.command(("SCAN", cursor, "COUNT", SCAN_COUNT)).map_err(ReshardError::Source)
    }

    pub(super) fn chunk_keys(&self) -> usize {
        self.chunk_keys
    }

    /// Reads these keys in one pipeline.
    pub(super) fn dump(&mut self, keys: Vec<Vec<u8>>) -> Result<Vec<Change>, ReshardError> {
        let mut pipeline = Pipeline::new();
        for key in &keys {
            // PTTL first: if the key is written in between, the copy has the old expiry rather than none, and the write is
            // reported as a change.
            pipeline.add(("PTTL", key.as_slice())).add(("DUMP", key.as_slice()));
        }
        let replies = self.client.pipeline::<ReplyValue>(&pipeline).map_err(ReshardError::Source)?;
        let (mut changes, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        let mut replies = replies.into_iter();
        for key in keys {
            let (Some(left), Some(dump)) = (replies.next(), replies.next()) else { break };
            let content = match (left.map_err(ReshardError::Source)?, dump.map_err(ReshardError::Source)?) {
                (ReplyValue::Integer(left), ReplyValue::Bulk(dump)) => {
                    Content::Dumped { dump, expiry: Expiry::of(left) }
                }
                _ => Content::Gone,
            };
            let change = Change { key, content };
            bytes += change.bytes();
            changes.push(change);
        }
        let mean = bytes / changes.len().max(1);
        self.chunk_keys = (CHUNK_BYTES / mean.max(1)).clamp(1, CHUNK_KEYS_MAX);
        Ok(changes)
    }
}
