//! Building indexes and unique fields of collections that have documents, and checking stored documents against announced rules
//! ([`crate::writes::announced`]), while the database serves.
//!
//! From the moment the database is open, every write maintains the new indexes and obeys the new rules. A thread scans the
//! stored documents in batches. Each batch is a transaction that reads the **current** state of its documents, checks them and
//! puts their entries. If a write changes one of them meanwhile, the batch is retried, so no entry of an old document is ever
//! put. Documents inserted behind the thread's position get their entries from their own write. A retry blocks all commits, so
//! it checks no document against a schema (the first attempt or the document's own write did), and a batch that takes long is
//! split. After the last document one transaction changes the catalog's rows, and queries begin to use the new indexes.
//!
//! - A rule, field or index is refused if a document breaks it, if two documents have the same value in a new unique field, or
//!   if an entry is over its limit. From then on it is neither maintained nor obeyed. The thread still scans to the end, so
//!   that the message has the number of such documents and the first keys. The next opening tries again, with a new tree.
//! - A build that is stopped leaves its catalog row marked as building. The next opening empties the tree and begins again.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use binjson::StoredDocument;
use serde_json::Value as Json;

use crate::catalog::readiness::ReadyRow;
use crate::catalog::{CollectionInfo, Readiness};
use crate::caught;
use crate::encoding::key::shown_key;
use crate::encoding::{FieldNumbers, Key, Row};
use crate::engine::{self, Direction, KeyRange, ReadView, Reader, STAMP_BYTES, TreeId, Tx};
use crate::error::WriteError;
use crate::patience::{is_passing, patiently};
use crate::views::DatabaseCore;
use crate::writes::{Collection, Rule, Share, ShareOf};

/// Number of keys read from one snapshot; bounded so that no snapshot is held for long.
const PAGE_KEYS: usize = 1024;
/// Documents in one transaction. Few, because a concurrent write to any of them causes a retry.
const BATCH_DOCUMENTS: usize = 64;
/// Keys listed in a refusal; further ones are only counted.
const KEYS_LISTED: usize = 10;

/// The build thread; dropping this stops it.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl IndexBuilder {
    /// Starts a thread that builds missing indexes and checks announced rules.
    pub(crate) fn start(core: &Arc<DatabaseCore>) -> Result<IndexBuilder, engine::StoreError> {
        let mut builder = IndexBuilder::default();
        if core.collections.iter().all(|collection| targets_of(collection).is_empty()) {
            return Ok(builder);
        }
        core.collections.iter().flat_map(targets_of).for_each(|target| target.readiness.begin());
        let (core, stop) = (Arc::clone(core), Arc::clone(&builder.stop));
        let thread = std::thread::Builder::new().name("index-build".to_string());
        let spawned = thread.spawn(move || {
            for collection in &core.collections {
                let mut targets = targets_of(collection);
                let (began, name) = (Instant::now(), &collection.info.name);
                if targets.is_empty() {
                    continue;
                }
                tracing::info!(collection = name, parts = targets.len(), "indexes are being built, and stored documents checked by new rules");
                let built = caught::outcome(|| build(&core, collection, &mut targets, &stop));
                if stop.load(Ordering::Acquire) {
                    return targets.iter().for_each(|target| target.readiness.interrupt());
                }
                match built {
                    Ok(()) => {
                        tracing::info!(collection = name, elapsed = ?began.elapsed(), "indexes are built, and stored documents checked");
                    }
                    Err(why) => {
                        tracing::error!(collection = name, why, "indexes cannot be built, or documents not be checked");
                        targets.iter().for_each(|target| target.readiness.refuse(why.clone()));
                    }
                }
            }
        });
        builder.thread = Some(spawned.map_err(|error| engine::StoreError::io("start a thread", error))?);
        Ok(builder)
    }

    /// Whether everything is built or refused.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for IndexBuilder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// An index, unique field or rule that is being built or checked.
struct Target<'c> {
    part: Part,
    readiness: &'c Readiness,
    breakers: Breakers,
}

/// By its number in the collection.
#[derive(Clone, Copy)]
enum Part {
    Index(usize),
    Unique(usize),
    Rule(usize),
}

/// The documents that break a rule, counted, with the first keys.
#[derive(Default)]
struct Breakers {
    count: u64,
    keys: Vec<String>,
    /// The reason for the first one.
    first: String,
}

impl Breakers {
    fn add(&mut self, key: String, why: String) {
        if self.count == 0 {
            self.first = why;
        }
        if self.keys.len() < KEYS_LISTED {
            self.keys.push(key);
        }
        self.count += 1;
    }

