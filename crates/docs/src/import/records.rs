//! All records of a collection in order of their keys: those that arrived in order merged with those that were sorted.
//!
//! If several records have the same key, the record that arrived in order comes first. The others follow in the order in which they were
//! read (`batch_order.rs`).

use super::ascending::AscendingRecords;
use super::places::{Places, PlacesWriter};
use crate::engine::{BulkCursor, BulkEntries, BulkTree, SortedEntries, SortedRun};
use crate::opening::{LoadError, ORIGIN_BYTES};

/// The records that arrived in order, to be read again.
pub(super) struct Earlier {
    entries: BulkEntries,
    places: SortedRun,
}

impl Earlier {
    pub(super) fn new(tree: BulkTree, places: PlacesWriter) -> Result<Earlier, LoadError> {
        Ok(Earlier { entries: tree.into_entries()?, places: places.finish()? })
    }

    /// The records of a tree that was built while the input was read, without their index entries.
    pub(super) fn of(ascending: AscendingRecords<'_>) -> Result<Earlier, LoadError> {
        Earlier::new(ascending.builder.into_tree(), ascending.places)
    }
}

/// See the module's text.
pub(super) struct Records<'e> {
    earlier: Option<EarlierRecords<'e>>,
    later: SortedEntries,
    /// The next of the sorted records, while there are also earlier ones.
    held: Option<Held>,
    /// Whether the last returned record was an earlier one.
    is_earlier: bool,
    is_begun: bool,
}

struct EarlierRecords<'e> {
    cursor: BulkCursor<'e>,
    places: Places,
    place: [u8; ORIGIN_BYTES],
}

#[derive(Default)]
struct Held {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// One record.
pub(super) struct Record<'r> {
    pub(super) key: &'r [u8],
    pub(super) place: [u8; ORIGIN_BYTES],
    /// Its change number and the document.
    pub(super) stored: &'r [u8],
    /// Whether it arrived in order.
    pub(super) came_in_order: bool,
}

impl<'e> Records<'e> {
    pub(super) fn new(earlier: Option<&'e Earlier>, later: SortedEntries) -> Result<Records<'e>, LoadError> {
        let open = |earlier: &'e Earlier| -> Result<EarlierRecords<'e>, LoadError> {
            let (cursor, places) = (earlier.entries.read()?, Places::new(&earlier.places)?);
            Ok(EarlierRecords { cursor, places, place: [0; ORIGIN_BYTES] })
        };
        Ok(Records { earlier: earlier.map(open).transpose()?, later, held: None, is_earlier: false, is_begun: false })
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, LoadError> {
        if self.earlier.is_none() && self.held.is_none() {
            return self.later.next()?.map(|(key, value)| sorted(key, value)).transpose();
        }
        self.step()?;
        match (&self.earlier, &self.held) {
            (Some(earlier), _) if self.is_earlier => Ok(Some(Record {
                key: earlier.cursor.key(),
                place: earlier.place,
                stored: earlier.cursor.value()?,
                came_in_order: true,
            })),
            (_, Some(held)) => sorted(&held.key, &held.value).map(Some),
            _ => Ok(None),
        }
    }

    /// Advances past the last returned record, and chooses the lower of the two next ones.
    fn step(&mut self) -> Result<(), LoadError> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if is_first || self.is_earlier {
            self.step_earlier()?;
        }
        if is_first || !self.is_earlier {
            self.step_later()?;
        }
        self.is_earlier = match (&self.earlier, &self.held) {
            (Some(earlier), Some(held)) => earlier.cursor.key() <= held.key.as_slice(),
            (earlier, _) => earlier.is_some(),
        };
        Ok(())
    }

    fn step_earlier(&mut self) -> Result<(), LoadError> {
        let Some(earlier) = &mut self.earlier else { return Ok(()) };
        if earlier.cursor.advance()? {
            earlier.place = earlier.places.next_origin()?;
        } else {
            self.earlier = None;
        }
        Ok(())
    }

    fn step_later(&mut self) -> Result<(), LoadError> {
        let Some((key, value)) = self.later.next()? else {
            self.held = None;
            return Ok(());
        };
        let held = self.held.get_or_insert_default();
        held.key.clear();
        held.key.extend_from_slice(key);
        held.value.clear();
        held.value.extend_from_slice(value);
        Ok(())
    }
}

fn sorted<'r>(key: &'r [u8], value: &'r [u8]) -> Result<Record<'r>, LoadError> {
    let (place, stored) = value.split_first_chunk().ok_or_else(damaged)?;
    Ok(Record { key, place: *place, stored, came_in_order: false })
}

fn damaged() -> LoadError {
    LoadError::damaged("a sorted run is damaged")
}
