//! Building indexes and unique fields of collections that have documents, and looking at documents by rules that were announced
//! ([`crate::announced`]), while the database serves.
//!
//! Every write keeps and obeys them from the moment the database is open. A thread goes through the documents that are there,
//! some at a time: each batch is a transaction that reads the documents as they are **now**, checks them and puts their entries.
//! What a write changes meanwhile makes the batch try again, so no entry of an old document is ever put; what is inserted behind
//! the thread was kept by its write. When all were seen, one transaction changes the catalog's rows, and queries begin to use them.
//!
//! - A document that breaks a rule, two with one value in a field that is to be unique, an entry over its bound: that rule, field
//!   or index is refused, and neither kept nor heeded from then on. The thread goes on to the end, so that what is told has the
//!   count of such documents and the first keys. The next opening tries again, into a new tree.
//! - A build that stops half-way leaves the row that says so. The next opening begins again, and empties the old tree.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use binjson::Document;
use serde_json::Value as Json;
use store::Tx;

use crate::announced::Rule;
use crate::caught;
use crate::collection::Collection;
use crate::engine::{Direction, KeyRange, STAMP_BYTES, View};
use crate::key::Key;
use crate::readiness::Readiness;
use crate::rebuild::shown_key;
use crate::row::{Row, Shape};
use crate::views::Heart;

/// Keys that are taken from one snapshot, so that none is held long.
const PAGE_KEYS: usize = 1024;
/// Documents of one transaction: small, for writes between them make it try again.
const BATCH_DOCUMENTS: usize = 64;
/// Keys that are told of documents that break something; the rest are counted.
const KEYS_TOLD: usize = 10;

/// The thread; dropped, it stops where it is.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    stop: Arc<AtomicBool>,
    /// Has the thread begin.
    begin: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IndexBuilder {
    /// Starts a thread that will build what is not built. It changes nothing before [`IndexBuilder::begin`].
    pub(crate) fn start(heart: &Arc<Heart>) -> Result<IndexBuilder, store::Error> {
        let mut builder = IndexBuilder::default();
        if heart.collections.iter().all(|collection| targets_of(collection).is_empty()) {
            return Ok(builder);
        }
        let (heart, stop, (begin, begins)) = (Arc::clone(heart), Arc::clone(&builder.stop), channel());
        builder.begin = Some(begin);
        let thread = std::thread::Builder::new().name("index-build".to_string());
        let spawned = thread.spawn(move || {
            if begins.recv().is_err() {
                return;
            }
            for collection in &heart.collections {
                let mut targets = targets_of(collection);
                let (began, name) = (Instant::now(), &collection.info.name);
                if targets.is_empty() {
                    continue;
                }
                tracing::info!(collection = name, parts = targets.len(), "the collection is brought in line with the file");
                match caught::outcome(|| build(&heart, collection, &mut targets, &stop)) {
                    Ok(false) => return,
                    Ok(true) => {
                        tracing::info!(collection = name, elapsed = ?began.elapsed(), "the collection is in line with the file");
                    }
                    Err(why) => {
                        tracing::error!(collection = name, why, "the collection cannot be brought in line with the file");
                        targets.iter().for_each(|target| target.readiness.refuse(why.clone()));
                    }
                }
            }
        });
        let source = |source| store::Error::Io { context: "start a thread".to_string(), source };
        builder.thread = Some(spawned.map_err(source)?);
        Ok(builder)
    }

    /// Has the thread build.
    pub(crate) fn begin(&self) {
        if let Some(begin) = &self.begin {
            // A thread that has ended already has told why.
            let _ = begin.send(());
        }
    }

    /// Whether all is built, or refused.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for IndexBuilder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told by itself.
            let _ = thread.join();
        }
    }
}

/// What of a collection is being built or looked at.
struct Target<'c> {
    part: Part,
    readiness: &'c Readiness,
    breakers: Breakers,
}

/// By number.
#[derive(Clone, Copy)]
enum Part {
    Index(usize),
    Unique(usize),
    Rule(usize),
}

/// The documents that break something.
#[derive(Default)]
struct Breakers {
    count: u64,
    keys: Vec<String>,
    /// Why, of the first.
    first: String,
}

impl Breakers {
    fn add(&mut self, key: String, why: String) {
        if self.count == 0 {
            self.first = why;
        }
        if self.keys.len() < KEYS_TOLD {
            self.keys.push(key);
        }
        self.count += 1;
    }

    fn told(&self) -> String {
        if self.count < 2 {
            return self.first.clone();
        }
        let more = if self.count > self.keys.len() as u64 { ", …" } else { "" };
        format!("{}; {} documents break it: {}{more}", self.first, self.count, self.keys.join(", "))
    }
}

