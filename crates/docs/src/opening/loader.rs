//! Bulk building of index entries, unique values and reference checks for many documents.
//!
//! Each document is added once; its entries are sorted externally, then each tree is built bottom-up. Duplicate unique values
//! and dangling references are found while the sorted entries are read.

use std::io;

use crate::encoding::{Key, Row};
use crate::engine::{self, BulkTree, SortedEntries, SortedRun, Sorter, Store, TreeId};
use crate::error::WriteError;
use crate::writes::{Collection, ReferencePlace};

/// The origin of a document: 4 bytes for the source and 8 for the position in it, big-endian, so that origins sort in reading
/// order.
pub(crate) const ORIGIN_BYTES: usize = 12;
/// The origin of a document that is stored already.
pub(crate) const STORED: [u8; ORIGIN_BYTES] = [0xff; ORIGIN_BYTES];

/// The trees of a collection that are to be built, and the references that are to be checked.
pub(crate) struct TreesToBuild {
    pub(crate) indexes: Vec<usize>,
    pub(crate) unique: Vec<usize>,
    pub(crate) references: Vec<usize>,
}

/// Sorted entries of one collection.
pub(crate) struct Loader<'c> {
    collection: &'c Collection,
    indexes: Vec<(usize, Sorter)>,
    unique: Vec<(usize, Sorter)>,
    references: Vec<(usize, Sorter)>,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Why a bulk build stops.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// Two documents with the same values in unique fields.
    Twice {
        fields: String,
        first: DocumentOrigin,
        second: DocumentOrigin,
    },
    /// A reference to a missing document.
    Dangling {
        field: String,
        target: String,
        key: Vec<u8>,
        from: DocumentOrigin,
    },
    /// A document's entry is over a limit, or its reference is no key.
    Record {
        why: WriteError,
        from: DocumentOrigin,
    },
    Store(engine::StoreError),
}

/// A document in a message: where it came from, and its key's stored bytes.
#[derive(Clone, Debug)]
pub(crate) struct DocumentOrigin {
    pub(crate) place: [u8; ORIGIN_BYTES],
    pub(crate) key: Vec<u8>,
}

impl LoadError {
    /// Sorted records that were read back are not as they were written.
    pub(crate) fn damaged(what: &str) -> LoadError {
        LoadError::Store(engine::StoreError::io("sorting records", io::Error::other(what)))
    }
}

impl From<engine::StoreError> for LoadError {
    fn from(error: engine::StoreError) -> Self {
        LoadError::Store(error)
    }
}

/// One tree to be built, or one reference to be checked; tasks can run in parallel.
pub(crate) enum Task<'c> {
    Index { tree: TreeId, entries: Sorter },
    Unique { tree: TreeId, fields: String, entries: Sorter },
    Reference { field: &'c str, place: &'c ReferencePlace, entries: Sorter },
}

/// Whether a reference may name the stored document with a key.
pub(crate) type IsThere<'t> = dyn Fn(&ReferencePlace, &[u8]) -> Result<bool, engine::StoreError> + 't;

impl Task<'_> {
    /// Builds the tree, or checks the references: by the run of their target's tree, which was written while the target's
    /// documents were built, else one by one.
    pub(crate) fn run(
        self,
        store: &Store,
        runs: &[(TreeId, SortedRun)],
        is_there: &IsThere<'_>,
    ) -> Result<Option<(TreeId, BulkTree)>, LoadError> {
        Ok(match self {
            Task::Index { tree, entries } => Some((tree, build_index(entries, store.bulk()?)?)),
            Task::Unique { tree, fields, entries } => Some((tree, build_unique(entries, store.bulk()?, fields)?)),
            Task::Reference { field, place, entries } => {
                let run = runs.iter().find(|(tree, _)| *tree == place.target);
                let lookup = match run {
                    Some((_, run)) => Lookup::Sorted(Box::new(run.read()?), Vec::new(), false),
                    None => Lookup::Ask(is_there, place),
                };
                check_references(entries, lookup, field, &place.target_name)?;
                None
            }
        })
    }
}

