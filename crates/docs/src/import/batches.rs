//! Import into collections that have documents: the gathered records are inserted in transactions of many records each.
//!
//! Referenced collections come first. If a record of a transaction is refused, the transaction is repeated record by record,
//! so that the bad one is reported (or skipped) and the others are stored.

use binjson::StoredDocument;

use super::bulk::explain;
use super::gather::{CollectionRecords, Gathered};
use super::records::{Earlier, Record, Records};
use super::{ImportError, ImportOptions, ImportProgress, ImportReport, OnError};
use crate::database::{CollectionId, DocumentDatabase, Write};
use crate::engine::{self, STAMP_BYTES, Sorter};
use crate::error::WriteError;
use crate::opening::ORIGIN_BYTES;
use crate::writes::{Op, Precondition};

/// Documents in one transaction.
const BATCH_DOCUMENTS: usize = 512;
/// Bytes of documents in one transaction, unless one alone is larger.
const BATCH_TEXT_BYTES: usize = 1 << 20;

/// Writes all records.
pub(super) fn run(
    database: &DocumentDatabase,
    mut gathered: Gathered<'_>,
    options: &ImportOptions,
    progress: &(dyn Fn(ImportProgress) + Sync),
) -> Result<ImportReport, ImportError> {
    let mut all: Vec<_> = gathered.take_records().map(Some).collect();
    for number in order(database) {
        let Some(CollectionRecords { ascending, sorters, .. }) = all[number].take() else { continue };
        // The index entries collected so far are discarded: each write makes its own.
        let earlier = ascending.map(Earlier::of).transpose().map_err(|error| explain(&gathered, None, error))?;
        let mut records =
            Records::new(earlier.as_ref(), Sorter::merge(sorters)?).map_err(|error| explain(&gathered, None, error))?;
        let mut batch = Batch::default();
        let mut bytes = 0;
        while let Some(Record { place, stored, .. }) =
            records.next().map_err(|error| explain(&gathered, None, error))?
        {
            let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
            let body = document.ok_or_else(damaged)?.text().to_vec();
            bytes += body.len();
            batch.places.push(place);
            batch.writes.push(insert(number, body));
            if batch.writes.len() == BATCH_DOCUMENTS || bytes >= BATCH_TEXT_BYTES {
                flush(database, &mut gathered, options, &mut batch)?;
                bytes = 0;
                let (documents, bytes) = (gathered.report.documents, gathered.report.bytes);
                progress(ImportProgress { bytes, bytes_total: gathered.bytes_total, documents, building: true });
            }
        }
        flush(database, &mut gathered, options, &mut batch)?;
    }
    Ok(gathered.report)
}

/// Writes of one transaction, and the origin of each.
#[derive(Default)]
struct Batch {
    places: Vec<[u8; ORIGIN_BYTES]>,
    writes: Vec<Write>,
}

fn insert(number: usize, body: Vec<u8>) -> Write {
    Write { collection: CollectionId(number), op: Op::Insert { body }, precondition: Precondition::None }
}

fn flush(
    database: &DocumentDatabase,
    gathered: &mut Gathered<'_>,
    options: &ImportOptions,
    batch: &mut Batch,
) -> Result<(), ImportError> {
    let batch = std::mem::take(batch);
    if batch.writes.is_empty() {
        return Ok(());
    }
    match database.write_all(&batch.writes) {
        Ok(()) => {
            gathered.report.documents += batch.writes.len() as u64;
            return Ok(());
        }
        Err(error) if !is_of_a_record(&error) => return Err(ImportError::Write(error)),
        Err(_) => {}
    }
    for (place, write) in batch.places.iter().zip(&batch.writes) {
        match database.write_now(write) {
            Ok(_) => gathered.report.documents += 1,
            Err(why) if is_of_a_record(&why) => {
                let bad = gathered.bad(place, message(&why, options.on_error));
                gathered.refuse(options.on_error, bad)?;
            }
            Err(error) => return Err(ImportError::Write(error)),
        }
    }
    Ok(())
}

/// Why a record is refused, with a remedy if existing keys stop the import.
fn message(why: &WriteError, on_error: OnError) -> String {
    match (why, on_error) {
        (WriteError::Conflict { what }, OnError::Stop) => {
            format!("{what}; `--on-error skip` passes over such records")
        }
        (why, _) => why.to_string(),
    }
}

/// Whether the error concerns a record, or several records together; then they are repeated one by one. After any other error
/// the transaction may have been committed.
fn is_of_a_record(error: &WriteError) -> bool {
    matches!(error, WriteError::Invalid { .. } | WriteError::Conflict { .. } | WriteError::TooLarge { .. })
}

/// The collections in an order in which referenced ones come first; in a cycle, in the order of the catalog.
fn order(database: &DocumentDatabase) -> Vec<usize> {
    let collections = &database.catalog().collections;
    let mut order: Vec<usize> = Vec::new();
    while order.len() < collections.len() {
        let left = || (0..collections.len()).filter(|number| !order.contains(number));
        let free = |number: &usize| {
            collections[*number].references.iter().all(|r| r.target == *number || order.contains(&r.target))
        };
        let Some(next) = left().find(free).or_else(|| left().next()) else { break };
        order.push(next);
    }
    order
}

fn damaged() -> ImportError {
    let source = std::io::Error::other("a sorted run is damaged");
    ImportError::Store(engine::StoreError::Io { context: "sorting records".to_string(), source: source.into() })
}
