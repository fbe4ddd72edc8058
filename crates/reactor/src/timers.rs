//! Loop-level and precise timers: a heap of moments, few and exact, beside the wheel of many coarse ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::mailbox::Task;
use crate::protocol::ConnectionId;

/// What a moment brings.
pub(crate) enum Due {
    /// A closure of [`crate::Loop::after`] or [`crate::Loop::at`].
    Task(Task),
    /// The precise timer of a connection; stale when the connection's own deadline differs by then.
    Connection(ConnectionId),
    /// The pause after a failed accept is over.
    AcceptAgain,
    /// It is time to look at how fast peers take what waits for them.
    LookAtPaces,
    /// The drain deadline.
    DrainEnd,
}

struct Entry {
    at_ns: u64,
    /// Entries of one moment fire in the order in which they were made.
    sequence: u64,
    due: Due,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.sequence).cmp(&(other.at_ns, other.sequence))
    }
}

/// Moments in order.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Timers {
    pub(crate) fn push(&mut self, at_ns: u64, due: Due) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at_ns, sequence: self.sequence, due }));
    }

    /// The first moment; `u64::MAX` when there is none.
    pub(crate) fn next_ns(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |entry| entry.0.at_ns)
    }

    /// Takes the first entry whose moment has come.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Due> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.heap.pop().map(|entry| entry.0.due)
    }
}
