//! The newest changes, encoded once for all consumers, and bounded: a consumer that is further behind reads the log. What the
//! window holds is counted among the large replies; if these leave no room, the oldest chunks go earlier.
//!
//! ```text
//!   after ─┐                                              ┌─ tip
//!          | chunk 7 | chunk 8 | chunk 9 | … | chunk 12   |
//! ```
//!
//! The chunks contain everything after `after` up to `tip`. A chunk is never changed; consumers hold none between two pulls, so
//! an evicted chunk is freed at once.

use super::feed_position::FeedPosition;
use crate::config::memory::CHANGES_CHUNK_BYTES;
use crate::threads::in_flight::{InFlight, Taken};
use docs::CollectionId;
use docs::catalog::Catalog;
use docs::changes::{ChangeEvent, DocumentChange};
use docs::order::Scalar;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;

/// Memory of an event besides its document, including its entry in the chunk. An escaped key may take as much again.
const EVENT_BYTES: usize = 256;

/// Events, each as a line of JSON.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    lines: Vec<u8>,
    entries: Vec<Entry>,
}

/// One event in a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) position: FeedPosition,
    pub(crate) collection: CollectionId,
    end: usize,
}

impl Chunk {
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= CHANGES_CHUNK_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Chunk>() + self.lines.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The number of the first entry after a position.
    pub(crate) fn first_after(&self, position: FeedPosition) -> usize {
        self.entries.partition_point(|entry| entry.position <= position)
    }

    /// An entry and its line, without the line feed.
    pub(crate) fn entry(&self, number: usize) -> Option<(Entry, &[u8])> {
        let entry = *self.entries.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(0, |before| before.end);
        Some((entry, self.lines.get(start..entry.end)?))
    }

    /// Frees unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.lines.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    fn last(&self) -> Option<FeedPosition> {
        self.entries.last().map(|entry| entry.position)
    }

    /// Encodes an event.
    pub(crate) fn push(&mut self, catalog: &Catalog, event: &ChangeEvent<'_>) {
        let position = FeedPosition::of(event);
        let text = match &event.change {
            DocumentChange::Put { document, .. } => document.text(),
            _ => b"",
        };
        // Avoids doubling the capacity for a large document.
        if self.lines.capacity() - self.lines.len() < text.len() + EVENT_BYTES && text.len() > CHANGES_CHUNK_BYTES {
            self.lines.reserve_exact(text.len() + EVENT_BYTES);
        }
        let out = &mut self.lines;
        // Writing into a vector does not fail.
        let _ = write!(out, "{{\"change\":{}", event.change_number);
        if let Some(part) = position.part() {
            let _ = write!(out, ",\"part\":{part}");
        }
        let name = catalog.collections.get(event.collection.0).map_or("", |info| info.name.as_str());
        let _ = write!(out, ",\"collection\":\"{name}\",\"op\":");
        match &event.change {
            DocumentChange::Put { key, .. } => {
                out.extend_from_slice(b"\"put\",\"key\":");
                write_key(key.scalar(), out);
                out.extend_from_slice(b",\"document\":");
                out.extend_from_slice(text);
            }
            DocumentChange::Delete { key } => {
                out.extend_from_slice(b"\"delete\",\"key\":");
                write_key(key.scalar(), out);
            }
            DocumentChange::Reset => out.extend_from_slice(b"\"reset\""),
        }
        out.push(b'}');
        self.entries.push(Entry { position, collection: event.collection, end: self.lines.len() });
    }
}

fn write_key(key: Scalar<'_>, out: &mut Vec<u8>) {
    let _ = match key {
        Scalar::Text(text) => serde_json::to_writer(out, text).map_err(std::io::Error::from),
        Scalar::Integer(number) => write!(out, "{number}"),
        Scalar::Null | Scalar::Real(_) => out.write_all(b"null"),
    };
}

/// See the module's documentation.
pub(crate) struct Window {
    chunks: VecDeque<(Arc<Chunk>, Option<Taken>)>,
    replies: InFlight,
    /// The number of the first chunk.
    first: u64,
    bytes: usize,
    bytes_max: usize,
    after: FeedPosition,
    tip: FeedPosition,
}

impl Window {
    /// An empty window after a transaction.
    pub(crate) fn new(change_number: u64, bytes_max: usize, replies: InFlight) -> Window {
        let after = FeedPosition::after(change_number);
        Window { chunks: VecDeque::new(), replies, first: 0, bytes: 0, bytes_max, after, tip: after }
    }

