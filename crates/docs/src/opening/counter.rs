//! Counting the entries of trees (`catalog/counts.rs`): when a database is opened, and then periodically by a thread.
//!
//! The thread reads a bounded number of pages of each tree through a snapshot, which it releases after each round. Writers are
//! not affected.
//!
//! The counts are kept among the rows of the catalog's tree, so that they are known as soon as the database is opened again:
//!
//! ```text
//!  counts/NUMBER   {"entries": N, "alike": [N, …]}     NUMBER is the tree's
//! ```
//!
//! Opening reads the size of each tree, from a page or two, and samples the trees whose size has changed. A round writes the
//! rows of trees that have changed by [`CHANGED_SHARE`] since the last write; small trees have no row.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::stored_rows::Rows;
use crate::catalog::{ALL, Catalog, CollectionInfo, Counts, ENTRIES_LEAST, TreeCount};
use crate::engine::{self, KeyRange, ReadView, TreeId};
use crate::views::DatabaseCore;

/// Maximum time for which counting may delay the opening of a database. The thread counts the remaining trees.
const OPENING_MAX: Duration = Duration::from_millis(200);
/// A tree is counted again once its size has changed by more than this share.
const CHANGED_SHARE: f64 = 0.125;
/// Time between two rounds of the thread.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// In one of this many rounds all trees are counted, because the distribution of values may change while the size does not.
const LOOKS_OF_SIZE: u32 = 30;
/// Stack of the thread, whose state is a few keys and numbers.
const STACK_BYTES: usize = 256 << 10;

impl Counts {
    /// Counts the trees of a catalog while `goes_on` returns true: all, or those whose size has changed.
    pub fn take(&self, catalog: &Catalog, view: &dyn ReadView, all: bool, goes_on: &dyn Fn() -> bool) {
        let trees = catalog.collections.iter().flat_map(|info| trees(info));
        for (tree, fields) in trees.take_while(|_| goes_on()) {
            let same = |known: TreeCount| {
                let now = view.entries_about(tree, ALL).ok().flatten().unwrap_or_default() as f64;
                is_same_size(now, known.entries)
            };
            if !all && self.of(tree).is_some_and(same) {
                continue;
            }
            // An unreadable tree has no count: the query that reads it reports the error.
            if let Ok(Some(count)) = TreeCount::take(view, tree, fields) {
                self.set(tree, count);
            }
        }
    }
}

fn is_same_size(now: f64, known: f64) -> bool {
    (now - known).abs() <= known * CHANGED_SHARE
}

/// Counts that the catalog's tree keeps, by tree.
#[derive(Debug, Default)]
struct Saved(BTreeMap<u32, TreeCount>);

/// Prefix of the keys of these rows.
const ROW: &str = "counts/";

impl Saved {
    /// Reads the rows; a tree whose row is unreadable is counted again.
    fn read(rows: &Rows) -> Saved {
        let counts = rows.iter().filter_map(|(key, row)| {
            let number = key.strip_prefix(ROW)?.parse().ok()?;
            let row: Json = serde_json::from_str(row).ok()?;
            let alike = row.get("alike")?.as_array()?.iter().map(Json::as_f64).collect::<Option<_>>()?;
            Some((number, TreeCount { entries: row.get("entries")?.as_f64()?, alike }))
        });
        Saved(counts.collect())
    }

    /// The rows to be written or removed (`None`) to store the current counts.
    fn update(&mut self, catalog: &Catalog) -> Vec<(String, Option<String>)> {
        let trees: Vec<TreeId> =
            catalog.collections.iter().flat_map(|info| trees(info)).map(|(tree, _)| tree).collect();
        let is_there = |number: &u32| trees.iter().any(|tree| tree.0 == *number);
        let gone: Vec<u32> = self.0.keys().filter(|number| !is_there(number)).copied().collect();
        let mut rows: Vec<_> = gone.iter().map(|number| (format!("{ROW}{number}"), None)).collect();
        self.0.retain(|number, _| is_there(number));
        for tree in trees {
            let Some(now) = catalog.counts.of(tree).filter(|now| now.entries >= ENTRIES_LEAST) else { continue };
            let is_known = |saved: &TreeCount| is_same_size(now.entries, saved.entries) && !now.has_moved(saved);
            if self.0.get(&tree.0).is_some_and(is_known) {
                continue;
            }
            let row = json!({ "entries": now.entries, "alike": now.alike });
            rows.push((format!("{ROW}{}", tree.0), Some(row.to_string())));
            self.0.insert(tree.0, now);
        }
        rows
    }
}