    /// The message when all documents have been checked.
    fn message(&self) -> String {
        self.message_of(&self.count.to_string(), "")
    }

    /// The message while other documents have still to be checked.
    fn message_so_far(&self) -> String {
        self.message_of(&format!("at least {}", self.count), "; the others are still being checked")
    }

    fn message_of(&self, count: &str, end: &str) -> String {
        if self.count < 2 {
            return format!("{}{end}", self.first);
        }
        let more = if self.count > self.keys.len() as u64 { ", …" } else { "" };
        format!("{}; {count} documents break it: {}{more}{end}", self.first, self.keys.join(", "))
    }
}

fn targets_of(collection: &Collection) -> Vec<Target<'_>> {
    let indexes = collection.indexes.iter().enumerate().map(|(number, index)| (Part::Index(number), &index.readiness));
    let unique = collection.unique.iter().enumerate().map(|(number, unique)| (Part::Unique(number), &unique.readiness));
    let rules = collection.announced.iter().enumerate();
    let rules = rules.map(|(number, announced)| (Part::Rule(number), &announced.readiness));
    let building = indexes.chain(unique).chain(rules).filter(|(_, readiness)| readiness.is_pending());
    building.map(|(part, readiness)| Target { part, readiness, breakers: Breakers::default() }).collect()
}

/// Processes all documents, then makes ready the targets that were not refused. While the engine cannot take a step, it waits.
fn build(
    core: &DatabaseCore,
    collection: &Collection,
    targets: &mut [Target<'_>],
    stop: &AtomicBool,
) -> Result<(), engine::StoreError> {
    let reader = patiently(stop, || core.store.reader())?;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let mut keys = patiently(stop, || page(&reader, collection.info.tree, after.as_deref()))?;
        for batch in keys.chunks(BATCH_DOCUMENTS) {
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            core.right_of_way.give(stop);
            enter_in_parts((core, collection, stop), targets, batch)?;
            targets.iter().for_each(|target| target.readiness.count(batch.len() as u64));
        }
        let is_end = keys.len() < PAGE_KEYS;
        after = keys.pop();
        if is_end {
            break;
        }
    }
    for target in targets.iter().filter(|target| target.breakers.count > 0) {
        let why = target.breakers.message();
        if target.breakers.count > 1 {
            tracing::error!(collection = collection.info.name, why, "a change of the schema was refused");
        }
        target.readiness.refuse(why);
    }
    refuse_without_index(collection);
    patiently(stop, || switch_in(core, targets))
}

