//! Commands without a reply that wait for a connection, in order, bounded in bytes.

use super::error::NotSent;

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Waiting,
    bytes_max: usize,
}

/// Encoded commands and their number.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) bytes: Vec<u8>,
    pub(crate) commands: u64,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> Queue {
        Queue { waiting: Waiting::default(), bytes_max }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.waiting.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.commands == 0
    }

    /// Adds all of the commands or none.
    pub(crate) fn push(&mut self, bytes: &[u8], commands: u64) -> Result<(), NotSent> {
        if bytes.len() > self.bytes_max - self.waiting.bytes.len().min(self.bytes_max) {
            return Err(NotSent::QueueFull);
        }
        self.waiting.bytes.extend_from_slice(bytes);
        self.waiting.commands += commands;
        Ok(())
    }

    /// Takes all of them out.
    pub(crate) fn take(&mut self) -> Waiting {
        std::mem::take(&mut self.waiting)
    }

    /// Puts back commands that could not be sent, before those that were queued later.
    pub(crate) fn put_back(&mut self, mut before: Waiting) {
        before.bytes.append(&mut self.waiting.bytes);
        before.commands += self.waiting.commands;
        self.waiting = before;
    }
}
