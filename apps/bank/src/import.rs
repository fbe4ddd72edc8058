//! Imports customers and the log of attempts into a data folder, or the log into Redis if the ledger is there.
//!
//! Lines are converted to documents while they are read; the database sorts them with external sorting and builds its trees
//! bottom-up. Each file is imported completely or not at all, into empty collections.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sapsan::docs::import::{ImportError, ImportOptions, Input};
use sapsan::{Database, DatabaseError};
use serde_json::json;

use crate::attempt::Attempt;
use crate::ledger::embedded::Success;
use crate::ledger::{Recorded, Redis, RedisError};
use crate::table::{Lines, LogLine, TableError, UserLine};

/// Largest number of logins and addresses whose attempts are counted while a log is read.
const COUNTED_MAX: usize = 10_000_000;
/// Size of a chunk of documents for the database, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Why an import failed.
#[derive(Debug)]
pub enum BankImportError {
    /// A file cannot be read, or one of its lines is invalid.
    Table(TableError),
    /// The database refuses the file.
    Database(ImportError),
    /// Redis refuses the log.
    Redis(RedisError),
    /// The ledger has attempts already: the log would be recorded after later attempts.
    NotEmpty(&'static str),
    /// The data cannot be read.
    Read(DatabaseError),
}

impl fmt::Display for BankImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BankImportError::Table(error) => error.fmt(out),
            BankImportError::Database(error) => error.fmt(out),
            BankImportError::Redis(error) => error.fmt(out),
            BankImportError::NotEmpty(what) => {
                write!(out, "{what} has attempts already: import a log before the first attempt")
            }
            BankImportError::Read(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for BankImportError {}

impl From<TableError> for BankImportError {
    fn from(error: TableError) -> BankImportError {
        BankImportError::Table(error)
    }
}

impl From<RedisError> for BankImportError {
    fn from(error: RedisError) -> BankImportError {
        BankImportError::Redis(error)
    }
}

impl From<DatabaseError> for BankImportError {
    fn from(error: DatabaseError) -> BankImportError {
        BankImportError::Read(error)
    }
}

/// Imports `users.tsv`; returns the number of users.
///
/// # Errors
/// See [`BankImportError`]. Nothing is imported then if there were no users before.
pub fn users(database: &Database, file: &Path) -> Result<u64, BankImportError> {
    import(database, "users", Lines::open(file)?, |lines| {
        let Some(UserLine { login, user }) = lines.next_with(UserLine::parse)? else { return Ok(None) };
        Ok(Some(json!({ "login": login, "id": user.id, "salt": user.salt, "hash": user.hash })))
    })
}

/// Imports `log.tsv` into the embedded ledger; returns the number of attempts.
///
/// # Errors
/// See [`BankImportError`]; nothing is imported then.
pub fn log(database: &Database, file: &Path) -> Result<u64, BankImportError> {
    if has_attempts(database)? {
        return Err(BankImportError::NotEmpty("the data folder"));
    }
    let (mut of_login, mut runs, mut id) = (Counts::default(), Counts::default(), 0_u64);
    import(database, "attempts", Lines::open(file)?, move |lines| {
        let Some(line) = lines.next_with(LogLine::parse)? else { return Ok(None) };
        id += 1;
        let run = runs.next(&line.address).map_err(|why| lines.mistake(why))?;
        let of_user = line.user.map(|_| of_login.next(&line.login)).transpose().map_err(|why| lines.mistake(why))?;
        let mut document = json!({
            "id": id, "at": line.at, "login": line.login, "address": line.address, "succeeded": line.succeeded,
        });
        if let Some(user) = line.user {
            document["user"] = user.into();
        }
        if line.succeeded {
            runs.restart(&line.address);
            document["of_user"] = of_user.map(|number| Success::text(number, line.at, &line.address)).into();
            document["run"] = run.into();
        }
        Ok(Some(document))
    })
}

/// Imports `log.tsv` into Redis; returns the number of attempts.
///
/// # Errors
/// See [`BankImportError`]; the attempts before the invalid line are recorded.
pub fn log_to_redis(redis: &Redis, file: &Path) -> Result<u64, BankImportError> {
    if !redis.is_empty()? {
        return Err(BankImportError::NotEmpty("Redis"));
    }
    let mut lines = Lines::open(file)?;
    let mut recorded = std::iter::from_fn(|| match lines.next_with(LogLine::parse) {
        Ok(line) => line.map(|line| Ok(of_line(line))),
        Err(error) => Some(Err(BankImportError::Table(error))),
    });
    redis.record_all(&mut recorded)
}

fn of_line(line: LogLine) -> Recorded {
    let LogLine { at, user, login, address, succeeded } = line;
    Recorded { attempt: Attempt { at, user, login, address, is_right: succeeded }, succeeded }
}

fn has_attempts(database: &Database) -> Result<bool, DatabaseError> {
    let first: Option<serde_json::Value> = database.row("SELECT id FROM attempts LIMIT 1", ())?;
    Ok(first.is_some())
}

/// Number of occurrences of each name.
#[derive(Default)]
struct Counts(HashMap<String, u64>);

impl Counts {
    /// Counts a name once more; returns its number of occurrences.
    fn next(&mut self, name: &str) -> Result<u64, String> {
        if let Some(count) = self.0.get_mut(name) {
            *count += 1;
            return Ok(*count);
        }
        if self.0.len() == COUNTED_MAX {
            return Err(format!("a log has up to {COUNTED_MAX} different logins and addresses"));
        }
        self.0.insert(name.to_owned(), 1);
        Ok(1)
    }

    /// Counts a name from zero again.
    fn restart(&mut self, name: &str) {
        if let Some(count) = self.0.get_mut(name) {
            *count = 0;
        }
    }
}

/// The document of the next line. `None` after the last one.
type NextDocument = Result<Option<serde_json::Value>, TableError>;

fn import(
    database: &Database,
    collection: &str,
    lines: Lines,
    next: impl FnMut(&mut Lines) -> NextDocument + Send + 'static,
) -> Result<u64, BankImportError> {
    let mistake = Arc::new(Mutex::new(None));
    let documents = Documents { lines, next, chunk: Vec::new(), taken: 0, mistake: Arc::clone(&mistake) };
    let input = Input::Stream { name: documents.lines.mistake("").file, read: Box::new(documents) };
    let options = ImportOptions { collection: Some(collection.to_owned()), ..ImportOptions::default() };
    let imported = database.docs().import(vec![input], &options, &|_| {});
    // The database's error says only that the stream failed.
    if let Some(mistake) = mistake.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(BankImportError::Table(mistake));
    }
    imported.map(|report| report.documents).map_err(BankImportError::Database)
}

/// Lines as documents, one JSON text per line.
struct Documents<N> {
    lines: Lines,
    next: N,
    chunk: Vec<u8>,
    /// Bytes of the chunk that have been read.
    taken: usize,
    mistake: Arc<Mutex<Option<TableError>>>,
}

impl<N: FnMut(&mut Lines) -> NextDocument> Documents<N> {
    fn fill(&mut self) -> NextChunk {
        self.chunk.clear();
        self.taken = 0;
        while self.chunk.len() < CHUNK_BYTES {
            let Some(document) = (self.next)(&mut self.lines)? else { break };
            serde_json::to_writer(&mut self.chunk, &document).expect("a value of strings and numbers is JSON");
            self.chunk.push(b'\n');
        }
        Ok(())
    }
}

type NextChunk = Result<(), TableError>;

impl<N: FnMut(&mut Lines) -> NextDocument> Read for Documents<N> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len()
            && let Err(mistake) = self.fill()
        {
            let told = io::Error::other(mistake.to_string());
            *self.mistake.lock().unwrap_or_else(PoisonError::into_inner) = Some(mistake);
            return Err(told);
        }
        let bytes = (&self.chunk[self.taken..]).read(out)?;
        self.taken += bytes;
        Ok(bytes)
    }
}