/// The next keys of a tree.
fn page(reader: &Reader, tree: TreeId, after: Option<&[u8]>) -> Result<Vec<Vec<u8>>, engine::StoreError> {
    let (snapshot, mut keys) = (reader.snapshot(), Vec::new());
    let range = KeyRange { from: after.map_or(Bound::Unbounded, Bound::Excluded), to: Bound::Unbounded };
    ReadView::scan(&snapshot, tree, range, Direction::Forward, &mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() == PAGE_KEYS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    snapshot.check()?;
    Ok(keys)
}

/// Enters some documents. If their entries, which may include large fields, do not fit into one transaction, or a retry takes
/// too long, the batch is halved. For a single document that does not fit, the error is returned.
fn enter_in_parts(
    of @ (core, collection, stop): (&DatabaseCore, &Collection, &AtomicBool),
    targets: &mut [Target<'_>],
    keys: &[Vec<u8>],
) -> Result<(), engine::StoreError> {
    if keys.len() == 1 {
        return patiently(stop, || enter(core, collection, targets, keys));
    }
    match enter(core, collection, targets, keys) {
        Err(error) if is_passing(&error) || matches!(error, engine::StoreError::Limit { .. }) => {
            let (first, second) = keys.split_at(keys.len() / 2);
            enter_in_parts(of, targets, first)?;
            enter_in_parts(of, targets, second)
        }
        other => other,
    }
}

/// Enters the current state of some documents in one transaction.
fn enter(
    core: &DatabaseCore,
    collection: &Collection,
    targets: &mut [Target<'_>],
    keys: &[Vec<u8>],
) -> Result<(), engine::StoreError> {
    let mut batch = Batch::new(collection, targets, keys);
    engine::commit(&core.store, &mut |tx| batch.run(tx))?;
    for Found { place, key, why } in batch.found {
        let target = &mut targets[place];
        if target.breakers.count == 0 {
            tracing::error!(collection = collection.info.name, why, "the change of the schema is refused");
        }
        target.breakers.add(key, why);
        target.readiness.refuse(target.breakers.message_so_far());
    }
    Ok(())
}

/// A document that breaks a rule: the target, the document's key, and why.
struct Found {
    place: usize,
    key: String,
    why: String,
}

/// The state of a document at the first attempt: its stamp, and for each target why it does not fit a schema.
#[derive(Default)]
struct Seen {
    stamp: Option<[u8; STAMP_BYTES]>,
    misfits: Vec<(usize, String)>,
}

/// Documents of one transaction.
struct Batch<'b, 'c> {
    collection: &'b Collection,
    targets: &'b [Target<'c>],
    keys: &'b [Vec<u8>],
    runs: u32,
    /// By document.
    seen: Vec<Seen>,
    found: Vec<Found>,
}

impl<'b, 'c> Batch<'b, 'c> {
    fn new(collection: &'b Collection, targets: &'b [Target<'c>], keys: &'b [Vec<u8>]) -> Batch<'b, 'c> {
        let seen = keys.iter().map(|_| Seen::default()).collect();
        Batch { collection, targets, keys, runs: 0, seen, found: Vec::new() }
    }

    /// Enters the documents. From the second run on, all commits wait.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), engine::StoreError> {
        let share = (self.runs > 0).then(|| Share::begin(ShareOf::Commits));
        self.run_in(share.as_ref(), tx)
    }

    /// A run in a share that has begun; without one it is the first run.
    fn run_in(&mut self, share: Option<&Share>, tx: &mut Tx<'_>) -> Result<(), engine::StoreError> {
        self.found.clear();
        self.runs += 1;
        for (number, key) in self.keys.iter().enumerate() {
            if number > 0 && share.is_some_and(Share::is_over) {
                return Err(engine::StoreError::Busy);
            }
            let (seen, is_again) = (&mut self.seen[number], share.is_some());
            enter_one((self.collection, self.targets), (key, seen, is_again), tx, &mut self.found)?;
        }
        Ok(())
    }
}

fn enter_one(
    (collection, targets): (&Collection, &[Target<'_>]),
    (key, seen, is_again): (&[u8], &mut Seen, bool),
    tx: &mut Tx<'_>,
    found: &mut Vec<Found>,
) -> Result<(), engine::StoreError> {
    let Some(stored) = tx.get(collection.info.tree, key)?.map(|value| value.into_owned()) else { return Ok(()) };
    let info = &collection.info;
    let stamp = stored.first_chunk::<STAMP_BYTES>().copied();
    if !is_again {
        seen.stamp = stamp;
    }
    let is_as_seen = seen.stamp == stamp;
    let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
    let Some((document, own)) = document.zip(info.key.kind.of_bytes(key)) else {
        let why = format!("the stored document {} is damaged", shown(info, key));
        found.extend((0..targets.len()).map(|place| Found { place, key: shown(info, key), why: why.clone() }));
        return Ok(());
    };
    let mut shape = FieldNumbers::default();
    collection.with_row(document, &mut shape, |row| {
        let mut one = One { collection, tx, document, row, key: &own };
        for (place, target) in targets.iter().enumerate() {
            let refusal = match target.part {
                Part::Index(number) => one.index(number)?,
                Part::Unique(number) => one.unique(number)?,
                Part::Rule(number) if !matches!(collection.announced[number].rule, Rule::Schema(_)) => {
                    one.rule(number)?
                }
                Part::Rule(number) if !is_again => {
                    let refusal = one.rule(number)?;
                    seen.misfits.extend(refusal.clone().map(|why| (place, why)));
                    refusal
                }
                // A document written since then obeys the schema, unless the schema is already refused; then the document is
                // not counted.
                Part::Rule(_) => {
                    let misfit = seen.misfits.iter().find(|(of, _)| is_as_seen && *of == place);
                    misfit.map(|(_, why)| why.clone())
                }
            };
            found.extend(refusal.map(|why| Found { place, key: shown(info, key), why }));
        }
        Ok(())
    })
}

/// One document in its current state, within a transaction. Its methods return why it breaks a rule.
struct One<'o, 't, 'd> {
    collection: &'o Collection,
    tx: &'o mut Tx<'t>,
    document: StoredDocument<'d>,
    row: &'o Row<'o, 'd>,
    key: &'o Key<'o>,
}

impl One<'_, '_, '_> {
    fn index(&mut self, number: usize) -> Result<Option<String>, engine::StoreError> {
        let (mut entry, mut value) = (Vec::new(), Vec::new());
        let index = &self.collection.indexes[number];
        let made = self.collection.index_entry(number, self.row, self.key, &mut entry, &mut value);
        if made.is_ok() && index.readiness.is_maintained() {
            self.tx.put(index.tree, &entry, &value);
        }
        Ok(made.err().map(|why| self.broken(&why)))
    }

    /// A refused field is still processed, to count the documents that break it.
    fn unique(&mut self, number: usize) -> Result<Option<String>, engine::StoreError> {
        let (mut entry, own) = (Vec::new(), self.key.as_bytes());
        let tree = self.collection.unique[number].tree;
        match self.collection.unique_key(number, self.row, &mut entry) {
            Err(why) => return Ok(Some(self.broken(&why))),
            Ok(false) => return Ok(None),
            Ok(true) => {}
        }
        let other = self.tx.get(tree, &entry)?.map(|other| other.into_owned());
        if other.is_none() {
            self.tx.put(tree, &entry, own);
        }
        Ok(other.filter(|other| other != own).map(|other| {
            let (fields, info) = (self.collection.info.unique[number].shown(), &self.collection.info);
            let (first, second) = (shown(info, &other), shown(info, own));
            format!("{fields} cannot be unique: {first} and {second} have the same value")
        }))
    }

    fn rule(&mut self, number: usize) -> Result<Option<String>, engine::StoreError> {
        let announced = &self.collection.announced[number];
        let checked = announced.check(self.collection, self.document, self.row, &mut *self.tx)?;
        Ok(checked.err().map(|why| self.broken(&why)))
    }

    fn broken(&self, why: &WriteError) -> String {
        format!("the stored document {}: {why}", shown(&self.collection.info, self.key.as_bytes()))
    }
}

/// A document in a message, by its collection and key.
fn shown(info: &CollectionInfo, key: &[u8]) -> String {
    format!("{}/{}", info.name, shown_key(info.key.kind, key))
}

/// Refuses the rules whose index was refused, because references and expiry find documents through an index.
fn refuse_without_index(collection: &Collection) {
    for announced in collection.announced.iter().filter(|announced| announced.readiness.is_pending()) {
        let has_none = match &announced.rule {
            // Deletions look in the index that it was announced with, whatever others there are.
            Rule::Reference(reference) => !collection.indexes[reference.index].readiness.is_maintained(),
            // The sweep chooses an index when the rule is in force.
            Rule::Expire { place, .. } => {
                let mut indexes = collection.indexes.iter().filter(|index| index.fields[0] == *place);
                indexes.all(|index| !index.readiness.is_maintained())
            }
            Rule::Schema(_) => continue,
        };
        if has_none {
            announced.readiness.refuse("the index that it needs is refused".to_string());
        }
    }
}

/// Makes the completed targets ready: from then on queries use the indexes, and the rules are in force.
fn switch_in(core: &DatabaseCore, targets: &[Target<'_>]) -> Result<(), engine::StoreError> {
    let whole = || targets.iter().filter(|target| target.readiness.is_pending());
    engine::commit(&core.store, &mut |tx| {
        for target in whole() {
            let Some(ReadyRow { name, row }) = target.readiness.row() else { continue };
            let row = match target.part {
                Part::Rule(_) => laid_over(tx, core.catalog_tree, name, row)?,
                _ => row.clone(),
            };
            tx.put(core.catalog_tree, name.as_bytes(), row.as_bytes());
        }
        Ok::<_, engine::StoreError>(())
    })?;
    whole().map(|target| target.readiness).for_each(Readiness::complete);
    Ok(())
}

/// A row of the catalog with these fields replaced. (Several rules share the row of a collection.)
fn laid_over(tx: &mut Tx<'_>, catalog: engine::TreeId, key: &str, fields: &str) -> Result<String, engine::StoreError> {
    let stored = tx.get(catalog, key.as_bytes())?.map(|row| row.into_owned()).unwrap_or_default();
    let parsed = |text: &[u8]| serde_json::from_slice(text).unwrap_or(Json::Object(serde_json::Map::new()));
    let (mut row, fields): (Json, Json) = (parsed(&stored), parsed(fields.as_bytes()));
    for (name, value) in fields.as_object().into_iter().flatten() {
        row[name.as_str()] = value.clone();
    }
    Ok(row.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::database::{DocumentDatabase, Write};
    use crate::encoding::key::KeyType;
    use crate::writes::write::{Op, Precondition};

    const COUNT: u32 = 64;
    const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
    /// A general schema.
    const SCHEMA: &str = r##"
[collections.items.schema]
"$ref" = "#/$defs/tree"
[collections.items.schema."$defs".tree]
anyOf = [
    { type = "object", additionalProperties = { "$ref" = "#/$defs/tree" } },
    { type = "array", items = { "$ref" = "#/$defs/tree" } },
    { type = "integer" },
]
"##;

    fn open(folder: &std::path::Path, config: &str) -> DocumentDatabase {
        let mut config = Config::parse("c.toml".as_ref(), config).unwrap();
        config.builds_indexes_later = true;
        let store = engine::Store::open(folder, engine::StoreOptions::default()).unwrap().0;
        let catalog = store.tree(crate::opening::stored_rows::CATALOG_TREE).unwrap();
        let stored = crate::opening::stored_rows::read(&store.reader().unwrap().snapshot(), catalog).unwrap();
        // The builder is not started.
        DocumentDatabase::assemble(&config, folder, store, &stored, Arc::default(), None).unwrap().0
    }

    fn key(id: u32) -> Vec<u8> {
        KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec()
    }

    fn put(database: &DocumentDatabase, id: u32, tree: &str) {
        let op = Op::Put { key: key(id), body: format!("{{\"id\":{id},\"tree\":{tree}}}").into_bytes() };
        let collection = database.collection("items").unwrap();
        database.write_now(&Write { collection, op, precondition: Precondition::None }).unwrap();
    }

    /// Runs a batch over all documents while others write during its first run; returns the documents found, and the number of
    /// runs.
    fn run(database: &DocumentDatabase, others: &mut (dyn FnMut(u32) + Send)) -> (Vec<String>, u32) {
        let collection = &database.inner.core.collections[0];
        let targets = targets_of(collection);
        assert_eq!(targets.len(), 1);
        let keys: Vec<Vec<u8>> = (0..COUNT).map(key).collect();
        let mut batch = Batch::new(collection, &targets, &keys);
        let mut checked = |batch: &mut Batch<'_, '_>, tx: &mut Tx<'_>| {
            let ended = if batch.runs == 0 {
                batch.run(tx)
            } else {
                // A single step of a check would fail here. The share does not end, however slow the machine is.
                let share = Share::unlimited(ShareOf::Commits);
                schema::within(1, || batch.run_in(Some(&share), tx)).expect("no document is checked while others wait")
            };
            others(batch.runs);
            ended
        };
        let commit = engine::commit(database.store(), &mut |tx| checked(&mut batch, tx));
        assert!(commit.is_ok(), "{commit:?}");
        (batch.found.into_iter().map(|found| found.key).collect(), batch.runs)
    }

    #[test]
    fn documents_that_others_rewrite_are_not_checked_again_where_all_commit() {
        let folder = tempfile::tempdir().unwrap();
        {
            let database = open(folder.path(), ITEMS);
            (0..COUNT).for_each(|id| put(&database, id, "[[1,2],[3,[4]]]"));
            // These documents do not fit the schema.
            [3, 5, 7].into_iter().for_each(|id| put(&database, id, "[1.5]"));
        }
        let database = open(folder.path(), &format!("{ITEMS}{SCHEMA}"));
        let (found, runs) = run(&database, &mut |runs| {
            if runs == 1 {
                put(&database, 5, "[1]");
                put(&database, 9, "[2]");
            }
        });
        assert_eq!((found, runs), (vec!["items/3".to_string(), "items/7".to_string()], 2));
        let (found, runs) = run(&database, &mut |_| {});
        assert_eq!((found, runs), (vec!["items/3".to_string(), "items/7".to_string()], 1));
    }

    #[test]
    fn a_batch_that_takes_long_where_all_commit_is_taken_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        {
            let database = open(folder.path(), ITEMS);
            (0..COUNT).for_each(|id| put(&database, id, "[1]"));
        }
        let database = open(folder.path(), &format!("{ITEMS}{SCHEMA}"));
        let collection = &database.inner.core.collections[0];
        let targets = targets_of(collection);
        let keys: Vec<Vec<u8>> = (0..COUNT).map(key).collect();
        let in_share = |keys: &[Vec<u8>]| {
            let mut batch = Batch::new(collection, &targets, keys);
            engine::commit(database.store(), &mut |tx| {
                let share = Share::begin(ShareOf::Commits);
                std::thread::sleep(crate::writes::share::AGAIN_TIME * 2);
                batch.run_in(Some(&share), tx)
            })
        };
        assert!(matches!(in_share(&keys), Err(engine::StoreError::Busy)));
        assert!(in_share(&keys[..1]).is_ok());
    }
}
