//! Import into empty collections: trees are built from the gathered records, documents first, then indexes, unique values and
//! views.
//!
//! Collections are built in parallel, and then their indexes and checks. Nothing is visible until the last step attaches
//! everything.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::ascending::AscendingRecords;
use super::gather::{CollectionRecords, Gathered};
use super::records::{Earlier, Record, Records};
use super::trees_builder::{BuiltTrees, TreesBuilder};
use super::{BadRecord, ImportError, ImportOptions, ImportProgress, ImportReport, SKIPPED_LISTED_MAX, SORT_BYTES};
use crate::database::{CollectionId, DocumentDatabase};
use crate::encoding::KeyType;
use crate::encoding::key::shown_key;
use crate::engine::{BulkTree, Sorter, TreeId};
use crate::opening::{DocumentOrigin, LoadError, STORED, Task};
use crate::writes::ReferencePlace;

/// A collection whose documents are built.
struct Built<'c> {
    number: usize,
    made: BuiltTrees<'c>,
    /// The listed duplicate keys: the origins of the first record and of the later one.
    again: Vec<(DocumentOrigin, DocumentOrigin)>,
    /// The number of further ones.
    again_more: u64,
}

/// Builds and attaches.
pub(super) fn run(
    database: &DocumentDatabase,
    mut gathered: Gathered<'_>,
    options: &ImportOptions,
    progress: &(dyn Fn(ImportProgress) + Sync),
) -> Result<ImportReport, ImportError> {
    let threads = options.threads.clamp(1, super::THREADS_MAX);
    let work: VecDeque<_> = gathered.take_records().filter(|records| !records.is_empty()).collect();
    let share = SORT_BYTES / work.len().max(1);
    let mut built = Vec::new();
    for result in side_by_side(threads, work, |records| build(database, records, share)) {
        built.push(result.map_err(|error| explain(&gathered, None, error))?);
    }
    for built in &mut built {
        let info = &database.collection_at(CollectionId(built.number)).info;
        gathered.report.documents += built.made.documents;
        for (first, second) in std::mem::take(&mut built.again) {
            let why = format!(
                "the key {} is there already: {}",
                shown_key(info.key.kind, &second.key),
                at(&gathered, &first)
            );
            let bad = gathered.bad(&second.place, why);
            gathered.refuse(options.on_error, bad)?;
        }
        gathered.report.skipped += built.again_more;
    }
    progress(ImportProgress {
        bytes: gathered.report.bytes,
        bytes_total: gathered.bytes_total,
        documents: gathered.report.documents,
        building: true,
    });
    let trees = finish(database, &gathered, built, threads)?;
    database.store().attach(trees, &[])?;
    Ok(gathered.report)
}

fn build<'d>(
    database: &'d DocumentDatabase,
    records: CollectionRecords<'d>,
    sort_bytes: usize,
) -> Result<Built<'d>, LoadError> {
    let CollectionRecords { number, ascending, sorters } = records;
    let (mut builder, earlier) = match ascending {
        // All records arrived in order, so their tree is already built.
        Some(ascending) if sorters.is_empty() => {
            return Ok(Built { number, made: ascending.builder.finish()?, again: Vec::new(), again_more: 0 });
        }
        Some(AscendingRecords { mut builder, places }) => {
            let tree = builder.begin_again()?;
            (builder, Some(Earlier::new(tree, places)?))
        }
        None => (TreesBuilder::new(database, number, sort_bytes)?, None),
    };
    let mut records = Records::new(earlier.as_ref(), Sorter::merge(sorters)?)?;
    let mut again = Vec::new();
    let mut last: Option<DocumentOrigin> = None;
    let mut again_more = 0;
    while let Some(Record { key, place, stored, came_in_order }) = records.next()? {
        if let Some(first) = last.as_ref().filter(|last| last.key == key) {
            if again.len() < SKIPPED_LISTED_MAX {
                again.push((first.clone(), DocumentOrigin { place, key: key.to_vec() }));
            } else {
                again_more += 1;
            }
            continue;
        }
        if came_in_order {
            builder.add_again(key, stored)?
        } else {
            builder.add(key, &place, stored)?
        }
        let last = last.get_or_insert_with(|| DocumentOrigin { place: STORED, key: Vec::new() });
        last.place = place;
        last.key.clear();
        last.key.extend_from_slice(key);
    }
    Ok(Built { number, made: builder.finish()?, again, again_more })
}

/// Builds indexes and unique trees and checks references; returns all trees.
fn finish(
    database: &DocumentDatabase,
    gathered: &Gathered<'_>,
    built: Vec<Built<'_>>,
    threads: usize,
) -> Result<Vec<(TreeId, BulkTree)>, ImportError> {
    let mut keys = Vec::new();
    let mut trees = Vec::new();
    let mut work = VecDeque::new();
    for Built { number, made, .. } in built {
        let tree = database.collection_at(CollectionId(number)).info.tree;
        trees.push((tree, made.tree));
        trees.extend(made.views);
        keys.extend(made.keys.map(|keys| (tree, keys)));
        work.extend(made.tasks.into_iter().map(|task| (number, task)));
    }
    let (keys, now_ms) = (&keys, database.clock().now_ms());
    let run = |task: Task<'_>| {
        let session = database.session()?;
        let is_there = |place: &ReferencePlace, key: &[u8]| {
            let found = session.reader().snapshot();
            Ok(found.get(place.target, key)?.is_some_and(|stored| place.is_there(&stored, now_ms)))
        };
        task.run(database.store(), keys, &is_there)
    };
    for result in side_by_side(threads, work, |(number, task)| (number, run(task))) {
        let (number, result) = result;
        trees.extend(result.map_err(|error| explain(gathered, Some((database, number)), error))?);
    }
    Ok(trees)
}

/// Runs the work on some threads; the order of results is undefined.
fn side_by_side<W: Send, R: Send>(threads: usize, work: VecDeque<W>, run: impl Fn(W) -> R + Sync) -> Vec<R> {
    let threads = threads.min(work.len());
    let (work, results) = (Mutex::new(work), Mutex::new(Vec::new()));
    let next = || work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(work) = next() {
                    let result = run(work);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(super) fn explain(
    gathered: &Gathered<'_>,
    place: Option<(&DocumentDatabase, usize)>,
    error: LoadError,
) -> ImportError {
    let kind = |name: Option<&str>| {
        let (database, number) = place?;
        let catalog = database.catalog();
        let info = name.map_or(catalog.collections.get(number).map(|info| &**info), |name| catalog.collection(name))?;
        Some(info.key.kind)
    };
    let shown = |kind: Option<KeyType>, key: &[u8]| kind.map_or_else(String::new, |kind| shown_key(kind, key));
    match error {
        LoadError::Store(error) => ImportError::Store(error),
        LoadError::Record { why, from } => ImportError::Record(gathered.bad(&from.place, why.to_string())),
        LoadError::Twice { fields, first, second } => {
            let other = shown(kind(None), &first.key);
            let why = format!("{fields} has the same value as in the document {other} ({})", at(gathered, &first));
            ImportError::Record(gathered.bad(&second.place, why))
        }
        LoadError::Dangling { field, target, key, from } => {
            let why = format!("\"{field}\": there is no {} in {target}", shown(kind(Some(&target)), &key));
            ImportError::Record(gathered.bad(&from.place, why))
        }
    }
}

fn at(gathered: &Gathered<'_>, origin: &DocumentOrigin) -> String {
    let BadRecord { file, place, .. } = gathered.bad(&origin.place, String::new());
    format!("{file}, {place}")
}
