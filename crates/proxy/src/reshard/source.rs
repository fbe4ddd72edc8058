//! Reading keys: in which order they come, and what each is.

use std::time::{Duration, Instant};

use resp::{Client, Pipeline, Settings, Value};

use super::{CHUNK_BYTES, CHUNK_KEYS_MAX, ReshardError};

/// Keys that one SCAN looks at, about.
const SCAN_COUNT: usize = 1_000;

/// What is to be written of a key.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) key: Vec<u8>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// What DUMP gives.
    Dumped { dump: Vec<u8>, expiry: Option<Expiry> },
    /// Whatever the source has by then, read by the commands of its type.
    ByType,
    /// There is no such key.
    Gone,
}

/// When a key expires. Kept as a moment of this machine's clock that never goes back: clocks of servers differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiry(Instant);

impl Expiry {
    /// From what PTTL answers; none for a key that does not expire.
    pub(super) fn of(milliseconds: i64) -> Option<Expiry> {
        u64::try_from(milliseconds).ok().map(|left| Expiry(Instant::now() + Duration::from_millis(left)))
    }

    /// What RESTORE and PEXPIRE are told: one at least, since zero means never.
    pub(super) fn milliseconds(self) -> u64 {
        let left = self.0.saturating_duration_since(Instant::now());
        u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
    }
}

impl Change {
    pub(super) fn by_type(keys: Vec<Vec<u8>>) -> Vec<Change> {
        keys.into_iter().map(|key| Change { key, content: Content::ByType }).collect()
    }

    /// Bytes of what is written.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Dumped { dump, .. } => self.key.len() + dump.len(),
            Content::ByType | Content::Gone => self.key.len(),
        }
    }
}

/// A connection that reads.
pub(super) struct Source {
    client: Client,
    /// Keys of the next chunk, by the sizes of the last one.
    chunk_keys: usize,
}

impl Source {
    pub(super) fn new(settings: &Settings) -> Source {
        Source { client: Client::new(settings.clone()), chunk_keys: CHUNK_KEYS_MAX / 10 }
    }

    /// Keys of the database.
    pub(super) fn count(&mut self) -> Result<u64, ReshardError> {
        self.client.command("DBSIZE").map_err(ReshardError::Source)
    }

    /// Some keys, and the cursor behind them; 0 at the end. A key may come twice.
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
            // The time first: a key that is written in between then has its old time, never none, and a change of it is a change.
            pipeline.add(("PTTL", key.as_slice())).add(("DUMP", key.as_slice()));
        }
        let replies = self.client.pipeline::<Value>(&pipeline).map_err(ReshardError::Source)?;
        let (mut changes, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        let mut replies = replies.into_iter();
        for key in keys {
            let (Some(left), Some(dump)) = (replies.next(), replies.next()) else { break };
            let content = match (left.map_err(ReshardError::Source)?, dump.map_err(ReshardError::Source)?) {
                (Value::Integer(left), Value::Bulk(dump)) => Content::Dumped { dump, expiry: Expiry::of(left) },
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
