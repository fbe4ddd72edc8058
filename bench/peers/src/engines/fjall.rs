//! fjall. A batch with `PersistMode::SyncData` is its durable commit; loads go through its ingestion; the block cache holds
//! all data, as its documentation advises where that fits.

use crate::data::{DOCUMENT_BYTES, Shape, document, touch};
use crate::engine::{CACHE_BYTES, Engine, Outcome, Reader, Writer, missing};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::path::Path;

/// An open database with one keyspace.
pub(crate) struct Fjall {
    database: Database,
    records: Keyspace,
    shape: Shape,
}

impl Fjall {
    /// Opens or creates it.
    pub(crate) fn open(folder: &Path, shape: Shape) -> Outcome<Fjall> {
        let database = Database::builder(folder).cache_size(CACHE_BYTES as u64).open()?;
        // Reads here ask for what is there: filters at the last level would only cost memory.
        let records = database.keyspace("records", || KeyspaceCreateOptions::default().expect_point_read_hits(true))?;
        Ok(Fjall { database, records, shape })
    }
}

impl Engine for Fjall {
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()> {
        let mut ingestion = self.records.start_ingestion()?;
        for (key, value) in records {
            ingestion.write(key, value)?;
        }
        ingestion.finish()?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn settle(&self) -> Outcome<()> {
        self.records.rotate_memtable_and_wait()?;
        Ok(self.records.major_compact()?)
    }
}

struct Handle<'e>(&'e Fjall);

impl Writer for Handle<'_> {
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()> {
        let mut text = [0; DOCUMENT_BYTES];
        let mut batch = self.0.database.batch().durability(Some(PersistMode::SyncData));
        for &number in numbers {
            document(number, revision, &mut text);
            batch.insert(&self.0.records, self.0.shape.key(number).bytes(), text.as_slice());
        }
        Ok(batch.commit()?)
    }
}

impl Reader for Handle<'_> {
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64> {
        let snapshot = self.0.database.snapshot();
        let mut sum = 0;
        for &number in numbers {
            let value = snapshot.get(&self.0.records, self.0.shape.key(number).bytes())?;
            sum += touch(&value.ok_or_else(|| missing(number))?);
        }
        Ok(sum)
    }

    fn scan(&mut self) -> Outcome<u64> {
        let snapshot = self.0.database.snapshot();
        let (mut rows, mut sum) = (0, 0);
        for entry in snapshot.iter(&self.0.records) {
            let (key, value) = entry.into_inner()?;
            sum += u64::from(key[0]) + u64::from(value[0]);
            rows += 1;
        }
        std::hint::black_box(sum);
        Ok(rows)
    }
}
