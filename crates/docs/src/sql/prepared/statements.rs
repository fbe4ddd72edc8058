//! Statements that clients send as text, kept prepared by their text within a limit of bytes: the next request with the same
//! text skips parsing, resolving and planning. The least recently used ones are evicted.
//!
//! Invariants:
//!
//! - All belong to one catalog. A request with another catalog, after a reload of the configuration or a new index, drops them
//!   all.
//! - A kept query is planned again when counts have moved, as a declared one is ([`PreparedQuery`]). Its plans count in their
//!   own space ([`crate::sql::PlanSpace`]) and are dropped with it.
//! - Parameter values are no part of the text, so one statement serves all of them. Literals are part of it.
//! - A text that takes more than the [`SHARE_MAX`]th part of the bytes is prepared for its request only, so that one text
//!   cannot evict all others.
//! - No statement is prepared under the lock. If two requests prepare the same text at once, the later result is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pages::Paged;
use super::query::PreparedQuery;
use crate::catalog::{Catalog, Counts};
use crate::sql::limits::SqlError;

/// A statement that takes more than this part of the bytes (1/8) is not kept.
const SHARE_MAX: usize = 8;
/// Estimate of an entry's bytes besides its statement and its text: its places in the map and in the order of use.
const ENTRY_BYTES: usize = 256;

/// A cache of prepared statements, keyed by their text and shared by all threads.
#[derive(Debug)]
pub struct Statements {
    bytes_max: usize,
    kept: Mutex<Kept>,
    found: AtomicU64,
    prepared: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    /// The counts of the catalog that all entries belong to.
    counts: Counts,
    by_text: HashMap<Arc<str>, Entry>,
    /// The texts by the number of their last use.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    bytes: usize,
}

/// The prepared forms of a text: for all rows, for pages, or for both.
#[derive(Debug, Default)]
struct Entry {
    query: Option<Arc<PreparedQuery>>,
    paged: Option<Arc<Paged>>,
    bytes: usize,
    used: u64,
}

impl Entry {
    fn size(&self, text: &str) -> usize {
        let query = self.query.as_ref().map_or(0, |query| query.bytes());
        let paged = self.paged.as_ref().map_or(0, |paged| paged.bytes());
        ENTRY_BYTES + text.len() + query + paged
    }
}

impl Kept {
    /// Drops all entries if they belong to another catalog.
    fn turn_to(&mut self, catalog: &Catalog) {
        if !self.counts.is_same(&catalog.counts) {
            *self = Kept { counts: catalog.counts.clone(), uses: self.uses, ..Kept::default() };
        }
    }

    /// The entry of a text, which becomes the most recently used one.
    fn used(&mut self, text: &str) -> Option<&mut Entry> {
        let (text, _) = self.by_text.get_key_value(text)?;
        let text = Arc::clone(text);
        let entry = self.by_text.get_mut(&text)?;
        self.uses += 1;
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(self.uses, text);
        Some(entry)
    }

    fn remove(&mut self, text: &str) {
        if let Some(entry) = self.by_text.remove(text) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    fn evict_oldest(&mut self) -> bool {
        let oldest = self.by_use.first_key_value().map(|(_, text)| Arc::clone(text));
        oldest.as_ref().inspect(|text| self.remove(text)).is_some()
    }
}

impl Statements {
    /// A cache of at most `bytes_max` bytes. With 0, nothing is kept.
    pub fn new(bytes_max: usize) -> Statements {
        let [found, prepared, evicted] = Default::default();
        Statements { bytes_max, kept: Mutex::default(), found, prepared, evicted }
    }

    /// The query of a text, kept or prepared now.
    pub fn query(&self, sql: &str, catalog: &Catalog) -> Result<Arc<PreparedQuery>, SqlError> {
        self.get(sql, catalog, |entry| &mut entry.query, PreparedQuery::prepare)
    }

    /// The query of a text for reading in pages, kept or prepared now.
    pub fn paged(&self, sql: &str, catalog: &Catalog) -> Result<Arc<Paged>, SqlError> {
        self.get(sql, catalog, |entry| &mut entry.paged, Paged::prepare)
    }

    fn get<P>(
        &self,
        sql: &str,
        catalog: &Catalog,
        of: impl Fn(&mut Entry) -> &mut Option<Arc<P>>,
        prepare: impl FnOnce(&str, &Catalog) -> Result<P, SqlError>,
    ) -> Result<Arc<P>, SqlError> {
        let mut kept = self.kept();
        kept.turn_to(catalog);
        if let Some(prepared) = kept.used(sql).and_then(|entry| of(entry).clone()) {
            self.found.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared);
        }
        drop(kept);
        let prepared = Arc::new(prepare(sql, catalog)?);
        self.prepared.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept();
        // The catalog may have changed meanwhile: then this statement is outdated.
        if kept.counts.is_same(&catalog.counts) {
            self.keep(&mut kept, sql, |entry| *of(entry) = Some(Arc::clone(&prepared)));
        }
        Ok(prepared)
    }

    fn keep(&self, kept: &mut Kept, sql: &str, put: impl FnOnce(&mut Entry)) {
        let mut entry = kept.by_text.get_mut(sql).map(std::mem::take).unwrap_or_default();
        kept.bytes -= entry.bytes;
        kept.by_use.remove(&entry.used);
        kept.by_text.remove(sql);
        put(&mut entry);
        entry.bytes = entry.size(sql);
        if entry.bytes > self.bytes_max / SHARE_MAX {
            return;
        }
        while kept.bytes + entry.bytes > self.bytes_max && kept.evict_oldest() {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        let text: Arc<str> = sql.into();
        kept.uses += 1;
        entry.used = kept.uses;
        kept.bytes += entry.bytes;
        kept.by_use.insert(entry.used, Arc::clone(&text));
        kept.by_text.insert(text, entry);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all kept statements, without their plans.
    pub fn bytes(&self) -> usize {
        self.kept().bytes
    }

    /// How often a requested text was already kept.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// How often a statement was prepared.
    pub fn prepared(&self) -> u64 {
        self.prepared.load(Ordering::Relaxed)
    }

    /// How many statements were evicted for lack of room.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
