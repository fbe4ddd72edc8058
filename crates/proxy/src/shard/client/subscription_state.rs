//! The subscriptions of a client, and the confirmations that it receives.

use hashbrown::HashSet;
use resp::codec::ProtocolVersion;

use crate::commands::Subscription;
use crate::shard::client::reply_queue::written;
use crate::shard::slab::Key;

/// A client's subscriptions.
#[derive(Default)]
pub(crate) struct Subscriptions {
    channels: HashSet<Box<[u8]>>,
    patterns: HashSet<Box<[u8]>>,
    pub(in crate::shard) sharded: HashSet<Box<[u8]>>,
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

    /// Its node connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = Key> {
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