fn targets_of(collection: &Collection) -> Vec<Target<'_>> {
    let indexes = collection.indexes.iter().enumerate().map(|(number, index)| (Part::Index(number), &index.readiness));
    let unique = collection.unique.iter().enumerate().map(|(number, unique)| (Part::Unique(number), &unique.readiness));
    let rules = collection.announced.iter().enumerate();
    let rules = rules.map(|(number, announced)| (Part::Rule(number), &announced.readiness));
    let building = indexes.chain(unique).chain(rules).filter(|(_, readiness)| readiness.is_building());
    building.map(|(part, readiness)| Target { part, readiness, breakers: Breakers::default() }).collect()
}

/// Goes through all documents, then makes what was not refused ready; false where it was stopped.
fn build(
    heart: &Heart,
    collection: &Collection,
    targets: &mut [Target<'_>],
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
            enter_in_parts(heart, collection, targets, batch)?;
            targets.iter().for_each(|target| target.readiness.count(batch.len() as u64));
        }
        let is_end = keys.len() < PAGE_KEYS;
        after = keys.pop();
        if is_end {
            break;
        }
    }
    for target in targets.iter().filter(|target| target.breakers.count > 1) {
        let why = target.breakers.told();
        tracing::error!(collection = collection.info.name, why, "a change of the schema was refused");
    }
    refuse_without_index(collection);
    switch_in(heart, targets)?;
    Ok(true)
}

