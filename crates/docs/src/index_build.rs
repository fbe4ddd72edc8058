//! Building indexes and unique fields of collections that have documents, while the database serves.
//!
//! Every write keeps them from the moment the database is open. A thread goes through the documents that are there, some at a
//! time: each batch is a transaction that reads the documents as they are **now** and puts their entries. What a write changes
//! meanwhile makes the batch try again, so no entry of an old document is ever put; what is inserted behind the thread was kept
//! by its write. When all were seen, one transaction changes the catalog's rows, and queries begin to use them.
//!
//! - Two documents with one value in a field that is to be unique, or an entry over its bound: that index or field is refused, told
//!   by the documents' keys, and neither kept nor heeded from then on. The next opening tries again, into a new tree.
//! - A build that stops half-way leaves the row that says so. The next opening begins again, and empties the old tree.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use binjson::Document;
use store::Tx;

use crate::collection::{Collection, STAMP_BYTES};
use crate::engine::{Direction, KeyRange, View};
use crate::readiness::Readiness;
use crate::rebuild::shown_key;
use crate::row::Shape;
use crate::views::Heart;

/// Keys that are taken from one snapshot, so that none is held long.
const PAGE_KEYS: usize = 1024;
/// Documents of one transaction: small, for writes between them make it try again.
const BATCH_DOCUMENTS: usize = 64;

/// The thread; dropped, it stops where it is.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl IndexBuilder {
    /// Begins to build what is not built.
    pub(crate) fn start(heart: &Arc<Heart>) -> Result<IndexBuilder, store::Error> {
        let mut builder = IndexBuilder::default();
        if heart.collections.iter().all(|collection| Targets::of(collection).is_empty()) {
            return Ok(builder);
        }
        let (heart, stop) = (Arc::clone(heart), Arc::clone(&builder.stop));
        let thread = std::thread::Builder::new().name("index-build".to_string());
        let spawned = thread.spawn(move || {
            for collection in &heart.collections {
                let targets = Targets::of(collection);
                let began = Instant::now();
                if targets.is_empty() {
                    continue;
                }
                match build(&heart, collection, &targets, &stop) {
                    Ok(false) => return,
                    Ok(true) => {
                        let name = &collection.info.name;
                        tracing::info!(collection = name, elapsed = ?began.elapsed(), "the new indexes are built");
                    }
                    Err(error) => {
                        tracing::error!(collection = collection.info.name, %error, "indexes cannot be built");
                        targets.each(|readiness| readiness.refuse(error.to_string()));
                    }
                }
            }
        });
        let source = |source| store::Error::Io { context: "start a thread".to_string(), source };
        builder.thread = Some(spawned.map_err(source)?);
        Ok(builder)
    }

    /// Whether all is built, or refused.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for IndexBuilder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told by itself.
            let _ = thread.join();
        }
    }
}

