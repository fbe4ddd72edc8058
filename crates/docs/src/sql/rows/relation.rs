//! Rows kept for the rest of an execution: those of a subquery, or of a collection that is read once for a join.
//!
//! A row is stored as its fields one after the other (`values/sort.rs`). A hash finds the rows with certain values in its columns.
//! Equality is that of SQL's `=`, so rows with NULL in these columns are never found.
//!
//! Rows that are only joined may spill ([`Relation::make_room`]); then all of them are on disk once they are complete.

use std::cmp::Ordering;
use std::rc::Rc;

use hashbrown::HashMap;

use super::on_disk::{self, OnDisk};
use super::row_list::RowList;
use super::sorter::Sorter;
use crate::sql::limits::{Budget, Fault, Meter, QueryError, ROW_UNITS};
use crate::sql::values::value::compare;
use crate::sql::values::{FieldValue, OuterValue, RowArena, Value, Workspace, sort};

/// Estimate of a row's bytes besides its fields: its end, and its links in a hash.
pub(crate) const ROW_OVERHEAD_BYTES: usize = 64;
/// Ends a chain of rows.
const NONE: u32 = u32::MAX;

/// The rows, limited by the execution's memory.
#[derive(Debug, Default)]
pub(crate) struct Relation {
    rows: RowList,
    hashes: Vec<Hash>,
    disk: Option<Box<OnDisk>>,
}

/// Rows by the values of some columns. Those of one key are linked, in their order.
#[derive(Debug, Default)]
struct Hash {
    /// The first and last row of each key.
    chains: HashMap<Box<[u8]>, (u32, u32)>,
    next: Vec<u32>,
    /// Rows with NULL in one of the columns.
    unknown: Vec<u32>,
}

