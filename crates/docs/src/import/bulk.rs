//! Building empty collections from gathered records: documents first, then, from their entries, all that stands beside them.
//!
//! Collections are built side by side, then their indexes and checks; nothing is visible before the last step attaches all.

use std::collections::VecDeque;
use std::sync::Mutex;

use binjson::Document;
use store::{BulkTree, SortedRun, SortedRunWriter, Sorter, TreeId};

use super::gather::Gathered;
use super::{BadRecord, ImportError, Options, Progress, Report, SKIPPED_TOLD_MAX, SORT_BYTES};
use crate::collection::{Collection, STAMP_BYTES};
use crate::database::{CollectionId, Database};
use crate::key::KeyType;
use crate::loader::{self, LoadError, Loader, ORIGIN_BYTES, Origin, STORED, Targets, Task, Wanted};
use crate::rebuild::shown_key;
use crate::row::Shape;
use crate::views::Loading;

/// A collection whose documents are built.
struct Built<'c> {
    number: usize,
    tree: BulkTree,
    tasks: Vec<Task<'c>>,
    /// The trees of its views.
    views: Vec<(TreeId, BulkTree)>,
    /// Its keys in order, where others refer to it.
    keys: Option<SortedRun>,
    documents: u64,
    /// Keys that occurred again, the first ones told: the first record's origin and the later one's.
    again: Vec<(Origin, Origin)>,
    /// How many more there are.
    again_more: u64,
}

