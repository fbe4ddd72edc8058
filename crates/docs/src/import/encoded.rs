//! A batch of records in stored form, in the order in which they were read.
//!
//! ```text
//!  | origin | change number | document | key | origin | …        ends: the end of each document and of each key
//! ```

use crate::opening::ORIGIN_BYTES;

/// See the module's text.
#[derive(Default)]
pub(super) struct Encoded {
    /// The collection of the records.
    pub(super) collection: usize,
    bytes: Vec<u8>,
    ends: Vec<(u32, u32)>,
    /// Whether each key is above the previous one.
    ascends: bool,
    /// The number of the record with the highest key.
    highest: usize,
}

/// A record: origin, change number and document, and its key.
pub(super) struct EncodedRecord<'e> {
    pub(super) key: &'e [u8],
    pub(super) value: &'e [u8],
}

impl<'e> EncodedRecord<'e> {
    /// Its origin, and its stored form.
    pub(super) fn parts(&self) -> Option<(&'e [u8; ORIGIN_BYTES], &'e [u8])> {
        self.value.split_first_chunk()
    }
}

impl Encoded {
    /// Clears the records and keeps the memory.
    pub(super) fn restart(&mut self, collection: usize) {
        self.collection = collection;
        self.bytes.clear();
        self.ends.clear();
        self.ascends = true;
        self.highest = 0;
    }

    /// The buffer after the last record, where the next value is appended.
    pub(super) fn next_value(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The start of the next value.
    pub(super) fn next_start(&self) -> usize {
        self.ends.last().map_or(0, |(_, end)| *end as usize)
    }

    /// Drops the bytes after the last record.
    pub(super) fn forget_value(&mut self) {
        self.bytes.truncate(self.next_start());
    }

    /// Turns the bytes after the last record into a record with this key. A batch's text and the tables before its documents
    /// are far below 4 GB (`BATCH_BYTES`, `RECORD_BYTES_MAX`).
    pub(super) fn end_record(&mut self, key: &[u8]) {
        match self.ends.len().checked_sub(1).and_then(|_| self.get(self.highest)) {
            Some(highest) if key <= highest.key => self.ascends = false,
            _ => self.highest = self.ends.len(),
        }
        let value_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.ends.push((value_end, self.bytes.len() as u32));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A record by its number.
    pub(super) fn get(&self, number: usize) -> Option<EncodedRecord<'_>> {
        let &(value_end, key_end) = self.ends.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        let [start, value_end, key_end] = [start, value_end, key_end].map(|place| place as usize);
        Some(EncodedRecord { key: &self.bytes[value_end..key_end], value: &self.bytes[start..value_end] })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = EncodedRecord<'_>> {
        (0..self.ends.len()).filter_map(|number| self.get(number))
    }

    /// Whether its keys ascend, all above this one.
    pub(super) fn ascends_above(&self, key: &[u8]) -> bool {
        self.ascends && self.get(0).is_none_or(|first| first.key > key)
    }

    /// Its highest key.
    pub(super) fn highest(&self) -> Option<&[u8]> {
        self.get(self.highest).map(|record| record.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(keys: &[&str]) -> Encoded {
        let mut batch = Encoded::default();
        batch.restart(0);
        for key in keys {
            batch.next_value().extend_from_slice(b"value of ");
            batch.next_value().extend_from_slice(key.as_bytes());
            batch.end_record(key.as_bytes());
            batch.next_value().extend_from_slice(b"a bad one");
            batch.forget_value();
        }
        batch
    }

    #[track_caller]
    fn check(keys: &[&str], above: &str, ascends: bool, highest: Option<&str>) {
        let batch = batch(keys);
        assert_eq!(batch.ascends_above(above.as_bytes()), ascends);
        assert_eq!(batch.highest(), highest.map(str::as_bytes));
        let entry = |record: EncodedRecord<'_>| (record.key.to_vec(), record.value.to_vec());
        let expected = keys.iter().map(|key| (key.as_bytes().to_vec(), format!("value of {key}").into_bytes()));
        assert_eq!(batch.iter().map(entry).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_batch_knows_its_records_its_highest_key_and_whether_they_rise() {
        check(&[], "x", true, None);
        check(&["a", "b", "c"], "", true, Some("c"));
        check(&["a", "b"], "a", false, Some("b"));
        check(&["b", "c"], "a", true, Some("c"));
        check(&["a", "c", "b"], "", false, Some("c"));
        check(&["a", "a"], "", false, Some("a"));
        check(&["c", "a", "b"], "", false, Some("c"));
    }
}