/// What of a collection is being built, by number.
struct Targets<'c> {
    indexes: Vec<(usize, &'c Readiness)>,
    unique: Vec<(usize, &'c Readiness)>,
}

impl<'c> Targets<'c> {
    fn of(collection: &'c Collection) -> Targets<'c> {
        let indexes = collection.indexes.iter().map(|index| &index.readiness).enumerate();
        let unique = collection.unique.iter().map(|unique| &unique.readiness).enumerate();
        let building = |(_, readiness): &(usize, &Readiness)| readiness.is_building();
        Targets { indexes: indexes.filter(building).collect(), unique: unique.filter(building).collect() }
    }

    fn is_empty(&self) -> bool {
        self.indexes.is_empty() && self.unique.is_empty()
    }

    fn each(&self, visit: impl FnMut(&Readiness)) {
        self.indexes.iter().chain(&self.unique).map(|(_, readiness)| *readiness).for_each(visit);
    }
}

/// Goes through all documents, then makes what was not refused ready; false where it was stopped.
fn build(
    heart: &Heart,
    collection: &Collection,
    targets: &Targets<'_>,
    stop: &AtomicBool,
) -> Result<bool, store::Error> {
    let reader = heart.store.reader()?;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        {
            let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (snapshot, range) = (reader.snapshot(), KeyRange { from, to: Bound::Unbounded });
            View::scan(&snapshot, collection.info.tree, range, Direction::Forward, &mut |key, _| {
                keys.push(key.to_vec());
                if keys.len() == PAGE_KEYS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            snapshot.check()?;
        }
        for batch in keys.chunks(BATCH_DOCUMENTS) {
            if stop.load(Ordering::Acquire) {
                return Ok(false);
            }
            enter(heart, collection, targets, batch)?;
            targets.each(|readiness| readiness.count(batch.len() as u64));
        }
        let is_end = keys.len() < PAGE_KEYS;
        after = keys.pop();
        if is_end {
            break;
        }
    }
    switch_in(heart, targets)?;
    Ok(true)
}

/// Puts the entries of some documents as they are now.
fn enter(heart: &Heart, collection: &Collection, targets: &Targets<'_>, keys: &[Vec<u8>]) -> Result<(), store::Error> {
    let (mut refused, mut failure): (Vec<(&Readiness, String)>, Option<store::Error>) = (Vec::new(), None);
    let commit = heart.store.commit(&mut |tx| {
        refused.clear();
        failure = None;
        for key in keys {
            if let Err(error) = enter_one(collection, targets, key, tx, &mut refused) {
                failure = Some(error);
                return Err(store::Abort);
            }
        }
        Ok(())
    });
    match (commit, failure) {
        (Err(store::Error::Aborted), Some(error)) => return Err(error),
        (commit, _) => drop(commit?),
    }
    for (readiness, why) in refused.into_iter().filter(|(readiness, _)| readiness.is_building()) {
        tracing::error!(collection = collection.info.name, why, "the change of the schema is refused");
        readiness.refuse(why);
    }
    Ok(())
}

fn enter_one<'c>(
    collection: &Collection,
    targets: &Targets<'c>,
    key: &[u8],
    tx: &mut Tx<'_>,
    refused: &mut Vec<(&'c Readiness, String)>,
) -> Result<(), store::Error> {
    let Some(stored) = tx.get(collection.info.tree, key)?.map(|value| value.into_owned()) else { return Ok(()) };
    let info = &collection.info;
    let shown = |key: &[u8]| format!("{}/{}", info.name, shown_key(info.key.kind, key));
    let document = stored.get(STAMP_BYTES..).and_then(|bytes| Document::from_bytes(bytes).ok());
    let Some((document, own)) = document.zip(info.key.kind.of_bytes(key)) else {
        let why = format!("the stored document {} is damaged", shown(key));
        targets.each_with(|readiness| refused.push((readiness, why.clone())));
        return Ok(());
    };
    let (mut shape, mut entry, mut value) = (Shape::default(), Vec::new(), Vec::new());
    collection.with_row(document, &mut shape, |row| {
        for (number, readiness) in targets.indexes.iter().filter(|(_, readiness)| readiness.is_building()) {
            match collection.index_entry(*number, row, &own, &mut entry, &mut value) {
                Ok(()) => tx.put(collection.indexes[*number].tree, &entry, &value),
                Err(why) => refused.push((readiness, format!("the stored document {}: {why}", shown(key)))),
            }
        }
        for (number, readiness) in targets.unique.iter().filter(|(_, readiness)| readiness.is_building()) {
            let tree = collection.unique[*number].tree;
            match collection.unique_key(*number, row, &mut entry) {
                Ok(false) => {}
                Ok(true) => match tx.get(tree, &entry)?.map(|other| other.into_owned()) {
                    None => tx.put(tree, &entry, key),
                    Some(other) if other == key => {}
                    Some(other) => {
                        let field = &info.unique[*number].field;
                        let (first, second) = (shown(&other), shown(key));
                        let why = format!("\"{field}\" cannot be unique: {first} and {second} have the same value");
                        refused.push((readiness, why));
                    }
                },
                Err(why) => refused.push((readiness, format!("the stored document {}: {why}", shown(key)))),
            }
        }
        Ok(())
    })
}

impl<'c> Targets<'c> {
    fn each_with(&self, visit: impl FnMut(&'c Readiness)) {
        self.indexes.iter().chain(&self.unique).map(|(_, readiness)| *readiness).for_each(visit);
    }
}

/// Makes what is built the indexes that queries use.
fn switch_in(heart: &Heart, targets: &Targets<'_>) -> Result<(), store::Error> {
    let mut rows: Vec<(String, String)> = Vec::new();
    targets.each(|readiness| rows.extend(readiness.row().filter(|_| readiness.is_building()).cloned()));
    heart.store.commit(&mut |tx| {
        rows.iter().for_each(|(key, row)| tx.put(heart.catalog_tree, key.as_bytes(), row.as_bytes()));
        Ok(())
    })?;
    targets.each(|readiness| {
        if readiness.is_building() {
            readiness.set_ready();
        }
    });
    Ok(())
}
