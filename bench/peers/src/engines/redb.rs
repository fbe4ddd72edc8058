//! redb. Its default durability, `Immediate`, syncs each commit; the cache holds all data.

use crate::data::{DOCUMENT_BYTES, Shape, document, touch};
use crate::engine::{CACHE_BYTES, Engine, Outcome, Reader, Writer, missing};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

/// An open database with one table.
pub(crate) struct Redb {
    database: Database,
    shape: Shape,
}

impl Redb {
    /// Opens or creates it.
    pub(crate) fn open(folder: &Path, shape: Shape) -> Outcome<Redb> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(folder.join("data.redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(Redb { database, shape })
    }
}

impl Engine for Redb {
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()> {
        let transaction = self.database.begin_write()?;
        let mut table = transaction.open_table(RECORDS)?;
        for (key, value) in records {
            table.insert(key, value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn settle(&self) -> Outcome<()> {
        Ok(())
    }
}

struct Handle<'e>(&'e Redb);

impl Writer for Handle<'_> {
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()> {
        let mut text = [0; DOCUMENT_BYTES];
        let transaction = self.0.database.begin_write()?;
        let mut table = transaction.open_table(RECORDS)?;
        for &number in numbers {
            document(number, revision, &mut text);
            table.insert(self.0.shape.key(number).bytes(), text.as_slice())?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }
}

impl Reader for Handle<'_> {
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64> {
        let table = self.0.database.begin_read()?.open_table(RECORDS)?;
        let mut sum = 0;
        for &number in numbers {
            let value = table.get(self.0.shape.key(number).bytes())?.ok_or_else(|| missing(number))?;
            sum += touch(value.value());
        }
        Ok(sum)
    }

    fn scan(&mut self) -> Outcome<u64> {
        let table = self.0.database.begin_read()?.open_table(RECORDS)?;
        let (mut rows, mut sum) = (0, 0);
        for entry in table.iter()? {
            let (key, value) = entry?;
            sum += u64::from(key.value()[0]) + u64::from(value.value()[0]);
            rows += 1;
        }
        std::hint::black_box(sum);
        Ok(rows)
    }
}
