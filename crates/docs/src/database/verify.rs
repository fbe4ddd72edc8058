//! Verification of a database: everything that writes maintain is computed again from the documents and compared.
//!
//! - Each document is intact, is stored under its own key and fits the schema.
//! - Each index has exactly the entries of the documents, with the current included fields.
//! - Each unique tree has exactly one entry for each value.
//! - Each reference names an existing document.
//!
//! The expected entries are looked up one by one. Any other entries then show in the trees' entry counts. So memory is bounded,
//! and the time is about that of reading everything in random order.

use std::ops::{Bound, ControlFlow};

use binjson::StoredDocument;

use crate::catalog::{IndexInfo, UniqueInfo};
use crate::database::DocumentDatabase;
use crate::encoding::{FieldNumbers, Key, Row};
use crate::engine::{Direction, KeyRange, ReadView, STAMP_BYTES, TreeId};
use crate::error::ReadError;
use crate::writes::{Collection, RuleScope};

/// Faults described in words; further ones are only counted.
pub const FAULTS_MAX: usize = 100;

/// Result of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Documents read.
    pub documents: u64,
    /// Entries of indexes and unique fields read.
    pub entries: u64,
    /// The faults; empty if there are none.
    pub faults: Vec<String>,
    /// Faults beyond [`FAULTS_MAX`].
    pub more: u64,
}

impl VerifyReport {
    /// Whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    fn fault(&mut self, what: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(what);
        } else {
            self.more += 1;
        }
    }
}

/// Verifies all collections as of one moment.
pub fn database(database: &DocumentDatabase) -> Result<VerifyReport, ReadError> {
    let session = database.session()?;
    let now = session.now();
    let mut report = VerifyReport::default();
    for place in 0..database.catalog().collections.len() {
        let collection = database.collection_at(crate::CollectionId(place));
        Verifier { view: now.view(), collection, report: &mut report, key: Vec::new(), value: Vec::new() }.run()?;
    }
    Ok(report)
}

struct Verifier<'v, V> {
    view: &'v V,
    collection: &'v Collection,
    report: &'v mut VerifyReport,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<V: ReadView> Verifier<'_, V> {
    fn run(mut self) -> Result<(), ReadError> {
        let collection = self.collection;
        let mut counts = Counts { indexes: 0, unique: vec![0; collection.unique.len()] };
        let (mut shape, mut failure) = (FieldNumbers::default(), None);
        let view = self.view;
        view.scan(collection.info.tree, ALL, Direction::Forward, &mut |key, stored| match self.document(
            key,
            stored,
            &mut shape,
            &mut counts,
        ) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        let ready = |(_, info): &(_, &IndexInfo)| info.readiness.is_ready();
        for (index, info) in collection.indexes.iter().zip(&collection.info.indexes).filter(ready) {
            self.count(index.tree, counts.indexes, &format!("index {}", info.fields.join(",")))?;
        }
        let ready = |(_, info): &(_, &UniqueInfo)| info.readiness.is_ready();
        for (number, info) in collection.info.unique.iter().enumerate().filter(ready) {
            self.count(info.tree, counts.unique[number], &format!("unique {}", info.fields.join(",")))?;
        }
        Ok(())
    }

    fn document(
        &mut self,
        key: &[u8],
        stored: &[u8],
        shape: &mut FieldNumbers,
        counts: &mut Counts,
    ) -> Result<(), ReadError> {
        self.report.documents += 1;
        counts.indexes += 1;
        let collection = self.collection;
        let Some(key) = collection.info.key.kind.of_bytes(key) else {
            self.fault(format!("a key of {} bytes is not a valid document key", key.len()));
            return Ok(());
        };
        let Some(document) = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok()) else {
            self.fault(format!("{key}: the document is damaged"));
            return Ok(());
        };
        collection.with_row(document, shape, |row| {
            match collection.check_held(RuleScope::InForce, document, row) {
                Err(why) => self.fault(format!("{key}: {why}")),
                Ok(found) => {
                    let own = collection.info.key.kind.of_scalar(found.scalar());
                    if own.is_none_or(|own| own.as_bytes() != key.as_bytes()) {
                        self.fault(format!("{key}: the document holds another key"));
                    }
                }
            }
            self.entries(&key, row, counts)?;
            self.references(&key, row)
        })
    }

    fn entries(&mut self, key: &Key<'_>, row: &Row<'_, '_>, counts: &mut Counts) -> Result<(), ReadError> {
        let collection = self.collection;
        // Indexes that are being built are skipped: they lack entries.
        for number in (0..collection.indexes.len()).filter(|n| collection.indexes[*n].readiness.is_ready()) {
            let name = || collection.info.indexes[number].fields.join(",");
            if let Err(why) = collection.index_entry(number, row, key, &mut self.key, &mut self.value) {
                self.fault(format!("{key}: index {}: {why}", name()));
                continue;
            }
            match self.view.get(collection.indexes[number].tree, &self.key)? {
                None => self.fault(format!("{key}: no entry in index {}", name())),
                Some(found) if found[..] != self.value => {
                    self.fault(format!("{key}: index {} carries outdated fields", name()));
                }
                Some(_) => {}
            }
        }
        for number in (0..collection.unique.len()).filter(|n| collection.unique[*n].readiness.is_ready()) {
            let name = || collection.info.unique[number].fields.join(",");
            match collection.unique_key(number, row, &mut self.key) {
                Err(why) => self.fault(format!("{key}: unique {}: {why}", name())),
                Ok(false) => {}
                Ok(true) => {
                    counts.unique[number] += 1;
                    let found = self.view.get(collection.unique[number].tree, &self.key)?;
                    if found.as_deref() != Some(key.as_bytes()) {
                        self.fault(format!("{key}: unique {} has no entry for it", name()));
                    }
                }
            }
        }
        Ok(())
    }

    fn references(&mut self, key: &Key<'_>, row: &Row<'_, '_>) -> Result<(), ReadError> {
        for reference in self.collection.references_held(RuleScope::InForce) {
            let Some(found) = reference.named(row) else { continue };
            let there = match found.key() {
                None => false,
                Some(target) => self.view.get(reference.target, target.as_bytes())?.is_some(),
            };
            if !there {
                let field = self.collection.names.name(reference.field);
                self.fault(format!("{key}: \"{field}\" refers to a missing document of {}", reference.target_name));
            }
        }
        Ok(())
    }

    fn count(&mut self, tree: TreeId, expected: u64, name: &str) -> Result<(), ReadError> {
        let mut count = 0;
        self.view.scan(tree, ALL, Direction::Forward, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        self.report.entries += count;
        if count != expected {
            self.fault(format!("{name} has {count} entries, the documents make {expected}"));
        }
        Ok(())
    }

    fn fault(&mut self, what: String) {
        self.report.fault(format!("{}: {what}", self.collection.info.name));
    }
}

/// Numbers of entries that the documents should have.
struct Counts {
    /// In each index.
    indexes: u64,
    /// In each unique tree.
    unique: Vec<u64>,
}

const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
