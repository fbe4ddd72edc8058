//! Copies a key with the commands of its type, piece by piece, between versions that cannot read each other's dumps.
//!
//! The key is first removed from the node, and is complete only at the end of the copy. For a stream, the entries and the groups'
//! positions are copied, but not the entries that consumers have not acknowledged.

use resp::{Client, ClientSettings, CommandError, FromReply, Pipeline, ReplyValue, ToArguments};
use std::collections::HashMap;

use super::ReshardError;
use super::servers::SourceIdentity;
use super::source::Expiry;

/// The answer of XINFO for a key that is not there.
const NO_KEY: &str = "ERR no such key";
/// Elements that are read and written at a time.
const PIECE: usize = 500;

/// Elements as the source returns them, or as the node's command expects them.
type Texts = Vec<Vec<u8>>;

/// Copies one key; a key that is missing in the source is removed from the node.
pub(super) fn copy(
    (source, identity): (&mut Client, &SourceIdentity),
    (target, node): (&mut Client, &ClientSettings),
    key: &[u8],
) -> Result<(), ReshardError> {
    let mut copy = Copy { source, target, node, key };
    let kind: String = copy.read(("TYPE", key))?;
    if kind == "none" {
        identity.check(copy.source)?;
    }
    copy.write(("DEL", key))?;
    match kind.as_str() {
        "none" => return Ok(()),
        "string" => {
            if let Some(value) = copy.read::<Option<Vec<u8>>>(("GET", key))? {
                copy.write(("SET", key, value))?;
            }
        }
        "list" => copy.list()?,
        "hash" => copy.scanned("HSCAN", "HSET", |texts| texts)?,
        "set" => copy.scanned("SSCAN", "SADD", |texts| texts)?,
        // ZSCAN returns member and score; ZADD expects score and member.
        "zset" => copy.scanned("ZSCAN", "ZADD", |texts| {
            let (pairs, _) = texts.as_chunks::<2>();
            pairs.iter().flat_map(|[member, score]| [score.clone(), member.clone()]).collect()
        })?,
        "stream" => copy.stream()?,
        _ => return Err(ReshardError::Type { key: key.to_vec(), kind }),
    }
    let left: i64 = copy.read(("PTTL", key))?;
    match Expiry::of(left) {
        Some(expiry) => copy.write(("PEXPIRE", key, expiry.milliseconds())),
        None => Ok(()),
    }
}

struct Copy<'c> {
    source: &'c mut Client,
    target: &'c mut Client,
    node: &'c ClientSettings,
    key: &'c [u8],
}

impl Copy<'_> {
    fn read<T: FromReply>(&mut self, command: impl ToArguments) -> Result<T, ReshardError> {
        self.source.command(command).map_err(ReshardError::Source)
    }

    fn write(&mut self, command: impl ToArguments) -> Result<(), ReshardError> {
        self.target.command::<()>(command).map_err(|error| ReshardError::of_node(self.node, error))
    }

    fn list(&mut self) -> Result<(), ReshardError> {
        for from in (0..).step_by(PIECE) {
            let texts: Texts = self.read(("LRANGE", self.key, from, from + PIECE - 1))?;
            if texts.is_empty() {
                break;
            }
            self.write(("RPUSH", self.key, texts))?;
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
                self.write((add, self.key, ordered(piece.to_vec())))?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn stream(&mut self) -> Result<(), ReshardError> {
        let (mut from, mut is_empty) = ("-".to_owned(), true);
        loop {
            let entries: Vec<(String, Texts)> = self.read(("XRANGE", self.key, from.as_str(), "+", "COUNT", PIECE))?;
            let Some((last, _)) = entries.last() else { break };
            (from, is_empty) = (behind(last), false);
            let mut pipeline = Pipeline::new();
            for (id, fields) in &entries {
                pipeline.add(("XADD", self.key, id, fields));
            }
            self.write_all(&pipeline)?;
        }
        let groups: Vec<HashMap<String, ReplyValue>> = match self.read(("XINFO", "GROUPS", self.key)) {
            // It was removed meanwhile.
            Err(ReshardError::Source(CommandError::Server(error))) if error.text() == NO_KEY => return Ok(()),
            groups => groups?,
        };
        let mut pipeline = Pipeline::new();
        if is_empty && groups.is_empty() {
            // Only the making of a group makes a stream without entries.
            pipeline.add(("XGROUP", "CREATE", self.key, "none", "0", "MKSTREAM"));
            pipeline.add(("XGROUP", "DESTROY", self.key, "none"));
        }
        for group in groups {
            if let (Some(name), Some(delivered)) = (text(group.get("name")), text(group.get("last-delivered-id"))) {
                pipeline.add(("XGROUP", "CREATE", self.key, name, delivered, "MKSTREAM"));
            }
        }
        self.write_all(&pipeline)
    }

    fn write_all(&mut self, pipeline: &Pipeline) -> Result<(), ReshardError> {
        let results = self.target.pipeline::<()>(pipeline);
        let outcome: Result<Vec<()>, CommandError> = results.and_then(|results| results.into_iter().collect());
        outcome.map(drop).map_err(|error| ReshardError::of_node(self.node, error))
    }
}

/// The id that follows this one, of the form MILLISECONDS-NUMBER.
fn behind(id: &str) -> String {
    let (milliseconds, number) = id.split_once('-').unwrap_or((id, "0"));
    match number.parse::<u64>().ok().and_then(|number| number.checked_add(1)) {
        Some(next) => format!("{milliseconds}-{next}"),
        None => format!("{}-0", milliseconds.parse::<u64>().map_or(u64::MAX, |milliseconds| milliseconds + 1)),
    }
}

fn text(value: Option<&ReplyValue>) -> Option<Vec<u8>> {
    match value? {
        ReplyValue::Bulk(bytes) => Some(bytes.clone()),
        ReplyValue::Simple(text) => Some(text.clone().into_bytes()),
        _ => None,
    }
}
