//! Trees that are built while the input is still read, from batches with ascending keys: see `batch_order.rs`.

use std::sync::mpsc::Receiver;

use super::encoded::Encoded;
use super::places::PlacesWriter;
use super::trees_builder::TreesBuilder;
use crate::database::DocumentDatabase;
use crate::opening::LoadError;

/// A collection's documents that arrived in order of their keys.
pub(super) struct AscendingRecords<'c> {
    pub(super) builder: TreesBuilder<'c>,
    pub(super) places: PlacesWriter,
}

/// Takes batches until the channel closes; returns the trees by collection. `used` gets each batch back for reuse.
pub(super) fn run<'c>(
    database: &'c DocumentDatabase,
    collections: usize,
    sort_bytes: usize,
    batches: Receiver<Encoded>,
    used: &dyn Fn(Encoded),
) -> Result<Vec<Option<AscendingRecords<'c>>>, LoadError> {
    let mut all: Vec<Option<AscendingRecords<'c>>> = (0..collections).map(|_| None).collect();
    for batch in batches {
        if batch.len() > 0
            && let Some(place) = all.get_mut(batch.collection)
        {
            if place.is_none() {
                let builder = TreesBuilder::new(database, batch.collection, sort_bytes)?;
                *place = Some(AscendingRecords { builder, places: PlacesWriter::new(database.store())? });
            }
            if let Some(ascending) = place {
                ascending.add(&batch)?;
            }
        }
        used(batch);
    }
    Ok(all)
}

impl AscendingRecords<'_> {
    fn add(&mut self, batch: &Encoded) -> Result<(), LoadError> {
        self.places.push(batch)?;
        for record in batch.iter() {
            let (place, stored) = record.parts().ok_or_else(damaged)?;
            self.builder.add(record.key, place, stored)?;
        }
        Ok(())
    }
}

fn damaged() -> LoadError {
    LoadError::damaged("a batch of records is damaged")
}
