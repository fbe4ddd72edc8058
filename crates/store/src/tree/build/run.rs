//! A run: entries of one level, in key order, that are not yet cut into pages.
//!
//! It is the same for leaves and branches: a leaf entry is a key with its value, a branch entry a child with the lowest key
//! that it may hold. A run knows its lower fence, which becomes the separator of its first page. Values of old pages and of
//! edits are borrowed until they are encoded; only keys, and the values of a bulk build, are copied into the run.

use std::ops::Range;

use crate::base::head::{HEAD_BYTES, common_prefix};
use crate::tree::format::node::{NodeSize, OverflowRef, Payload};
use crate::tree::format::page::{PAGE_BYTES, PageNo};

/// If the only page of a run has fewer bytes than this, a neighbour joins the run.
const UNDERFULL_BYTES: usize = PAGE_BYTES / 3;
/// If the last page of a run has less room than this, reading a neighbour is not worth it.
const SPARE_BYTES_MIN: usize = PAGE_BYTES / 4;
/// A run of this many half-empty pages takes in a neighbour and becomes three fuller pages.
const SHARED_PAGES: usize = 2;
/// A run heavier than this (in uncompressed bytes) is cut before its end is known.
const EARLY_WEIGHT: usize = 32 * PAGE_BYTES;
/// Full pages kept when a run is cut early, so that its end can still be balanced or joined.
const PAGES_KEPT: usize = 2;
/// Bytes of a page for each entry, in addition to key and value.
const ENTRY_BYTES: usize = 12;

/// The value or child of an entry until it is encoded.
#[derive(Clone, Copy, Debug)]
pub(in crate::tree) enum Held<'a> {
    Borrowed(&'a [u8]),
    /// In the run's own bytes.
    Kept {
        start: u32,
        len: u32,
    },
    Overflow(OverflowRef),
    /// `fresh`: written by this checkpoint, so it must not be read back.
    Child {
        page: PageNo,
        fresh: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    key_start: u32,
    key_len: u32,
    held: Held<'a>,
}

/// See the module's text.
#[derive(Default)]
pub(in crate::tree) struct Run<'a> {
    bytes: Vec<u8>,
    entries: Vec<Entry<'a>>,
    /// The fence below the first entry; `None` while no node is open on this level.
    pub(super) low: Option<Vec<u8>>,
    weight: usize,
}