/// Builds and attaches.
pub(super) fn run(
    database: &Database,
    mut gathered: Gathered,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, ImportError> {
    let threads = options.threads.clamp(1, super::THREADS_MAX);
    let mut work = VecDeque::new();
    for (number, sorters) in std::mem::take(&mut gathered.sorters).into_iter().enumerate() {
        if !sorters.is_empty() {
            work.push_back((number, sorters));
        }
    }
    let share = SORT_BYTES / work.len().max(1);
    let mut built = Vec::new();
    for result in side_by_side(threads, work, |(number, sorters)| build(database, number, sorters, share)) {
        built.push(result.map_err(|error| explain(&gathered, None, error))?);
    }
    for built in &mut built {
        let info = &database.collection_at(CollectionId(built.number)).info;
        gathered.report.documents += built.documents;
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
    progress(Progress {
        bytes: gathered.report.bytes,
        bytes_total: gathered.bytes_total,
        documents: gathered.report.documents,
        building: true,
    });
    let trees = finish(database, &gathered, built, threads)?;
    database.store().attach(trees, &[])?;
    Ok(gathered.report)
}

fn build(database: &Database, number: usize, sorters: Vec<Sorter>, sort_bytes: usize) -> Result<Built<'_>, LoadError> {
    let collection = database.collection_at(CollectionId(number));
    let wanted = Wanted {
        indexes: (0..collection.indexes.len()).collect(),
        unique: (0..collection.unique.len()).collect(),
        references: (0..collection.references.len()).collect(),
    };
    let mut loader = Loader::new(collection, &wanted, database.store(), sort_bytes);
    let mut views = Loading::new(collection, database.store(), sort_bytes);
    let mut tree = database.store().bulk()?;
    let mut keys = match collection.referrers.is_empty() {
        true => None,
        false => Some(database.store().sorted_run()?),
    };
    let mut merge = Sorter::merge(sorters)?;
    let (mut shape, mut again) = (Shape::default(), Vec::new());
    let mut last: Option<Origin> = None;
    let (mut documents, mut again_more) = (0, 0);
    while let Some((key, value)) = merge.next()? {
        let (place, stored) = value.split_first_chunk().ok_or_else(damaged)?;
        if let Some(first) = last.as_ref().filter(|last| last.key == key) {
            if again.len() < SKIPPED_TOLD_MAX {
                again.push((first.clone(), Origin { place: *place, key: key.to_vec() }));
            } else {
                again_more += 1;
            }
            continue;
        }
        one(collection, key, place, stored, &mut shape, &mut loader, &mut views)?;
        tree.push(key, stored)?;
        if let Some(keys) = &mut keys {
            keys.push(key, &[])?;
        }
        let last = last.get_or_insert_with(|| Origin { place: STORED, key: Vec::new() });
        last.place = *place;
        last.key.clear();
        last.key.extend_from_slice(key);
        documents += 1;
    }
    let keys = keys.map(SortedRunWriter::finish).transpose()?;
    let views = views.build(database.store())?;
    Ok(Built { number, tree, tasks: loader.into_tasks(), views, keys, documents, again, again_more })
}

fn one(
    collection: &Collection,
    key: &[u8],
    place: &[u8; ORIGIN_BYTES],
    stored: &[u8],
    shape: &mut Shape,
    loader: &mut Loader<'_>,
    views: &mut Loading<'_>,
) -> Result<(), LoadError> {
    let document = stored.get(STAMP_BYTES..).and_then(|bytes| Document::from_bytes(bytes).ok()).ok_or_else(damaged)?;
    let found = collection.info.key.kind.of_bytes(key).ok_or_else(damaged)?;
    let added = collection.with_row(document, shape, |row| loader.add(row, &found, place))?;
    let added = added.and_then(|()| views.add(document));
    added.map_err(|why| LoadError::Record { why, from: Origin { place: *place, key: key.to_vec() } })
}

/// Builds indexes and unique trees, checks references; gives all trees.
fn finish(
    database: &Database,
    gathered: &Gathered,
    built: Vec<Built<'_>>,
    threads: usize,
) -> Result<Vec<(TreeId, BulkTree)>, ImportError> {
    let mut keys = Vec::new();
    let mut trees = Vec::new();
    let mut work = VecDeque::new();
    for built in built {
        let tree = database.collection_at(CollectionId(built.number)).info.tree;
        trees.push((tree, built.tree));
        trees.extend(built.views);
        keys.extend(built.keys.map(|keys| (tree, keys)));
        work.extend(built.tasks.into_iter().map(|task| (built.number, task)));
    }
    let keys = &keys;
    for result in side_by_side(threads, work, |(number, task)| (number, task_run(database, task, keys))) {
        let (number, result) = result;
        trees.extend(result.map_err(|error| explain(gathered, Some((database, number)), error))?);
    }
    Ok(trees)
}

fn task_run(
    database: &Database,
    task: Task<'_>,
    keys: &[(TreeId, SortedRun)],
) -> Result<Option<(TreeId, BulkTree)>, LoadError> {
    match task {
        Task::Index { tree, entries } => Ok(Some((tree, loader::build_index(entries, database.store().bulk()?)?))),
        Task::Unique { tree, field, entries } => {
            Ok(Some((tree, loader::build_unique(entries, database.store().bulk()?, field)?)))
        }
        Task::Reference { field, target, target_name, entries } => {
            let run = keys.iter().find(|(tree, _)| *tree == target).map(|(_, run)| run);
            let session = database.session()?;
            let ask = |key: &[u8]| Ok(session.reader().snapshot().get(target, key)?.is_some());
            let targets = match run {
                Some(run) => Targets::Run(run),
                None => Targets::Ask(&ask),
            };
            loader::check_references(entries, targets, field, target_name)?;
            Ok(None)
        }
    }
}

/// Runs the work on some threads; results come in any order.
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

fn explain(gathered: &Gathered, place: Option<(&Database, usize)>, error: LoadError) -> ImportError {
    let kind = |name: Option<&str>| {
        let (database, number) = place?;
        let catalog = database.catalog();
        let info = name.map_or(catalog.collections.get(number), |name| catalog.collection(name))?;
        Some(info.key.kind)
    };
    let shown = |kind: Option<KeyType>, key: &[u8]| kind.map_or_else(String::new, |kind| shown_key(kind, key));
    match error {
        LoadError::Store(error) => ImportError::Store(error),
        LoadError::Io(source) => {
            ImportError::Store(store::Error::Io { context: "sorting records".to_string(), source })
        }
        LoadError::Record { why, from } => ImportError::Record(gathered.bad(&from.place, why.to_string())),
        LoadError::Twice { field, first, second } => {
            let other = shown(kind(None), &first.key);
            let why = format!("\"{field}\" has the same value as in the document {other} ({})", at(gathered, &first));
            ImportError::Record(gathered.bad(&second.place, why))
        }
        LoadError::Dangling { field, target, key, from } => {
            let why = format!("\"{field}\": there is no {} in {target}", shown(kind(Some(&target)), &key));
            ImportError::Record(gathered.bad(&from.place, why))
        }
    }
}

fn at(gathered: &Gathered, origin: &Origin) -> String {
    let BadRecord { file, place, .. } = gathered.bad(&origin.place, String::new());
    match place {
        super::Place::Line(line) => format!("{file}, line {line}"),
        super::Place::Byte(byte) => format!("{file}, byte {byte}"),
    }
}

fn damaged() -> LoadError {
    LoadError::Io(std::io::Error::other("a sorted run is damaged"))
}
