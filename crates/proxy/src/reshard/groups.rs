//! Consumer groups of a stream: read to be written to a node, or to be compared, by commands that Redis has from 5.0 on.

use std::collections::{BTreeSet, HashMap};

use resp::ReplyValue;

use super::ReshardError;
use super::servers::Server;

/// Elements of a value that are read and written at a time.
pub(super) const PIECE: usize = 500;

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: Vec<u8>,
    /// The last entry that was delivered to it.
    pub(super) delivered: Vec<u8>,
    pub(super) consumers: BTreeSet<Vec<u8>>,
    pub(super) pending: Vec<Pending>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) id: String,
    pub(super) consumer: Vec<u8>,
    /// Time since its last delivery, in milliseconds.
    pub(super) idle_ms: i64,
    pub(super) deliveries: i64,
}

/// Time passes between two reads: it is no difference.
impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        (&self.id, &self.consumer, self.deliveries) == (&other.id, &other.consumer, other.deliveries)
    }
}

impl Eq for Pending {}

/// The groups of a stream, in the order of their names.
pub(super) fn read(server: &mut Server, key: &[u8]) -> Result<Vec<Group>, ReshardError> {
    let mut groups = Vec::new();
    for about in server.command::<Vec<HashMap<String, ReplyValue>>>(("XINFO", "GROUPS", key))? {
        let (name, delivered) = (text(&about, "name"), text(&about, "last-delivered-id"));
        let consumers: Vec<HashMap<String, ReplyValue>> = server.command(("XINFO", "CONSUMERS", key, &name))?;
        let consumers = consumers.iter().map(|consumer| text(consumer, "name")).collect();
        let (mut pending, mut from) = (Vec::new(), "-".to_owned());
        loop {
            let some: Vec<(String, Vec<u8>, i64, i64)> =
                server.command(("XPENDING", key, &name, from.as_str(), "+", PIECE))?;
            let Some((last, ..)) = some.last() else { break };
            from = behind(last);
            let entry = |(id, consumer, idle_ms, deliveries)| Pending { id, consumer, idle_ms, deliveries };
            pending.extend(some.into_iter().map(entry));
        }
        groups.push(Group { name, delivered, consumers, pending });
    }
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(groups)
}

/// The greatest id that the stream has ever had.
pub(super) fn last_id(server: &mut Server, key: &[u8]) -> Result<Vec<u8>, ReshardError> {
    Ok(text(&server.command(("XINFO", "STREAM", key))?, "last-generated-id"))
}

/// The id that follows this one, of the form MILLISECONDS-NUMBER.
pub(super) fn behind(id: &str) -> String {
    let (milliseconds, number) = id.split_once('-').unwrap_or((id, "0"));
    match number.parse::<u64>().ok().and_then(|number| number.checked_add(1)) {
        Some(next) => format!("{milliseconds}-{next}"),
        None => format!("{}-0", milliseconds.parse::<u64>().map_or(u64::MAX, |milliseconds| milliseconds + 1)),
    }
}

fn text(about: &HashMap<String, ReplyValue>, field: &str) -> Vec<u8> {
    match about.get(field) {
        Some(ReplyValue::Bulk(bytes)) => bytes.clone(),
        Some(ReplyValue::Simple(text)) => text.clone().into_bytes(),
        _ => Vec::new(),
    }
}
