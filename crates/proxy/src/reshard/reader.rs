//! Reads keys of a server, in SCAN's order, and the content of each with the time at which it expires.
//!
//! Times are absolute (PEXPIRETIME): however long a server stalls between reading and writing, no key lives longer on its node than in
//! the source. Servers before Redis 7 do not know the command; their clock and the time to live give the same.

use resp::{ClientSettings, Pipeline, ReplyValue};

use super::error::ServerRole;
use super::servers::{Origin, Server};
use super::{CHUNK_BYTES, CHUNK_KEYS_MAX, ReshardError};

/// Approximate number of keys per SCAN.
const SCAN_COUNT: usize = 1_000;

/// Expiry times that differ by less are equal: clocks do, and servers before Redis 7 tell them less exactly.
pub(super) const EXPIRY_DIFFERENCE_MS: i64 = 2_000;

/// What is written for a key.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) key: Vec<u8>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The result of DUMP.
    Dumped { dump: Vec<u8>, expiry: Expiry },
    /// The value that the source has at the time of writing, read with the commands of its type.
    ByType,
    /// The key does not exist.
    Gone,
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// There is no such key.
    Missing,
    Never,
    /// In milliseconds since 1970, by the clock of the server.
    At(i64),
}

impl Expiry {
    /// From the reply to PEXPIRETIME, or from that to PTTL and the time of the latter.
    fn of(milliseconds: i64, now: i64) -> Expiry {
        match milliseconds {
            -1 => Expiry::Never,
            0.. => Expiry::At(milliseconds.saturating_add(now)),
            _ => Expiry::Missing,
        }
    }

    /// Whether a key with this expiry expires at the time of another key, on a server whose clock is ahead by so much.
    pub(super) fn is_near(self, other: Expiry, clock_offset: i64) -> bool {
        match (self.at(clock_offset), other.at(0)) {
            (Some(a), Some(b)) => a.abs_diff(b) <= EXPIRY_DIFFERENCE_MS.unsigned_abs(),
            _ => self == other,
        }
    }

    /// The time by a clock that is ahead by so much.
    pub(super) fn at(self, clock_offset: i64) -> Option<i64> {
        if let Expiry::At(at) = self { Some(at.saturating_add(clock_offset).max(1)) } else { None }
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
pub(super) struct Reader {
    pub(super) server: Server,
    /// Number of keys of the next chunk, estimated from the last one.
    chunk_keys: usize,
    /// Whether the server knows PEXPIRETIME, once that was asked.
    knows_expiry_time: Option<bool>,
}

impl Reader {
    pub(super) fn new(settings: &ClientSettings, role: ServerRole) -> Reader {
        Reader { server: Server::new(settings, role), chunk_keys: CHUNK_KEYS_MAX / 10, knows_expiry_time: None }
    }

    /// Checks that the source is still what it was at the beginning.
    pub(super) fn check(&mut self, origin: &Origin) -> Result<(), ReshardError> {
        origin.check(&mut self.server)
    }

    /// Number of keys of the database.
    pub(super) fn count(&mut self) -> Result<u64, ReshardError> {
        self.server.command("DBSIZE")
    }

    /// Some keys, and the next cursor; 0 at the end. A key may be returned twice.
    pub(super) fn scan(&mut self, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), ReshardError> {
        self.server.command(("SCAN", cursor, "COUNT", SCAN_COUNT))
    }

    pub(super) fn chunk_keys(&self) -> usize {
        self.chunk_keys
    }

    /// When keys expire, each with the reply to a further command for it if `more` gives one.
    fn read(
        &mut self,
        keys: &[Vec<u8>],
        more: Option<&str>,
    ) -> Result<Vec<(Expiry, Option<ReplyValue>)>, ReshardError> {
        let knows = match self.knows_expiry_time {
            Some(knows) => knows,
            None => self.server.ask::<i64>(("PEXPIRETIME", ""))?.is_ok(),
        };
        self.knows_expiry_time = Some(knows);
        let mut pipeline = Pipeline::new();
        for key in keys {
            // The expiry first: if the key is written in between, the copy has the old expiry rather than none, and the write is
            // followed as a change.
            if knows {
                pipeline.add(("PEXPIRETIME", key));
            } else {
                pipeline.add("TIME").add(("PTTL", key));
            }
            if let Some(command) = more {
                pipeline.add((command, key));
            }
        }
        let mut replies = self.server.all::<ReplyValue>(&pipeline)?.into_iter();
        let mut next = || replies.next().unwrap_or(ReplyValue::Null);
        let reading = keys.iter().map(|_| {
            let now = if knows { 0 } else { milliseconds(&next()) };
            let expiry = if let ReplyValue::Integer(left) = next() { Expiry::of(left, now) } else { Expiry::Missing };
            (expiry, more.map(|_| next()))
        });
        Ok(reading.collect())
    }

    /// When a key expires.
    pub(super) fn expiry(&mut self, key: &[u8]) -> Result<Expiry, ReshardError> {
        let read = self.read(&[key.to_vec()], None)?;
        Ok(read.first().map_or(Expiry::Missing, |(expiry, _)| *expiry))
    }

    /// Reads these keys in one pipeline.
    pub(super) fn dump(&mut self, keys: Vec<Vec<u8>>) -> Result<Vec<Change>, ReshardError> {
        let read = self.read(&keys, Some("DUMP"))?;
        let content = |(expiry, dump)| match (expiry, dump) {
            (Expiry::Never | Expiry::At(_), Some(ReplyValue::Bulk(dump))) => Content::Dumped { dump, expiry },
            _ => Content::Gone,
        };
        let changes: Vec<Change> =
            keys.into_iter().zip(read).map(|(key, read)| Change { key, content: content(read) }).collect();
        let mean = changes.iter().map(Change::bytes).sum::<usize>() / changes.len().max(1);
        self.chunk_keys = (CHUNK_BYTES / mean.max(1)).clamp(1, CHUNK_KEYS_MAX);
        Ok(changes)
    }
}

/// The reply to TIME: seconds and microseconds.
fn milliseconds(time: &ReplyValue) -> i64 {
    let number = |part: Option<&ReplyValue>| match part {
        Some(ReplyValue::Bulk(digits)) => std::str::from_utf8(digits).ok()?.parse::<i64>().ok(),
        _ => None,
    };
    let ReplyValue::Array(parts) = time else { return 0 };
    number(parts.first()).unwrap_or_default() * 1_000 + number(parts.get(1)).unwrap_or_default() / 1_000
}