/// Writes rows of the catalog's tree.
struct SaveRows {
    tree: TreeId,
    rows: Vec<(String, Option<String>)>,
}

impl engine::RetriableTransaction for SaveRows {
    fn prepare(&mut self, tx: &mut engine::Tx<'_>) -> Result<(), engine::Abort> {
        for (key, row) in &self.rows {
            match row {
                Some(row) => tx.put(self.tree, key.as_bytes(), row.as_bytes()),
                None => tx.delete(self.tree, key.as_bytes()),
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<engine::Commit, engine::StoreError>) {
        if let Err(error) = outcome {
            tracing::debug!(%error, "counts of trees are not written: the next start counts them");
        }
    }
}

/// The trees of a collection, each with the number of fields that its keys begin with.
fn trees(info: &CollectionInfo) -> impl Iterator<Item = (TreeId, usize)> {
    let indexes = info.indexes.iter().filter(|index| index.readiness.is_ready());
    std::iter::once((info.tree, 0)).chain(indexes.map(|index| (index.tree, index.fields.len())))
}

/// The counting thread; it stops when this is dropped.
pub(crate) struct CountingThread {
    saved: Arc<Mutex<Saved>>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Counts that read the sizes of ranges from the database's store.
pub(crate) fn counts(core: &Arc<DatabaseCore>) -> Counts {
    // Weak, because prepared queries hold the counts, and the core holds the views' queries.
    let core: Weak<DatabaseCore> = Arc::downgrade(core);
    Counts::new(move |tree, range: KeyRange<'_>| {
        let core = core.upgrade()?;
        let reader = core.store.reader().ok()?;
        reader.snapshot().entries_about(tree, range).ok()
    })
}

/// Counts a catalog's trees once, all or those that have changed; false if time ran out or no reader is free.
pub(crate) fn take(core: &DatabaseCore, catalog: &Catalog, all: bool, goes_on: &dyn Fn() -> bool) -> bool {
    let Ok(reader) = core.store.reader() else { return false };
    catalog.counts.take(catalog, &reader.snapshot(), all, goes_on);
    goes_on()
}

/// Submits a transaction that writes the counts to the catalog's tree, without waiting.
fn save(core: &DatabaseCore, catalog: &Catalog, saved: &Mutex<Saved>) {
    let Ok(reader) = core.store.reader() else { return };
    let rows = saved.lock().unwrap_or_else(PoisonError::into_inner).update(catalog);
    if !rows.is_empty() {
        // If the queue is full, the counts are not written and the next start counts again.
        let _ = core.store.submit(&reader, Box::new(SaveRows { tree: core.catalog_tree, rows }));
    }
}

impl CountingThread {
    /// Loads the stored counts, counts what has changed since, and starts the thread.
    pub(crate) fn start(
        core: &Arc<DatabaseCore>,
        catalog: &Catalog,
        stored: &Rows,
    ) -> Result<CountingThread, engine::StoreError> {
        let began = Instant::now();
        let saved = Saved::read(stored);
        for (tree, _) in catalog.collections.iter().flat_map(|info| trees(info)) {
            saved.0.get(&tree.0).into_iter().for_each(|count| catalog.counts.set(tree, count.clone()));
        }
        let saved = Arc::new(Mutex::new(saved));
        let is_counted = take(core, catalog, false, &|| began.elapsed() < OPENING_MAX);
        let for_thread = Arc::clone(&saved);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (core, catalog, stopped) = (Arc::clone(core), catalog.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("counter".to_string()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            let mut wait = if is_counted { LOOK_EVERY } else { Duration::ZERO };
            let mut looks = 0;
            while !waits(&stopped, wait) {
                looks = (looks + 1) % LOOKS_OF_SIZE;
                take(&core, &catalog, looks == 0, &|| !waits(&stopped, Duration::ZERO));
                save(&core, &catalog, &for_thread);
                wait = LOOK_EVERY;
            }
        });
        Ok(CountingThread {
            saved,
            stop,
            thread: Some(spawned.map_err(|error| engine::StoreError::io("start a thread", error))?),
        })
    }

    /// Counts all trees now.
    pub(crate) fn count(&self, core: &DatabaseCore, catalog: &Catalog) {
        take(core, catalog, true, &|| true);
        save(core, catalog, &self.saved);
    }
}

/// Waits for `how_long`; true if the thread must stop.
fn waits((stop, changed): &(Mutex<bool>, Condvar), how_long: Duration) -> bool {
    let guard = stop.lock().unwrap_or_else(PoisonError::into_inner);
    if how_long.is_zero() {
        return *guard;
    }
    let waited = changed.wait_timeout_while(guard, how_long, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Drop for CountingThread {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}
