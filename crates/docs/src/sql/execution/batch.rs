//! Entries of a range that are collected and then joined together.
//!
//! A join partner may lie anywhere in memory: a lookup has two cache misses, for its place and for the document. So entries
//! that passed their predicates are collected, the memory of all their partners is prefetched, and only then are they looked
//! up: the misses overlap.

/// Entries in a batch: about as many as a core has cache misses in flight.
const ROWS_MAX: usize = 32;
/// A batch is full at this many bytes: the copies stay in the L1 cache.
const BYTES_MAX: usize = 8 << 10;
/// Memory kept for the next batch.
const BYTES_KEPT_MAX: usize = 4 * BYTES_MAX;

/// See the module documentation. Empty between executions.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// The ends of an entry's key and value, and the key of its first partner.
#[derive(Clone, Copy)]
struct Row {
    key_end: usize,
    end: usize,
    partner: u32,
}

impl Batch {
    /// Adds an entry.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8], partner: u32) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.rows.push(Row { key_end, end: self.bytes.len(), partner });
    }

    /// Whether it should be joined before another entry is added.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// The partners' keys.
    #[inline]
    pub(crate) fn partners(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().map(|row| row.partner)
    }

    /// The entries, in the order in which they were added.
    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let from = std::mem::replace(&mut start, row.end);
            (&self.bytes[from..row.key_end], &self.bytes[row.key_end..row.end])
        })
    }

    /// Empties it and releases the memory of huge entries.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT_MAX);
        self.rows.clear();
    }
}
