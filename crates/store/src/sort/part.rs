//! A part of a sorter's entries, in memory: collected in any order, then sorted.
//!
//! ```text
//!  bytes: record, record, …      record: | key length u16 | value length u32 | key | value |
//!  slots: (head of the key, start of the record), one for each record
//! ```
//!
//! Records have the format of a run. The sort compares 8 bytes of each key as an integer, after the common prefix of
//! the part's keys, and compares keys and values themselves only if those are equal.

use super::run::{Record, RecordHeader};
use crate::base::head::{common_prefix, head};
use crate::base::prefetch::prefetch_all;

/// Prefetch distance in entries.
const AHEAD: usize = 6;

#[derive(Clone, Copy)]
struct Slot {
    head: u64,
    start: u32,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Part {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Length of the common prefix of all keys.
    common: usize,
}

impl Part {
    /// Bytes of memory that an entry of this size takes.
    pub(super) fn bytes_of(key: &[u8], value: &[u8]) -> usize {
        size_of::<Slot>() + RecordHeader::BYTES + key.len() + value.len()
    }

    /// Bytes of memory in use.
    pub(super) fn used(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Drops the entries and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
    }

    /// Adds an entry to a part that will have about `bytes_max` bytes.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8], bytes_max: usize) {
        match self.slots.first() {
            None => {
                // Growth by doubling would copy half of all entries again.
                self.bytes.reserve_exact(bytes_max);
                self.common = key.len();
            }
            Some(first) => {
                let same = &self.record(first.start).key()[..self.common];
                if !key.starts_with(same) {
                    self.common = common_prefix(same, key);
                }
            }
        }
        self.slots.push(Slot { head: 0, start: self.bytes.len() as u32 });
        self.bytes.extend_from_slice(&RecordHeader::new(key, value).encode());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Sorts the entries by key and then by value.
    pub(super) fn sort(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        for slot in &mut slots {
            slot.head = head(&self.record(slot.start).key()[self.common..]);
        }
        slots.sort_unstable_by(|a, b| {
            a.head.cmp(&b.head).then_with(|| {
                let (a, b) = (self.record(a.start), self.record(b.start));
                a.key().cmp(b.key()).then_with(|| a.value().cmp(b.value()))
            })
        });
        self.slots = slots;
    }

    /// A copy with the records in the order of the last sort, in no more memory than they need.
    pub(super) fn in_order(&self) -> Part {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut slots = Vec::with_capacity(self.slots.len());
        for (index, slot) in self.slots.iter().enumerate() {
            self.fetch_ahead(index);
            slots.push(Slot { start: bytes.len() as u32, ..*slot });
            bytes.extend_from_slice(self.record(slot.start).bytes());
        }
        Part { bytes, slots, common: self.common }
    }

    /// The common prefix of all keys.
    pub(super) fn common(&self) -> &[u8] {
        self.slots.first().map_or(&[], |first| &self.record(first.start).key()[..self.common])
    }

    /// The entry at this index in the order of the last sort.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Record<'_>> {
        self.slots.get(index).map(|slot| self.record(slot.start))
    }

    /// Prefetches an entry that will be read soon after `index`: entries are scattered over the part.
    #[inline]
    pub(super) fn fetch_ahead(&self, index: usize) {
        if let (Some(now), Some(ahead)) = (self.slots.get(index), self.slots.get(index + AHEAD)) {
            let near = &self.bytes[ahead.start as usize..];
            // Assumed to be as long as the current one.
            let len = self.record(now.start).bytes().len().min(near.len());
            prefetch_all(&near[..len]);
        }
    }

    fn record(&self, start: u32) -> Record<'_> {
        Record::first_of(&self.bytes[start as usize..]).expect("a slot names the start of a whole record")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_order_has_the_same_entries_one_behind_the_other() {
        let mut part = Part::default();
        for number in [5u32, 3, 9, 1, 3] {
            part.push(&number.to_be_bytes(), &vec![number as u8; number as usize], 1 << 10);
        }
        part.sort();
        let copy = part.in_order();
        assert!(copy.slots.is_sorted_by_key(|slot| slot.start));
        for index in 0..6 {
            let entry = |part: &Part| part.get(index).map(|record| (record.key().to_vec(), record.value().to_vec()));
            assert_eq!(entry(&copy), entry(&part), "{index}");
        }
        assert_eq!((copy.common(), copy.used()), (part.common(), part.used()));
    }
}
