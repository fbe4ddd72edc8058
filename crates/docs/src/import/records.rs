//! All records of a collection in order of their keys: those that have risen, and between them those that were sorted.
//!
//! Of records with one key the one that has risen comes first, then the others as they were read: see `line.rs`.

use store::{BulkCursor, BulkEntries, BulkTree, SortedEntries, SortedRun};

use super::places::{Places, PlacesWriter};
use super::rising::Risen;
use crate::loader::{LoadError, ORIGIN_BYTES};

/// What has risen, to be read again.
pub(super) struct Earlier {
    entries: BulkEntries,
    places: SortedRun,
}

impl Earlier {
    pub(super) fn new(tree: BulkTree, places: PlacesWriter) -> Result<Earlier, LoadError> {
        Ok(Earlier { entries: tree.into_entries()?, places: places.finish()? })
    }

    /// The documents alone.
    pub(super) fn of(risen: Risen<'_>) -> Result<Earlier, LoadError> {
        Earlier::new(risen.making.into_tree(), risen.places)
    }
}

/// See the module's text.
pub(super) struct Records<'e> {
    earlier: Option<EarlierRecords<'e>>,
    later: SortedEntries,
    /// The next of the sorted ones, while there are others beside them.
    held: Option<Held>,
    /// The record handed out last is the one that has risen.
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
    /// Whether it had risen.
    pub(super) has_risen: bool,
}

impl<'e> Records<'e> {
    pub(super) fn new(earlier: Option<&'e Earlier>, later: SortedEntries) -> Result<Records<'e>, LoadError> {
        let open = |earlier: &'e Earlier| -> Result<EarlierRecords<'e>, LoadError> {
            let (cursor, places) = (earlier.entries.read()?, Places::new(&earlier.places)?);
            Ok(EarlierRecords { cursor, places, place: [0; ORIGIN_BYTES] })
        };
        Ok(Records { earlier: earlier.map(open).transpose()?, later, held: None, is_earlier: false, is_begun: false })
    }

    /// The next one.
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
                has_risen: true,
            })),
            (_, Some(held)) => sorted(&held.key, &held.value).map(Some),
            _ => Ok(None),
        }
    }

    /// On from the record handed out last, and to the lower of the two that are next.
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
    Ok(Record { key, place: *place, stored, has_risen: false })
}

fn damaged() -> LoadError {
    LoadError::Io(std::io::Error::other("a sorted run is damaged"))
}
