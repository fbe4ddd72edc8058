//! Import: files of documents into collections.
//!
//! 1. Gather (`gather.rs`): files are read and cut into records in parallel; threads encode and check each record by itself
//!    (JSON, schema, key) and sort by key, externally. If a single source is in order of its keys, nothing is sorted: its trees
//!    are built while it is read (`batch_order.rs`).
//! 2. Build (`bulk.rs`), if all the collections are empty: documents, indexes and unique values become trees bottom-up;
//!    duplicate keys, duplicate unique values and dangling references are found while sorted entries are read. All trees become
//!    visible in one step: an import that stops earlier leaves nothing and can be run again. If a sync of that step fails
//!    ([`engine::StoreError::Unknown`]), the next start finds all of it or nothing.
//! 3. Or write (`batches.rs`), if a collection has documents: transactions of many inserts each, referenced collections first.
//!    Each transaction is atomic, the import is not: if it stops, the earlier batches stay stored.
//!
//! The option `skip` leaves out records that are invalid by themselves, and records whose key is already in use. Conflicts
//! between records (a duplicate unique value, a dangling reference) always stop a bulk build, because only the user knows which
//! record is wrong.
//!
//! Memory is limited by constants: [`BATCH_BYTES`] times [`QUEUE_BATCHES`] as text and twice as often encoded, [`SORT_BYTES`],
//! buffers of merged runs.

mod ascending;
mod batch_order;
mod batches;
mod bulk;
pub mod cells;
mod csv;
mod encoded;
mod gather;
mod input;
mod places;
mod records;
mod sample;
mod split;
mod trees_builder;

use std::fmt;
use std::path::PathBuf;

use crate::config::NAME_BYTES_MAX;
use crate::database::DocumentDatabase;
use crate::engine;
use crate::error::WriteError;

pub use csv::{COLUMNS_MAX, Cell};
pub use sample::{SampledRecord, VisitSampled, sample};

/// Size of a batch of records for a thread.
pub const BATCH_BYTES: usize = 512 << 10;
/// Batches that may wait for a thread.
pub const QUEUE_BATCHES: usize = 16;
/// Memory of all sorters together, with at least a megabyte for each.
pub const SORT_BYTES: usize = 128 << 20;
/// Largest record.
pub const RECORD_BYTES_MAX: usize = binjson::TEXT_BYTES_MAX;
/// Skipped records that are listed; further ones are only counted.
pub const SKIPPED_LISTED_MAX: usize = 100;
/// For records without a key of a collection that makes keys.
const MAKES_NO_KEYS: &str = "; an import makes no keys: give each record one, or send the records to /_/collections/NAME/bulk, which makes them";
/// Most threads.
pub const THREADS_MAX: usize = 64;
/// Most entries of a zip file.
pub const ZIP_ENTRIES_MAX: usize = 1 << 20;
/// Longest key of a top-level array in a file.
const ARRAY_NAME_BYTES_MAX: usize = 4 * NAME_BYTES_MAX;

/// A source of records.
pub enum Input {
    /// A file; `.zip` is unpacked, `.ndjson` and `.jsonl` have a record on each line, `.csv` and `.tsv` are tables whose first
    /// line names the fields, anything else is JSON: `{"users": […]}` or an array. [`ImportOptions::format`] goes before the
    /// name.
    File(PathBuf),
    /// A stream in the format of [`ImportOptions::format`]; else JSON, or one record per line if a collection is named and the
    /// stream begins with `{`.
    Stream {
        /** Its name in messages. */
        name: String,
        /** The bytes. */
        read: Box<dyn std::io::Read + Send>,
    },
}

/// The treatment of a bad record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Stop; nothing is imported. (For collections that have documents already, see the module's text.)
    #[default]
    Stop,
    /// Leave it out and count it.
    Skip,
}

/// How records stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// In arrays.
    Json,
    /// One on each line.
    Lines,
    /// As the rows of a table, divided by commas.
    Csv,
    /// The same, divided by tabs.
    Tsv,
}

/// Options of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// How records stand in all inputs but archives. `None`: as an input's name says.
    pub format: Option<RecordFormat>,
    /// The collection of records that are in no named array.
    pub collection: Option<String>,
    /// The treatment of bad records.
    pub on_error: OnError,
    /// Threads, 1 to [`THREADS_MAX`].
    pub threads: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        ImportOptions { format: None, collection: None, on_error: OnError::Stop, threads }
    }
}

/// Progress of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportProgress {
    /// Bytes of records read, unpacked.
    pub bytes: u64,
    /// Total bytes, if known.
    pub bytes_total: Option<u64>,
    /// Records checked.
    pub documents: u64,
    /// Whether everything is read, and trees are being built.
    pub building: bool,
}

/// Result of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// Documents stored.
    pub documents: u64,
    /// Bytes of records read, unpacked.
    pub bytes: u64,
    /// Records left out.
    pub skipped: u64,
    /// The first of them, up to [`SKIPPED_LISTED_MAX`].
    pub listed: Vec<BadRecord>,
}

/// A record that cannot be imported: its place, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The file, or the file in the archive.
    pub file: String,
    /// The place in it.
    pub place: FilePlace,
    /// What is wrong.
    pub why: String,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// Line, from 1.
    Line(u64),
    /// Byte, from 0.
    Byte(u64),
    /// Column of a table.
    Cell {
        /** The line in which its row begins, from 1. */
        line: u64,
        /** Which of the row's fields, from 1. */
        column: u64,
    },
}

/// Why an import stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// A record is invalid.
    Record(BadRecord),
    /// A file cannot be read, or has the wrong format.
    File {
        /** The file. */
        file: String,
        /** The reason. */
        why: String,
    },
    /// The store reported an error.
    Store(engine::StoreError),
    /// A write failed for a reason other than the record.
    Write(WriteError),
}

impl DocumentDatabase {
    /// Imports all inputs; `progress` is called from the import's threads, once for each batch.
    pub fn import(
        &self,
        inputs: Vec<Input>,
        options: &ImportOptions,
        progress: &(dyn Fn(ImportProgress) + Sync),
    ) -> Result<ImportReport, ImportError> {
        // Only empty trees can be replaced, including those of views.
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

impl From<engine::StoreError> for ImportError {
    fn from(error: engine::StoreError) -> Self {
        ImportError::Store(error)
    }
}

impl fmt::Display for FilePlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilePlace::Line(line) => write!(out, "line {line}"),
            FilePlace::Byte(byte) => write!(out, "byte {byte}"),
            FilePlace::Cell { line, column } => write!(out, "line {line}, column {column}"),
        }
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, {}: {}", self.file, self.place, self.why)
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
