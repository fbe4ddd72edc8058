//! Entries of a range that wait to be joined together.
//!
//! A joined document lies anywhere: looking it up waits for memory twice, for its place and for itself. So entries that
//! passed their tests are gathered, memory is asked for all their partners, and only then are they looked up: what each
//! would have waited for comes while the others are asked for.

/// Entries that are joined together: about as many as a core asks memory for at the same time.
const ROWS_MAX: usize = 32;
/// An entry behind this many bytes of others is joined with the next batch: the copies stay in the first cache.
const BYTES_MAX: usize = 8 << 10;
/// Memory kept for the next batch.
const BYTES_KEPT_MAX: usize = 4 * BYTES_MAX;

/// See the module's text. Empty between executions.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// Where an entry's key and value end, and the first partner's key.
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

    /// Whether it should be joined before more is added.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// The partners' keys.
    #[inline]
    pub(crate) fn partners(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().map(|row| row.partner)
    }

    /// The entries, as they were added.
    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let from = std::mem::replace(&mut start, row.end);
            (&self.bytes[from..row.key_end], &self.bytes[row.key_end..row.end])
        })
    }

    /// Empty again; what a huge entry took is given back.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT_MAX);
        self.rows.clear();
    }
}
