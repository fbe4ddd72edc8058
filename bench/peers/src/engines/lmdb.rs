//! LMDB by heed. Its defaults are durable: each commit syncs the file. `MDB_APPEND` for loads, `MDB_NOTLS` so that a
//! thread may hold several readers. Not `MDB_WRITEMAP`, which lets a stray pointer write into the data.

use crate::data::{DOCUMENT_BYTES, Shape, document, touch};
use crate::engine::{Engine, Outcome, Reader, Writer, missing};
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, PutFlags, WithoutTls};
use std::path::Path;

/// Address space for the file, which cannot outgrow it.
const MAP_BYTES: usize = 8 << 30;
/// Readers at once; the default of 126 would do too.
const READERS_MAX: u32 = 256;

/// An open environment with one database.
pub(crate) struct Lmdb {
    env: Env<WithoutTls>,
    records: Database<Bytes, Bytes>,
    shape: Shape,
}

impl Lmdb {
    /// Opens or creates it.
    #[allow(unsafe_code)]
    pub(crate) fn open(folder: &Path, shape: Shape) -> Outcome<Lmdb> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES).max_readers(READERS_MAX);
        // SAFETY: the folder is ours alone and temporary: nobody else truncates or writes the mapped file.
        let env = unsafe { options.open(folder)? };
        let mut transaction = env.write_txn()?;
        let records = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, records, shape })
    }
}

impl Engine for Lmdb {
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in records {
            self.records.put_with_flags(&mut transaction, PutFlags::APPEND, key, value)?;
        }
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

struct Handle<'e>(&'e Lmdb);

impl Writer for Handle<'_> {
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()> {
        let mut text = [0; DOCUMENT_BYTES];
        let mut transaction = self.0.env.write_txn()?;
        for &number in numbers {
            document(number, revision, &mut text);
            self.0.records.put(&mut transaction, self.0.shape.key(number).bytes(), &text)?;
        }
        Ok(transaction.commit()?)
    }
}

impl Reader for Handle<'_> {
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64> {
        let transaction = self.0.env.read_txn()?;
        let mut sum = 0;
        for &number in numbers {
            let value = self.0.records.get(&transaction, self.0.shape.key(number).bytes())?;
            sum += touch(value.ok_or_else(|| missing(number))?);
        }
        Ok(sum)
    }

    fn scan(&mut self) -> Outcome<u64> {
        let transaction = self.0.env.read_txn()?;
        let (mut rows, mut sum) = (0, 0);
        for entry in self.0.records.iter(&transaction)? {
            let (key, value) = entry?;
            sum += u64::from(key[0]) + u64::from(value[0]);
            rows += 1;
        }
        std::hint::black_box(sum);
        Ok(rows)
    }
}
