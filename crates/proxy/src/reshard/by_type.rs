//! Copies a key with the commands of its type, piece by piece, between versions that cannot read each other's dumps.
//!
//! The key is first removed from the node, and is complete only at the end of the copy. Each piece comes with the time at which the key
//! expires, and at the end the source is asked once more: a key that expires, or is removed, while it is copied does not stay on its
//! node in part.

use resp::{FromReply, Pipeline, ToArguments};

use super::ReshardError;
use super::error::ServerRole;
use super::groups::{self, Group, PIECE};
use super::reader::Reader;
use super::servers::{Origin, Server};

/// How often a key is copied from its beginning because its type or its end has changed meanwhile.
const TRIES: usize = 10;

/// Elements as the source returns them, or as the node's command expects them.
type Texts = Vec<Vec<u8>>;

/// Copies one key to a node whose clock is ahead of the source's by `clock_offset`; a key that is missing in the source is removed
/// from the node.
pub(super) fn copy(
    source: &mut Reader,
    origin: &Origin,
    target: &mut Server,
    clock_offset: i64,
    key: &[u8],
) -> Result<(), ReshardError> {
    for tries_left in (0..TRIES).rev() {
        let kind: String = source.server.command(("TYPE", key))?;
        let expiry = source.expiry(key)?;
        let mut copy = Copy { source, target, key, kind: &kind, expiry: expiry.at(clock_offset) };
        match copy.whole(origin) {
            outcome if tries_left == 0 => return outcome,
            Err(ReshardError::Server { role: ServerRole::Source, error: resp::CommandError::Server(_), .. })
                if source.server.command::<String>(("TYPE", key))? != kind => {}
            Ok(()) if !source.expiry(key)?.is_near(expiry, 0) => {}
            outcome => return outcome,
        }
    }
    Ok(())
}

struct Copy<'c> {
    source: &'c mut Reader,
    target: &'c mut Server,
    key: &'c [u8],
    /// Its type.
    kind: &'c str,
    /// When it expires, by the node's clock.
    expiry: Option<i64>,
}

impl Copy<'_> {
    fn whole(&mut self, origin: &Origin) -> Result<(), ReshardError> {
        if self.kind == "none" {
            self.source.check(origin)?;
        }
        self.target.command::<()>(("DEL", self.key))?;
        match self.kind {
            "none" => Ok(()),
            "string" => match self.read::<Option<Vec<u8>>>(("GET", self.key))? {
                Some(value) => self.write(Pipeline::new().add(("SET", self.key, value))),
                None => Ok(()),
            },
            "list" => self.list(),
            "hash" => self.scanned("HSCAN", "HSET", |texts| texts),
            "set" => self.scanned("SSCAN", "SADD", |texts| texts),
            // ZSCAN returns member and score; ZADD expects score and member.
            "zset" => self.scanned("ZSCAN", "ZADD", |texts| {
                let (pairs, _) = texts.as_chunks::<2>();
                pairs.iter().flat_map(|[member, score]| [score.clone(), member.clone()]).collect()
            }),
            "stream" => self.stream(),
            kind => Err(ReshardError::Type { key: self.key.to_vec(), kind: kind.to_owned() }),
        }
    }

    fn read<T: FromReply>(&mut self, command: impl ToArguments) -> Result<T, ReshardError> {
        self.source.server.command(command)
    }

    /// Writes a piece, and the time at which the key expires.
    fn write(&mut self, piece: &mut Pipeline) -> Result<(), ReshardError> {
        if let Some(at) = self.expiry {
            piece.add(("PEXPIREAT", self.key, at));
        }
        self.target.all::<()>(piece).map(drop)
    }

    fn list(&mut self) -> Result<(), ReshardError> {
        for from in (0..).step_by(PIECE) {
            let texts: Texts = self.read(("LRANGE", self.key, from, from + PIECE - 1))?;
            if texts.is_empty() {
                break;
            }
            self.write(Pipeline::new().add(("RPUSH", self.key, texts)))?;
        }
        Ok(())
    }

    /// Copies a type whose elements are read with a cursor.
    fn scanned(&mut self, scan: &str, add: &str, ordered: impl Fn(Texts) -> Texts) -> Result<(), ReshardError> {
        let mut cursor = 0;
        loop {
            let (next, texts): (u64, Texts) = self.read((scan, self.key, cursor, "COUNT", PIECE))?;
            // A small value is returned whole, whatever COUNT says.
            for piece in texts.chunks(2 * PIECE) {
                self.write(Pipeline::new().add((add, self.key, ordered(piece.to_vec()))))?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn stream(&mut self) -> Result<(), ReshardError> {
        let mut from = "-".to_owned();
        loop {
            let entries: Vec<(String, Texts)> = self.read(("XRANGE", self.key, from.as_str(), "+", "COUNT", PIECE))?;
            let Some((last, _)) = entries.last() else { break };
            from = groups::behind(last);
            let mut piece = Pipeline::new();
            for (id, fields) in &entries {
                piece.add(("XADD", self.key, id, fields));
            }
            self.write(&mut piece)?;
        }
        // Only the making of a group makes a stream without entries.
        let mut piece = Pipeline::new();
        piece.add(("XGROUP", "CREATE", self.key, "sapsan-reshard", "0", "MKSTREAM"));
        piece.add(("XGROUP", "DESTROY", self.key, "sapsan-reshard"));
        piece.add(("XSETID", self.key, groups::last_id(&mut self.source.server, self.key)?));
        self.write(&mut piece)?;
        for group in groups::read(&mut self.source.server, self.key)? {
            self.group(&group)?;
        }
        Ok(())
    }

    fn group(&mut self, group: &Group) -> Result<(), ReshardError> {
        self.write(Pipeline::new().add(("XGROUP", "CREATE", self.key, &group.name, &group.delivered)))?;
        let mut consumers = Pipeline::new();
        for consumer in &group.consumers {
            consumers.add(("XGROUP", "CREATECONSUMER", self.key, &group.name, consumer));
        }
        // Before Redis 6.2 claiming an entry makes its consumer.
        self.target.pipeline::<u64>(&consumers)?;
        for pending in group.pending.chunks(PIECE) {
            let mut piece = Pipeline::new();
            for one in pending {
                let claim = ("XCLAIM", self.key, &group.name, &one.consumer, 0, &one.id);
                piece.add((claim, ("IDLE", one.idle_ms, "RETRYCOUNT", one.deliveries, "FORCE", "JUSTID")));
            }
            self.write(&mut piece)?;
        }
        Ok(())
    }
}
