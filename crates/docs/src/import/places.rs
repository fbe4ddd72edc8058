//! The origins of the records that arrived in order. They are needed only if a key occurs again, or if the records are written
//! in transactions, so they are not in the tree but in a temporary file. It has an entry for each batch: the source, and the
//! distance of each record's position from the previous one.

use super::encoded::Encoded;
use crate::encoding::varint;
use crate::engine::{self, SortedEntries, SortedRun, SortedRunWriter, Store};
use crate::opening::{LoadError, ORIGIN_BYTES};

/// Bytes of an origin with the number of the source; the rest is the place in it.
const SOURCE_BYTES: usize = 4;

/// Writes origins.
pub(super) struct PlacesWriter {
    run: SortedRunWriter,
    batches: u64,
    value: Vec<u8>,
}

/// Reads the origins back, record by record.
pub(super) struct Places {
    entries: SortedEntries,
    batch: Vec<u8>,
    at: usize,
    place: u64,
}

impl PlacesWriter {
    pub(super) fn new(store: &Store) -> Result<PlacesWriter, engine::StoreError> {
        Ok(PlacesWriter { run: store.sorted_run()?, batches: 0, value: Vec::new() })
    }

    /// Adds all records of a batch, which have one source.
    pub(super) fn push(&mut self, batch: &Encoded) -> Result<(), LoadError> {
        self.value.clear();
        let mut last = 0;
        for record in batch.iter() {
            let (origin, _) = record.parts().ok_or_else(damaged)?;
            let (source, place) = origin.split_first_chunk::<SOURCE_BYTES>().ok_or_else(damaged)?;
            if self.value.is_empty() {
                self.value.extend_from_slice(source);
            }
            let place = place.first_chunk().map_or(0, |place| u64::from_be_bytes(*place));
            varint::push_signed(&mut self.value, place.wrapping_sub(last) as i64);
            last = place;
        }
        self.run.push(&self.batches.to_be_bytes(), &self.value)?;
        self.batches += 1;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<SortedRun, LoadError> {
        Ok(self.run.finish()?)
    }
}

impl Places {
    pub(super) fn new(run: &SortedRun) -> Result<Places, LoadError> {
        Ok(Places { entries: run.read()?, batch: Vec::new(), at: 0, place: 0 })
    }

    /// The next record's origin.
    pub(super) fn next_origin(&mut self) -> Result<[u8; ORIGIN_BYTES], LoadError> {
        while self.at >= self.batch.len() {
            let (_, value) = self.entries.next()?.ok_or_else(damaged)?;
            self.batch.clear();
            self.batch.extend_from_slice(value);
            self.at = SOURCE_BYTES;
            self.place = 0;
        }
        let mut rest = &self.batch[self.at..];
        self.place = self.place.wrapping_add(varint::take_signed(&mut rest).ok_or_else(damaged)? as u64);
        self.at = self.batch.len() - rest.len();
        let mut origin = [0; ORIGIN_BYTES];
        let (source, place) = origin.split_at_mut(SOURCE_BYTES);
        source.copy_from_slice(self.batch.get(..SOURCE_BYTES).ok_or_else(damaged)?);
        place.copy_from_slice(&self.place.to_be_bytes());
        Ok(origin)
    }
}

fn damaged() -> LoadError {
    LoadError::damaged("the places of sorted records are damaged")
}