    /// The window contains everything after this position.
    pub(crate) fn after(&self) -> FeedPosition {
        self.after
    }

    /// The window contains everything up to this position.
    pub(crate) fn tip(&self) -> FeedPosition {
        self.tip
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds newer changes, and evicts the oldest beyond the bound. `tip`: everything up to there was read, which may include
    /// transactions that changed no document. The newest chunk stays even if it cannot be counted
    /// (`Division::changes_work_bytes`).
    pub(crate) fn push(&mut self, chunk: Chunk, tip: FeedPosition) {
        self.tip = self.tip.max(tip);
        if chunk.is_empty() {
            return;
        }
        while self.bytes + chunk.bytes() > self.bytes_max && self.evict() {}
        let taken = loop {
            let taken = self.replies.take(chunk.bytes());
            if taken.is_some() || !self.evict() {
                break taken;
            }
        };
        self.bytes += chunk.bytes();
        self.chunks.push_back((Arc::new(chunk), taken));
    }

    /// Drops the oldest chunk; `false` if there is none.
    fn evict(&mut self) -> bool {
        let Some((oldest, taken)) = self.chunks.pop_front() else { return false };
        self.bytes -= oldest.bytes();
        self.first += 1;
        self.after = oldest.last().unwrap_or(self.after);
        drop(taken);
        true
    }

    /// The number of the first chunk with an event after a position that the window covers.
    pub(crate) fn find(&self, position: FeedPosition) -> u64 {
        self.first + self.chunks.partition_point(|(chunk, _)| chunk.last().is_some_and(|last| last <= position)) as u64
    }

    /// Whether a chunk has not been evicted.
    pub(crate) fn holds(&self, number: u64) -> bool {
        number >= self.first
    }

    /// A chunk by its number; `None` if it does not exist yet.
    pub(crate) fn chunk(&self, number: u64) -> Option<&Arc<Chunk>> {
        self.chunks.get(usize::try_from(number.checked_sub(self.first)?).ok()?).map(|(chunk, _)| chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(change_number: u64) -> Chunk {
        let mut chunk = Chunk::default();
        let change = DocumentChange::Reset;
        let event = ChangeEvent { change_number, number: 0, is_last: true, collection: CollectionId(0), change };
        chunk.push(&Catalog::default(), &event);
        chunk
    }

    #[test]
    fn a_window_keeps_the_newest_within_its_bound_and_knows_from_where() {
        let bytes = chunk(7).bytes();
        let mut window = Window::new(6, 3 * bytes, InFlight::new(100 * bytes));
        for number in 7..=20 {
            window.push(chunk(number), FeedPosition::after(number));
            assert!(window.bytes() <= 3 * bytes);
            let oldest = number.saturating_sub(3).max(6);
            assert_eq!((window.after(), window.tip()), (FeedPosition::after(oldest), FeedPosition::after(number)));
            for position in oldest..number {
                let found = window.chunk(window.find(FeedPosition::after(position))).and_then(|chunk| chunk.entry(0));
                assert_eq!(found.map(|(entry, _)| entry.position), Some(FeedPosition::after(position + 1)));
            }
            assert!(window.chunk(window.find(FeedPosition::after(number))).is_none());
        }
        window.push(Chunk::default(), FeedPosition::after(25));
        assert_eq!(window.tip(), FeedPosition::after(25));
    }

    #[test]
    fn a_window_counts_what_it_holds_and_keeps_less_if_others_leave_less() {
        let bytes = chunk(7).bytes();
        let replies = InFlight::new(5 * bytes);
        let mut window = Window::new(6, 3 * bytes, replies.clone());
        assert_eq!(replies.bytes(), 0, "an empty window holds nothing");
        let mut others = Vec::new();
        for (number, others_hold, holds) in [(7, 0, 1), (8, 0, 2), (9, 0, 3), (10, 2, 3), (11, 4, 1), (12, 5, 1)] {
            while others.len() < others_hold {
                match replies.take(bytes) {
                    Some(taken) => others.push(taken),
                    None => assert!(window.evict(), "the window holds the rest"),
                }
            }
            window.push(chunk(number), FeedPosition::after(number));
            assert_eq!((window.bytes(), window.after()), (holds * bytes, FeedPosition::after(number - holds as u64)));
            assert_eq!(replies.bytes(), (others_hold + holds).min(5) * bytes);
        }
        drop(window);
        assert_eq!(replies.bytes(), 5 * bytes);
    }
}