impl<'c> Loader<'c> {
    /// A loader whose sorters hold about `budget` bytes together.
    pub(crate) fn new(collection: &'c Collection, wanted: &TreesToBuild, store: &Store, budget: usize) -> Loader<'c> {
        let count = wanted.indexes.len() + wanted.unique.len() + wanted.references.len();
        let share = budget / count.max(1);
        let sorters = |numbers: &[usize]| numbers.iter().map(|&number| (number, store.sorter(share))).collect();
        Loader {
            collection,
            indexes: sorters(&wanted.indexes),
            unique: sorters(&wanted.unique),
            references: sorters(&wanted.references),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Adds one document's entries. `Ok(Err(_))`: the document is invalid.
    pub(crate) fn add(
        &mut self,
        row: &Row<'_, '_>,
        key: &Key<'_>,
        origin: &[u8; ORIGIN_BYTES],
    ) -> Result<Result<(), WriteError>, engine::StoreError> {
        for (number, sorter) in &mut self.indexes {
            if let Err(why) = self.collection.index_entry(*number, row, key, &mut self.key, &mut self.value) {
                return Ok(Err(why));
            }
            sorter.push(&self.key, &self.value)?;
        }
        self.value.clear();
        self.value.extend_from_slice(origin);
        self.value.extend_from_slice(key.as_bytes());
        for (number, sorter) in &mut self.unique {
            match self.collection.unique_key(*number, row, &mut self.key) {
                Ok(true) => sorter.push(&self.key, &self.value)?,
                Ok(false) => {}
                Err(why) => return Ok(Err(why)),
            }
        }
        for (number, sorter) in &mut self.references {
            let place = &self.collection.references[*number];
            let Some(found) = place.named(row) else { continue };
            match found.key() {
                Some(target) => sorter.push(target.as_bytes(), &self.value)?,
                None => return Ok(Err(place.dangling(&self.collection.names, &found))),
            }
        }
        Ok(Ok(()))
    }

    /// The remaining tasks.
    pub(crate) fn into_tasks(self) -> Vec<Task<'c>> {
        let collection = self.collection;
        let indexes = self.indexes.into_iter().map(|(number, entries)| {
            let tree = collection.indexes[number].tree;
            Task::Index { tree, entries }
        });
        let unique = self.unique.into_iter().map(|(number, entries)| {
            let place = &collection.unique[number];
            Task::Unique { tree: place.tree, fields: collection.info.unique[number].shown(), entries }
        });
        let references = self.references.into_iter().map(|(number, entries)| {
            let place = &collection.references[number];
            let field = collection.names.name(place.field);
            Task::Reference { field, place, entries }
        });
        indexes.chain(unique).chain(references).collect()
    }
}

/// Builds an index's tree from its entries.
fn build_index(entries: Sorter, mut tree: BulkTree) -> Result<BulkTree, LoadError> {
    let mut merge = entries.finish()?;
    while let Some((key, value)) = merge.next()? {
        tree.push(key, value)?;
    }
    Ok(tree)
}

/// Builds a unique field's tree; a duplicate value is an error.
fn build_unique(entries: Sorter, mut tree: BulkTree, fields: String) -> Result<BulkTree, LoadError> {
    let mut merge = entries.finish()?;
    let mut last: Option<(Vec<u8>, Vec<u8>)> = None;
    while let Some((key, value)) = merge.next()? {
        let (last_key, last_value) = last.get_or_insert_default();
        if !last_value.is_empty() && last_key == key {
            let (first, second) = (origin(last_value), origin(value));
            return Err(LoadError::Twice { fields, first, second });
        }
        tree.push(key, value.get(ORIGIN_BYTES..).unwrap_or_default())?;
        last_key.clear();
        last_key.extend_from_slice(key);
        last_value.clear();
        last_value.extend_from_slice(value);
    }
    Ok(tree)
}

/// Checks that each reference points to one of the targets.
fn check_references(entries: Sorter, mut keys: Lookup<'_>, field: &str, target_name: &str) -> Result<(), LoadError> {
    let mut merge = entries.finish()?;
    let mut last: Option<Vec<u8>> = None;
    while let Some((key, value)) = merge.next()? {
        if last.as_deref() == Some(key) {
            continue;
        }
        if !keys.has(key)? {
            let (field, target) = (field.to_string(), target_name.to_string());
            return Err(LoadError::Dangling { field, target, key: key.to_vec(), from: origin(value) });
        }
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(())
}

enum Lookup<'t> {
    /// The run, its current key, and whether reading has begun.
    Sorted(Box<SortedEntries>, Vec<u8>, bool),
    Ask(&'t IsThere<'t>, &'t ReferencePlace),
}

impl Lookup<'_> {
    /// Must be called with ascending keys.
    fn has(&mut self, key: &[u8]) -> Result<bool, LoadError> {
        match self {
            Lookup::Ask(is_there, place) => Ok(is_there(place, key)?),
            Lookup::Sorted(merge, current, started) => {
                while !*started || current.as_slice() < key {
                    *started = true;
                    let Some((next, _)) = merge.next()? else {
                        return Ok(false);
                    };
                    current.clear();
                    current.extend_from_slice(next);
                }
                Ok(current == key)
            }
        }
    }
}

fn origin(value: &[u8]) -> DocumentOrigin {
    let place = value.first_chunk().copied().unwrap_or(STORED);
    DocumentOrigin { place, key: value.get(ORIGIN_BYTES..).unwrap_or_default().to_vec() }
}
