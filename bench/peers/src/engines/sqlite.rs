//! SQLite by rusqlite: WAL and `synchronous=FULL`, so that each commit syncs the log; a cache and a map for all data. 8-byte
//! keys are its integer primary key, 64-byte ones the key of a table without rowid. A connection for each thread.

use crate::data::{DOCUMENT_BYTES, Shape, document, touch};
use crate::engine::{CACHE_BYTES, Engine, Outcome, Reader, Writer};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A writer waits this long for the others.
const BUSY_FOR: Duration = Duration::from_secs(60);
const PUT: &str = "INSERT OR REPLACE INTO records VALUES (?1, ?2)";

/// A database file.
pub(crate) struct Sqlite {
    path: PathBuf,
    shape: Shape,
}

impl Sqlite {
    /// Opens or creates it.
    pub(crate) fn open(folder: &Path, shape: Shape) -> Outcome<Sqlite> {
        let sqlite = Sqlite { path: folder.join("data.sqlite"), shape };
        let table = match shape {
            Shape::Short => "CREATE TABLE IF NOT EXISTS records (key INTEGER PRIMARY KEY, document BLOB)",
            Shape::Long => "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, document BLOB) WITHOUT ROWID",
        };
        sqlite.connect()?.execute(table, [])?;
        Ok(sqlite)
    }

    fn connect(&self) -> Outcome<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(BUSY_FOR)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Negative: KB instead of pages.
        connection.pragma_update(None, "cache_size", -((CACHE_BYTES / 1024) as i64))?;
        connection.pragma_update(None, "mmap_size", 2 * CACHE_BYTES as i64)?;
        Ok(connection)
    }
}

impl Engine for Sqlite {
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()> {
        // Without a journal a failed load leaves nothing of use, as with any engine's bulk load.
        let connection = self.connect()?;
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        let mut insert = connection.prepare("INSERT INTO records VALUES (?1, ?2)")?;
        for (key, value) in records {
            match self.shape {
                Shape::Short => insert.execute(params![integer(key), value])?,
                Shape::Long => insert.execute(params![key, value])?,
            };
        }
        drop(insert);
        connection.execute_batch("COMMIT")?;
        std::fs::File::open(&self.path)?.sync_all()?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        Ok(())
    }

    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Handle { connection: self.connect()?, shape: self.shape }))
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(Handle { connection: self.connect()?, shape: self.shape }))
    }

    fn settle(&self) -> Outcome<()> {
        Ok(self.connect()?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
}

/// Keeps the order of the bytes.
fn integer(key: &[u8]) -> i64 {
    let unsigned = key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    (unsigned ^ (1 << 63)) as i64
}

struct Handle {
    connection: Connection,
    shape: Shape,
}

impl Writer for Handle {
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()> {
        let mut text = [0; DOCUMENT_BYTES];
        // Immediate: one that starts as a reader could not be retried where another has written meanwhile.
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut put = self.connection.prepare_cached(PUT)?;
        for &number in numbers {
            document(number, revision, &mut text);
            let key = self.shape.key(number);
            match self.shape {
                Shape::Short => put.execute(params![integer(key.bytes()), text.as_slice()])?,
                Shape::Long => put.execute(params![key.bytes(), text.as_slice()])?,
            };
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Reader for Handle {
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64> {
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        let mut get = self.connection.prepare_cached("SELECT document FROM records WHERE key = ?1")?;
        let mut sum = 0;
        for &number in numbers {
            let key = self.shape.key(number);
            let value = |row: &rusqlite::Row<'_>| Ok(touch(row.get_ref(0)?.as_blob()?));
            sum += match self.shape {
                Shape::Short => get.query_row(params![integer(key.bytes())], value)?,
                Shape::Long => get.query_row(params![key.bytes()], value)?,
            };
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(sum)
    }

    fn scan(&mut self) -> Outcome<u64> {
        let mut select = self.connection.prepare_cached("SELECT key, document FROM records ORDER BY key")?;
        let mut rows = select.query([])?;
        let (mut count, mut sum) = (0, 0);
        while let Some(row) = rows.next()? {
            sum += u64::from(row.get_ref(1)?.as_blob()?[0]);
            count += 1;
        }
        std::hint::black_box(sum);
        Ok(count)
    }
}
