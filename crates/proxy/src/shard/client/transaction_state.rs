//! The state of a client's transaction.

use crate::commands::CommandId;
use crate::shard::slab::Key;

/// A transaction, or a watch that may become one.
#[derive(Default)]
pub(crate) struct TransactionState {
    /// The node and the connection to it, once known.
    pub(in crate::shard) own: Option<(u16, Key)>,
    /// Whether MULTI was given.
    pub(in crate::shard) is_open: bool,
    /// Commands that were answered with QUEUED and are sent once the node is known.
    pub(in crate::shard) held: Vec<(CommandId, Box<[u8]>)>,
    /// Whether a command was refused, or the connection broke: EXEC will fail.
    pub(in crate::shard) is_dirty: bool,
    /// The error reply if the connection broke, which names the node.
    pub(in crate::shard) lost: Option<Box<[u8]>>,
}

impl TransactionState {
    /// Bytes of the commands that are held back.
    pub(in crate::shard) fn held_bytes(&self) -> usize {
        self.held.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Its node connection.
    pub(crate) fn connection(&self) -> Option<Key> {
        self.own.map(|(_, link)| link)
    }

    /// The connection to this node broke.
    pub(crate) fn lose_link(&mut self, node: u16, error: &[u8]) {
        if self.own.is_some_and(|(own, _)| own == node) {
            (self.own, self.is_dirty, self.lost) = (None, true, Some(error.into()));
        }
    }
}