/// Brings some documents in line with what is new: fewer at a time where their entries, which may carry large fields, do not fit
/// into one transaction. A single one that does not fit was refused when it was written, or is an error.
fn enter_in_parts(
    heart: &Heart,
    collection: &Collection,
    targets: &mut [Target<'_>],
    keys: &[Vec<u8>],
) -> Result<(), store::Error> {
    match enter(heart, collection, targets, keys) {
        Err(store::Error::Limit { .. }) if keys.len() > 1 => {
            let (first, second) = keys.split_at(keys.len() / 2);
            enter_in_parts(heart, collection, targets, first)?;
            enter_in_parts(heart, collection, targets, second)
        }
        other => other,
    }
}

/// Brings some documents as they are now in line with what is new, in one transaction.
fn enter(
    heart: &Heart,
    collection: &Collection,
    targets: &mut [Target<'_>],
    keys: &[Vec<u8>],
) -> Result<(), store::Error> {
    // By target: which document, and why.
    let (mut found, mut failure): (Vec<(usize, String, String)>, Option<store::Error>) = (Vec::new(), None);
    let commit = heart.store.commit(&mut |tx| {
        found.clear();
        failure = None;
        for key in keys {
            if let Err(error) = enter_one(collection, targets, key, tx, &mut found) {
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
    for (place, key, why) in found {
        let target = &mut targets[place];
        if target.breakers.count == 0 {
            tracing::error!(collection = collection.info.name, why, "the change of the schema is refused");
        }
        target.breakers.add(key, why);
        target.readiness.refuse(target.breakers.told());
    }
    Ok(())
}

fn enter_one(
    collection: &Collection,
    targets: &[Target<'_>],
    key: &[u8],
    tx: &mut Tx<'_>,
    found: &mut Vec<(usize, String, String)>,
) -> Result<(), store::Error> {
    let Some(stored) = tx.get(collection.info.tree, key)?.map(|value| value.into_owned()) else { return Ok(()) };
    let info = &collection.info;
    let shown = |key: &[u8]| format!("{}/{}", info.name, shown_key(info.key.kind, key));
    let document = stored.get(STAMP_BYTES..).and_then(|bytes| Document::from_bytes(bytes).ok());
    let Some((document, own)) = document.zip(info.key.kind.of_bytes(key)) else {
        let why = format!("the stored document {} is damaged", shown(key));
        found.extend((0..targets.len()).map(|place| (place, shown(key), why.clone())));
        return Ok(());
    };
    let mut shape = Shape::default();
    collection.with_row(document, &mut shape, |row| {
        let mut one = One { collection, tx, document, row, key: &own };
        for (place, target) in targets.iter().enumerate() {
            let refusal = match target.part {
                Part::Index(number) => one.index(number)?,
                Part::Unique(number) => one.unique(number, &shown)?,
                Part::Rule(number) => one.rule(number)?,
            };
            if let Some(refusal) = refusal {
                let why = match refusal {
                    Refusal::Twice(why) => why,
                    Refusal::Own(why) => format!("the stored document {}: {why}", shown(key)),
                };
                found.push((place, shown(key), why));
            }
        }
        Ok(())
    })
}

/// Why a document stands against something.
enum Refusal {
    Own(String),
    /// With another one, and what is told of both.
    Twice(String),
}

/// One document as it is now, within a transaction.
struct One<'o, 't, 'd> {
    collection: &'o Collection,
    tx: &'o mut Tx<'t>,
    document: Document<'d>,
    row: &'o Row<'o, 'd>,
    key: &'o Key<'o>,
}

impl One<'_, '_, '_> {
    fn index(&mut self, number: usize) -> Result<Option<Refusal>, store::Error> {
        let (mut entry, mut value) = (Vec::new(), Vec::new());
        Ok(match self.collection.index_entry(number, self.row, self.key, &mut entry, &mut value) {
            Err(why) => Some(Refusal::Own(why.to_string())),
            Ok(()) => {
                let index = &self.collection.indexes[number];
                if !index.readiness.is_refused() {
                    self.tx.put(index.tree, &entry, &value);
                }
                None
            }
        })
    }

    /// One that is refused goes on to be built, for the count of what breaks it.
    fn unique(&mut self, number: usize, shown: &dyn Fn(&[u8]) -> String) -> Result<Option<Refusal>, store::Error> {
        let mut entry = Vec::new();
        let tree = self.collection.unique[number].tree;
        match self.collection.unique_key(number, self.row, &mut entry) {
            Err(why) => return Ok(Some(Refusal::Own(why.to_string()))),
            Ok(false) => return Ok(None),
            Ok(true) => {}
        }
        let own = self.key.as_bytes();
        Ok(match self.tx.get(tree, &entry)?.map(|other| other.into_owned()) {
            None => {
                self.tx.put(tree, &entry, own);
                None
            }
            Some(other) if other == own => None,
            Some(other) => {
                let fields = self.collection.info.unique[number].shown();
                let (first, second) = (shown(&other), shown(own));
                let why = format!("{fields} cannot be unique: {first} and {second} have the same value");
                Some(Refusal::Twice(why))
            }
        })
    }

    fn rule(&mut self, number: usize) -> Result<Option<Refusal>, store::Error> {
        let announced = &self.collection.announced[number];
        let checked = announced.check(self.collection, self.document, self.row, &mut *self.tx)?;
        Ok(checked.err().map(|why| Refusal::Own(why.to_string())))
    }
}

/// Who refers to a document is found through an index: without it there is no reference.
fn refuse_without_index(collection: &Collection) {
    for announced in collection.announced.iter().filter(|announced| announced.readiness.is_building()) {
        let field = match &announced.rule {
            Rule::Reference(reference) => reference.field,
            Rule::Expire { place, .. } => *place,
            Rule::Schema(_) => continue,
        };
        let mut indexes = collection.indexes.iter().filter(|index| index.fields[0] == field);
        if indexes.all(|index| index.readiness.is_refused()) {
            announced.readiness.refuse("the index that it needs is refused".to_string());
        }
    }
}

/// Makes what is built and holds the indexes that queries use, and the rules in force.
fn switch_in(heart: &Heart, targets: &[Target<'_>]) -> Result<(), store::Error> {
    let whole = || targets.iter().filter(|target| target.readiness.is_building());
    let mut failure = None;
    let commit = heart.store.commit(&mut |tx| {
        for target in whole() {
            let Some((key, row)) = target.readiness.row() else { continue };
            let row = match target.part {
                Part::Rule(_) => match laid_over(tx, heart.catalog_tree, key, row) {
                    Ok(row) => row,
                    Err(error) => {
                        failure = Some(error);
                        return Err(store::Abort);
                    }
                },
                _ => row.clone(),
            };
            tx.put(heart.catalog_tree, key.as_bytes(), row.as_bytes());
        }
        Ok(())
    });
    match (commit, failure) {
        (Err(store::Error::Aborted), Some(error)) => return Err(error),
        (commit, _) => drop(commit?),
    }
    whole().map(|target| target.readiness).for_each(Readiness::set_ready);
    Ok(())
}

/// A row of the catalog with these fields in the place of its own: several rules share the row of a collection.
fn laid_over(tx: &mut Tx<'_>, catalog: store::TreeId, key: &str, fields: &str) -> Result<String, store::Error> {
    let stored = tx.get(catalog, key.as_bytes())?.map(|row| row.into_owned()).unwrap_or_default();
    let parsed = |text: &[u8]| serde_json::from_slice(text).unwrap_or(Json::Object(serde_json::Map::new()));
    let (mut row, fields): (Json, Json) = (parsed(&stored), parsed(fields.as_bytes()));
    for (name, value) in fields.as_object().into_iter().flatten() {
        row[name.as_str()] = value.clone();
    }
    Ok(row.to_string())
}