impl<'a> Run<'a> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the run should be cut now, to bound its memory.
    pub(super) fn is_heavy(&self) -> bool {
        self.weight > EARLY_WEIGHT
    }

    /// Adds an entry whose key is given in two parts.
    pub(in crate::tree) fn push(&mut self, prefix: &[u8], suffix: &[u8], held: Held<'a>) {
        let key_start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(suffix);
        self.add(key_start, held);
    }

    /// Adds an entry whose key is appended by `write`, which may fail.
    pub(super) fn push_with<E>(
        &mut self,
        held: Held<'a>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let key_start = self.bytes.len() as u32;
        write(&mut self.bytes)?;
        self.add(key_start, held);
        Ok(())
    }

    /// Adds an entry with a copy of its value.
    pub(in crate::tree) fn push_copy(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.push(key, &[], Held::Kept { start, len: value.len() as u32 });
    }

    fn add(&mut self, key_start: u32, held: Held<'a>) {
        let key_len = self.bytes.len() as u32 - key_start;
        self.entries.push(Entry { key_start, key_len, held });
        let payload = match held {
            Held::Borrowed(value) => value.len(),
            Held::Kept { len, .. } => len as usize,
            Held::Overflow(_) | Held::Child { .. } => 8,
        };
        self.weight += ENTRY_BYTES + key_len as usize + payload;
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[entry.key_start as usize..][..entry.key_len as usize]
    }

    fn payload(&self, index: usize) -> Payload<'_> {
        match self.entries[index].held {
            Held::Borrowed(value) => Payload::Value(value),
            Held::Kept { start, len } => Payload::Value(&self.bytes[start as usize..][..len as usize]),
            Held::Overflow(place) => Payload::Overflow(place),
            Held::Child { page, .. } => Payload::Child(page),
        }
    }

    /// The only child of a branch run, if it has exactly one.
    pub(super) fn only_child(&self) -> Option<PageNo> {
        match self.entries.as_slice() {
            [Entry { held: Held::Child { page, .. }, .. }] => Some(*page),
            _ => None,
        }
    }

    /// Removes the last child if it is an old page; returns its fence and its page.
    pub(super) fn pop_old_child(&mut self) -> Option<(Vec<u8>, PageNo)> {
        let entry = self.entries.last()?;
        let Held::Child { page, fresh: false } = entry.held else { return None };
        let key = self.key(self.len() - 1).to_vec();
        self.weight -= ENTRY_BYTES + key.len() + 8;
        self.entries.pop();
        Some((key, page))
    }

    /// Appends all entries of `other`.
    pub(super) fn append(&mut self, other: &Run<'a>) {
        for index in 0..other.len() {
            match other.entries[index].held {
                Held::Kept { start, len } => {
                    let value = other.bytes[start as usize..][..len as usize].to_vec();
                    self.push_copy(other.key(index), &value);
                }
                held => self.push(other.key(index), &[], held),
            }
        }
    }

    /// The entries of a page, for the encoder.
    pub(super) fn entries(&self, range: Range<usize>) -> impl Iterator<Item = (&[u8], Payload<'_>)> + Clone {
        range.map(|index| (self.key(index), self.payload(index)))
    }

    /// Whether the whole run would leave a page mostly empty.
    pub(super) fn is_underfull(&self, level: u8) -> bool {
        !self.is_empty()
            && self.weight <= EARLY_WEIGHT
            && self.size(0..self.len(), level).bytes(level) < UNDERFULL_BYTES
    }

    /// Whether a sibling with `len` bytes of entries should join the run, which would otherwise end before it. If the
    /// sibling fits into the free room of the last page, a page is saved and no additional one is written. If a page has
    /// just become two half-empty ones, these and the sibling become three fuller ones. `len` is `None` while the
    /// sibling's size is not known.
    pub(super) fn should_take(&self, level: u8, len: Option<usize>) -> bool {
        if self.is_empty() || self.weight > EARLY_WEIGHT {
            return false;
        }
        let ends = self.cut(level, |_, _| false);
        let last = if ends.len() > 1 { ends[ends.len() - 2] } else { 0 };
        let spare = PAGE_BYTES.saturating_sub(self.size(last..self.len(), level).bytes(level));
        spare >= SPARE_BYTES_MIN
            && len.is_none_or(|len| len <= spare || (ends.len() == SHARED_PAGES && spare >= UNDERFULL_BYTES))
    }

    fn size(&self, range: Range<usize>, level: u8) -> NodeSize {
        let keyed = range.start + usize::from(level > 0)..range.end;
        NodeSize::of(keyed.map(|index| (self.key(index), self.payload(index).cell_bytes())), level)
    }

    /// The ends of pages that are filled completely, or until `is_enough`.
    fn cut(&self, level: u8, mut is_enough: impl FnMut(usize, usize) -> bool) -> Vec<usize> {
        let skip = usize::from(level > 0);
        let mut ends = Vec::new();
        let mut start = 0;
        let mut size = NodeSize::default();
        for index in 0..self.len() {
            if index > start {
                let grown = if index == start + skip {
                    self.size(start..index + 1, level)
                } else {
                    let payload = self.payload(index).cell_bytes();
                    size.with(self.key(start + skip), self.key(index), payload)
                        .unwrap_or_else(|| self.size(start..index + 1, level))
                };
                if grown.fits(level) && !is_enough(ends.len(), index) {
                    size = grown;
                    continue;
                }
                ends.push(index);
                start = index;
            }
            size = self.size(start..index + 1, level);
        }
        ends.push(self.len());
        ends
    }

    /// The ends of the pages of a whole run: as few pages as possible, filled evenly. If keys are only added at the end
    /// of the tree (`append`), each page is full, since nothing will be inserted between them.
    pub(super) fn plan_all(&self, level: u8, append: bool) -> Vec<usize> {
        if self.is_empty() {
            return Vec::new();
        }
        let full = self.cut(level, |_, _| false);
        if append || full.len() == 1 {
            return full;
        }
        let longest = (0..self.len()).map(|index| self.key(index).len()).max().unwrap_or(0);
        let prefix = if longest <= HEAD_BYTES { 0 } else { common_prefix(self.key(0), self.key(self.len() - 1)) };
        let weight_of = |index: usize| {
            let tail = self.key(index).len().saturating_sub(prefix + HEAD_BYTES);
            ENTRY_BYTES + tail + self.payload(index).cell_bytes()
        };
        // Twice the weight before the middle of each entry.
        let mut middles = Vec::with_capacity(self.len());
        let mut total = 0;
        for index in 0..self.len() {
            middles.push(2 * total + weight_of(index));
            total += weight_of(index);
        }
        let pages = full.len();
        self.cut(level, |done, index| middles[index] * pages >= 2 * total * (done + 1))
    }

    /// The ends of the pages that can be written before the run's end is known.
    pub(super) fn plan_early(&self, level: u8) -> Vec<usize> {
        let mut ends = self.cut(level, |_, _| false);
        ends.truncate(ends.len().saturating_sub(PAGES_KEPT));
        ends
    }

    /// Drops the first `count` entries, which are written.
    pub(super) fn drop_front(&mut self, count: usize) {
        let mut rest = Run { low: self.low.take(), ..Run::default() };
        if count < self.len() {
            let tail = Run {
                entries: self.entries.split_off(count),
                bytes: std::mem::take(&mut self.bytes),
                low: None,
                weight: 0,
            };
            rest.append(&tail);
            self.bytes = tail.bytes;
        }
        // The larger buffers are reused.
        self.bytes.clear();
        self.entries.clear();
        self.weight = 0;
        self.low = rest.low.take();
        self.append(&rest);
    }
}