/// The relations of an execution, each computed when it is first requested.
pub(crate) trait Relations {
    /// The relation with this number.
    fn get(&self, number: usize) -> Result<&Relation, Fault>;
    /// The relation of a correlated query for these values of the outer row.
    fn ask(&self, number: usize, outer: &[OuterValue<'_>]) -> Result<Rc<Relation>, Fault>;
    /// Whether a later request may still read rows.
    fn may_read(&self) -> bool;
}

impl Relation {
    /// The rows in memory, for changes before they are complete.
    pub(crate) fn rows(&mut self) -> &mut RowList {
        &mut self.rows
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len() + self.disk.as_ref().map_or(0, |disk| disk.len())
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        let disk = self.disk.as_ref().map_or(0, |disk| disk.size());
        self.rows.field_bytes() + self.rows.len() * ROW_OVERHEAD_BYTES + disk
    }

    /// Spills the rows if they take too much memory.
    pub(crate) fn make_room(&mut self, budget: &Budget<'_>) -> Result<(), QueryError> {
        if self.size() > on_disk::waiting_max(budget) { self.put_on_disk(budget) } else { Ok(()) }
    }

    fn put_on_disk(&mut self, budget: &Budget<'_>) -> Result<(), QueryError> {
        let mut disk = self.disk.take().unwrap_or_default();
        disk.write(self.rows.rows(), budget)?;
        self.rows.clear();
        self.disk = Some(disk);
        Ok(())
    }

    /// Called when all rows are added: builds hashes (on disk: sorted runs) over these columns.
    pub(crate) fn complete(
        &mut self,
        hashes: &[Vec<usize>],
        budget: &Budget<'_>,
        meter: &Meter<'_>,
    ) -> Result<(), QueryError> {
        if self.disk.is_none() {
            return Ok(hashes.iter().try_for_each(|columns| self.add_hash(columns, meter))?);
        }
        self.put_on_disk(budget)?;
        self.rows = RowList::default();
        let Some(disk) = &mut self.disk else { return Ok(()) };
        for columns in hashes {
            let (mut sorter, mut key, mut arena) = (Sorter::default(), Vec::new(), RowArena::new(meter));
            disk.each(&mut Vec::new(), |row| {
                meter.tick(ROW_UNITS)?;
                if make_key(row, columns, &mut key, arena.next())? {
                    sorter.buffer().push(&[&key], &[row], None, meter)?;
                    sorter.make_room(on_disk::waiting_max(budget), budget)?;
                }
                Ok::<_, QueryError>(())
            })?;
            disk.add(sorter, budget)?;
        }
        Ok(())
    }

    /// The rows on disk, if they were spilled.
    pub(crate) fn on_disk(&self) -> Option<&OnDisk> {
        self.disk.as_deref()
    }

    pub(crate) fn row(&self, number: usize) -> &[u8] {
        self.rows.row(number)
    }

    /// Adds a hash over some columns.
    pub(crate) fn add_hash(&mut self, columns: &[usize], meter: &Meter<'_>) -> Result<(), Fault> {
        let mut hash = Hash { next: vec![NONE; self.len()], ..Hash::default() };
        let (mut key, mut arena) = (Vec::new(), RowArena::new(meter));
        for number in 0..self.len() {
            meter.tick(ROW_UNITS)?;
            let place = number as u32;
            if !make_key(self.row(number), columns, &mut key, arena.next())? {
                hash.unknown.push(place);
                continue;
            }
            match hash.chains.get_mut(&key[..]) {
                Some((_, last)) => {
                    hash.next[*last as usize] = place;
                    *last = place;
                }
                None => {
                    hash.chains.insert(key.as_slice().into(), (place, place));
                }
            }
        }
        self.hashes.push(hash);
        Ok(())
    }

    /// The rows with this key, made of values other than NULL by [`sort::push_key`].
    pub(crate) fn matching(&self, hash: usize, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        let hash = &self.hashes[hash];
        let mut next = hash.chains.get(key).map_or(NONE, |(first, _)| *first);
        std::iter::from_fn(move || {
            let number = (next != NONE).then_some(next as usize)?;
            next = hash.next[number];
            Some(self.row(number))
        })
    }

    /// `values IN` its rows, by hash 0 over all their columns. Without a match the result is unknown if there is a row in which
    /// each part is equal or NULL on either side.
    pub(crate) fn contains(&self, values: &[Value<'_>], meter: &Meter<'_>) -> Result<Option<bool>, Fault> {
        if self.len() == 0 {
            return Ok(Some(false));
        }
        let Some(hash) = self.hashes.first() else { return Err(Fault::Plan) };
        let known = !values.iter().any(|value| value.is_null());
        if known {
            let (mut key, mut room) = (Vec::new(), meter.row_room());
            for value in values {
                room.take(FieldValue::Value(*value))?;
                sort::push_key(*value, false, &mut key)?;
            }
            if hash.chains.contains_key(&key[..]) {
                return Ok(Some(true));
            }
        }
        let mut all = 0..self.len() as u32;
        let mut unknown = hash.unknown.iter().copied();
        let candidates: &mut dyn Iterator<Item = u32> = if known { &mut unknown } else { &mut all };
        let mut arena = RowArena::new(meter);
        for number in candidates {
            meter.tick(values.len() as u64)?;
            if self.may_equal(number as usize, values, arena.next())? {
                return Ok(None);
            }
        }
        Ok(Some(false))
    }

    fn may_equal(&self, number: usize, values: &[Value<'_>], workspace: Workspace<'_>) -> Result<bool, Fault> {
        let mut row = self.row(number);
        for value in values {
            let other = sort::take_field(&mut row).decode(workspace)?;
            workspace.meter.weigh(other)?;
            if !value.is_null() && !other.is_null() && compare(*value, other) != Ordering::Equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Makes a row's hash key. False if one of the columns is NULL.
fn make_key(row: &[u8], columns: &[usize], key: &mut Vec<u8>, workspace: Workspace<'_>) -> Result<bool, Fault> {
    key.clear();
    let (mut known, mut room) = (true, workspace.meter.row_room());
    for &column in columns {
        let value = of_row(row, column, workspace)?;
        room.take(FieldValue::Value(value))?;
        known &= !value.is_null();
        sort::push_key(value, false, key)?;
    }
    Ok(known)
}

/// A field of a row.
#[inline]
pub(crate) fn field(mut row: &[u8], column: usize) -> FieldValue<'_> {
    for _ in 0..column {
        sort::take_field(&mut row);
    }
    sort::take_field(&mut row)
}

/// The same field as a value.
pub(crate) fn of_row<'a>(row: &'a [u8], column: usize, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    field(row, column).decode(workspace)
}
