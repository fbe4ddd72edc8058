//! The subscriptions of a client, and the confirmations that it receives.

use hashbrown::HashSet;
use resp::codec::ProtocolVersion;

use crate::commands::Subscription;
use crate::shard::client::Client;
use crate::shard::client::reply_queue::written;
use crate::shard::slab::Key;

/// Bytes that a name holds beside its own.
const NAME_RECORD_BYTES: usize = 32;

impl Client {
    /// Adds a channel or pattern. `false`: it was there.
    pub(in crate::shard) fn join(&mut self, command: Subscription, name: &[u8]) -> bool {
        let is_new = self.subscriptions.get_or_insert_default().names(command).insert(name.into());
        self.lasting_bytes += if is_new { name.len() + NAME_RECORD_BYTES } else { 0 };
        is_new
    }

    /// Removes a channel or pattern. `false`: there was none.
    pub(in crate::shard) fn leave(&mut self, command: Subscription, name: &[u8]) -> bool {
        let was_there = self.subscriptions.as_mut().is_some_and(|all| all.names(command).remove(name));
        self.lasting_bytes -= if was_there { name.len() + NAME_RECORD_BYTES } else { 0 };
        was_there
    }
}

/// A client's subscriptions.
#[derive(Default)]
pub(crate) struct Subscriptions {
    channels: HashSet<Box<[u8]>>,
    patterns: HashSet<Box<[u8]>>,
    sharded: HashSet<Box<[u8]>>,
    /// Reserved connections, by node.
    pub(in crate::shard) own: Vec<(u16, Key)>,
}

impl Subscriptions {
    pub(in crate::shard) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.sharded.len()
    }

    /// The count in the confirmation of a command: Redis counts sharded channels separately.
    pub(in crate::shard) fn count_for(&self, command: Subscription) -> usize {
        match command {
            Subscription::Ssubscribe | Subscription::Sunsubscribe => self.sharded.len(),
            _ => self.channels.len() + self.patterns.len(),
        }
    }

    /// Whether there is no subscription.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Whether messages would be missed after another list of nodes: `has_more` nodes for patterns, or a channel `has_moved`.
    pub(in crate::shard) fn would_miss(&self, has_more: bool, has_moved: &dyn Fn(&[u8]) -> bool) -> bool {
        has_more && !self.patterns.is_empty() || self.channels.iter().chain(&self.sharded).any(|name| has_moved(name))
    }

    /// Bytes of the names.
    pub(in crate::shard) fn name_bytes(&self) -> usize {
        [&self.channels, &self.patterns, &self.sharded]
            .into_iter()
            .flatten()
            .map(|name| name.len() + NAME_RECORD_BYTES)
            .sum()
    }

    /// Its node connections.
    pub(crate) fn connections(&self) -> impl Iterator<Item = Key> {
        self.own.iter().map(|(_, link)| *link)
    }

    pub(in crate::shard) fn names(&mut self, command: Subscription) -> &mut HashSet<Box<[u8]>> {
        match command {
            Subscription::Subscribe | Subscription::Unsubscribe => &mut self.channels,
            Subscription::Psubscribe | Subscription::Punsubscribe => &mut self.patterns,
            Subscription::Ssubscribe | Subscription::Sunsubscribe => &mut self.sharded,
        }
    }
}

/// Content of a confirmation.
#[derive(Clone, Debug)]
pub(crate) struct Confirmation {
    pub(in crate::shard) command: Subscription,
    /// The channel or pattern; none if there was none to leave.
    pub(in crate::shard) name: Option<Box<[u8]>>,
    /// Number of the client's channels and patterns after it, or of its sharded channels.
    pub(in crate::shard) count: usize,
}

impl Confirmation {
    /// The encoded confirmation.
    pub(in crate::shard) fn written(&self, version: ProtocolVersion) -> Vec<u8> {
        written(version, |writer| {
            writer.push(3);
            writer.bulk(self.command.word().as_bytes());
            match &self.name {
                Some(name) => writer.bulk(name),
                None => writer.null(),
            }
            writer.integer(self.count as i64);
        })
    }
}
