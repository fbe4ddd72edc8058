//! Import: files of documents into collections.
//!
//! 1. Gather (`gather.rs`): files are read and cut into records in parallel; threads encode and check each record by itself
//!    (JSON, schema, key) and sort by key, outside memory. Where a single source is in order of its keys, nothing needs to be
//!    sorted: its documents' trees are built while it is read (`line.rs`).
//! 2. Build (`bulk.rs`), where all the collections are empty: documents, indexes and unique values become trees bottom-up;
//!    a key or a unique value that occurs twice and a reference to nobody are found while sorted entries are read. All
//!    trees become visible in one step: an import that stops before leaves nothing and can be run again. Where a sync of that step
//!    fails ([`store::Error::Unknown`]), all of it or nothing is there after the next start.
//! 3. Or write (`batches.rs`), where a collection has documents: transactions of many inserts each, collections that are
//!    referred to first. Each transaction is whole, the import is not: one that stops has stored the batches before.
//!
//! `skip` passes over records that are bad by themselves, and over later ones with a key in use. Faults between records (a
//! unique value twice, a reference to nobody) stop a bulk build in any case: which of the records is wrong, only the user knows.
//!
//! Memory is bounded by names: [`BATCH_BYTES`] times [`QUEUE_BATCHES`] as text and twice as often encoded, [`SORT_BYTES`],
//! buffers of merged runs.

mod batches;
mod bulk;
mod encoded;
mod gather;
mod input;
mod line;
mod making;
mod places;
mod records;
mod rising;
mod split;

use std::fmt;
use std::path::PathBuf;

use crate::config::NAME_BYTES_MAX;
use crate::database::Database;
use crate::error::WriteError;

/// Records handed to a thread at once.
pub const BATCH_BYTES: usize = 512 << 10;
/// Batches that wait for a thread at most.
pub const QUEUE_BATCHES: usize = 16;
/// Memory of all sorters together, or a megabyte for each.
pub const SORT_BYTES: usize = 128 << 20;
/// Largest record.
pub const RECORD_BYTES_MAX: usize = binjson::TEXT_BYTES_MAX;
/// Skipped records that are told one by one; the rest are counted.
pub const SKIPPED_TOLD_MAX: usize = 100;
/// Most threads.
pub const THREADS_MAX: usize = 64;
/// Most entries of a zip file.
pub const ZIP_ENTRIES_MAX: usize = 1 << 20;
/// Longest key of a top-level array in a file.
const ARRAY_NAME_BYTES_MAX: usize = 4 * NAME_BYTES_MAX;

/// Where records come from.
pub enum Input {
    /// A file; `.zip` is unpacked, `.ndjson` and `.jsonl` have a record on each line, anything else is JSON:
    /// `{"users": […]}` or an array.
    File(PathBuf),
    /// Anything that can be read: JSON, or records by line where a collection is named and it begins with `{`.
    Stream {
        /** What messages call it. */
        name: String,
        /** The bytes. */
        read: Box<dyn std::io::Read + Send>,
    },
}

/// What to do with a bad record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Stop; nothing is imported (see the module for collections that have documents already).
    #[default]
    Stop,
    /// Leave it out and count it.
    Skip,
}

/// How to import.
#[derive(Clone, Debug)]
pub struct Options {
    /// The collection of records that stand in no named array.
    pub collection: Option<String>,
    /// What to do with a bad record.
    pub on_error: OnError,
    /// Threads, 1 to [`THREADS_MAX`].
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options { collection: None, on_error: OnError::Stop, threads }
    }
}

/// How far an import is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of records read, unpacked.
    pub bytes: u64,
    /// Bytes there are, where it is known.
    pub bytes_total: Option<u64>,
    /// Records checked.
    pub documents: u64,
    /// Whether all are read, and trees are being built.
    pub building: bool,
}

/// What an import did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Documents stored.
    pub documents: u64,
    /// Bytes of records read, unpacked.
    pub bytes: u64,
    /// Records left out.
    pub skipped: u64,
    /// The first of them, up to [`SKIPPED_TOLD_MAX`].
    pub told: Vec<BadRecord>,
}

/// A record that cannot be imported: where it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The file, or the file in the archive.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong.
    pub why: String,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Line, from 1.
    Line(u64),
    /// Byte, from 0.
    Byte(u64),
}

/// Why an import stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// A record is bad.
    Record(BadRecord),
    /// A file cannot be read, or is not what it should be.
    File {
        /** Which. */
        file: String,
        /** Why. */
        why: String,
    },
    /// The store refused.
    Store(store::Error),
    /// A write was refused for another reason than the record.
    Write(WriteError),
}

impl Database {
    /// Imports all inputs; `progress` is called from the import's threads, once for each batch.
    pub fn import(
        &self,
        inputs: Vec<Input>,
        options: &Options,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Report, ImportError> {
        // Trees are attached to empty ones only, those of views included.
        self.wait_for_views();
        let mut gathered = gather::run(self, inputs, options, progress)?;
        if let Some(error) = gathered.broken.take() {
            return Err(bulk::explain(&gathered, None, error));
        }
        if gathered.all_empty(self)? {
            bulk::run(self, gathered, options, progress)
        } else {
            batches::run(self, gathered, options, progress)
        }
    }
}

impl From<store::Error> for ImportError {
    fn from(error: store::Error) -> Self {
        ImportError::Store(error)
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Line(line) => write!(out, "{}, line {line}: {}", self.file, self.why),
            Place::Byte(byte) => write!(out, "{}, byte {byte}: {}", self.file, self.why),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Record(record) => record.fmt(out),
            ImportError::File { file, why } => write!(out, "{file}: {why}"),
            ImportError::Store(error) => error.fmt(out),
            ImportError::Write(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for ImportError {}
