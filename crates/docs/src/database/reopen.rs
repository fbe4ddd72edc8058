//! Changing the configuration of an open database, without downtime.
//!
//! A [`DocumentDatabase`] keeps the configuration that it was opened with. [`DocumentDatabase::reopen`] opens another one over
//! the same store, as at a start: new parts are built and checked while writes continue. It takes over while no write is in
//! progress ([`crate::database::gate`]), so no write runs half under the old and half under the new configuration:
//!
//! 1. The configuration is refused if it has mistakes, if a change cannot be made while writes continue, or if it would drop
//!    more than is permitted ([`crate::opening::losses`]). Nothing has been changed yet.
//! 2. New writes wait, those in progress end, builders stop.
//! 3. The new database is made, but builds nothing yet. The caller directs requests to it (`publish`) or refuses it. If it is
//!    refused, the catalog is restored, and writes continue in the old database.
//! 4. The old database is superseded. Writes to it go to the new one. Reads through its indexes or views that begin from then
//!    on fail ([`crate::Moment::check_indexes`]); earlier ones finish on their snapshots.
//! 5. Writes continue. Undeclared parts are removed.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::gate::{Shut, WriteKind};
use crate::catalog::ReadinessState;
use crate::caught;
use crate::config::Config;
use crate::database::{DocumentDatabase, Required, Write};
use crate::engine::{self, Direction, KeyRange};
use crate::error::WriteError;
use crate::opening::{
    CATALOG_TREE, DatabaseOpenError, IndexBuilder, Rows, Work, losses, rebuild, stored_catalog, stored_rows,
};
use crate::views::{self, Builder};

/// The failure reported for a view whose build was stopped by a failed reopening.
const STOPPED: &str =
    "its build was stopped by a change of the configuration that failed; it begins anew with the next reload";

/// The error for a panic during a change.
fn panicked(why: String) -> DatabaseOpenError {
    let source = std::io::Error::other(why);
    engine::StoreError::Io { context: "take another configuration".to_string(), source: source.into() }.into()
}

/// The rows of the catalog's tree, as stored.
type CatalogRows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A write in progress; the database cannot be superseded while this lives.
pub(crate) struct Passing {
    database: DocumentDatabase,
    kind: WriteKind,
}

impl Deref for Passing {
    type Target = DocumentDatabase;
    fn deref(&self) -> &DocumentDatabase {
        &self.database
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.database.inner.gate.leave(self.kind);
    }
}

impl DocumentDatabase {
    /// Opens the store with another configuration, which then takes over. Before that, while writes wait, `publish` is called
    /// with the new database; if it returns an error, everything stays as it was. Returns the new database, and how long writes
    /// waited.
    ///
    /// Builds of views and checks of rules that are in progress begin anew.
    pub fn reopen<E: From<DatabaseOpenError>>(
        &self,
        config: &Config,
        publish: impl FnOnce(&DocumentDatabase) -> Result<(), E>,
    ) -> Result<(DocumentDatabase, Duration), E> {
        // Another thread may be reopening: only what is checked after its end is known to hold.
        let _closer = self.inner.gate.closer();
        self.check_reopen(config)?;
        let is_busy = || DatabaseOpenError::Mismatch("statements that write are running: try again".to_string());
        if !self.inner.gate.close_to_long() {
            return Err(is_busy().into());
        }
        self.stop_builders();
        let began = Instant::now();
        if !self.inner.gate.close() {
            self.start_builders();
            return Err(is_busy().into());
        }
        let (database, drops) = match self.make_or_put_back(config, publish) {
            Ok(made) => made,
            Err(error) => {
                self.inner.gate.open();
                self.start_builders();
                return Err(error);
            }
        };
        // Before any write to the new database.
        self.inner.is_superseded.store(true, Ordering::SeqCst);
        let is_first = self.inner.successor.set(database.clone()).is_ok();
        debug_assert!(is_first, "checked with the closer held");
        self.inner.gate.end();
        let waited = began.elapsed();
        database.begin_builds();
        database.inner.gate.open();
        let drop_trees = || rebuild::drop_trees(database.store(), self.inner.core.catalog_tree, &drops);
        if let Err(why) = caught::outcome(drop_trees) {
            // The rows remain: the next opening removes the trees.
            tracing::error!(why, "trees that are no longer declared cannot be removed");
        }
        Ok((database, waited))
    }

    /// Checks that the stored data permits this configuration; changes nothing.
    pub fn check_reopen(&self, config: &Config) -> Result<(), DatabaseOpenError> {
        if self.is_superseded() {
            return Err(DatabaseOpenError::Mismatch("another configuration has taken over already".to_string()));
        }
        let store = self.store();
        let catalog_tree = store.tree(CATALOG_TREE)?;
        let reader = store.reader()?;
        let snapshot = reader.snapshot();
        let stored = stored_rows::read(&snapshot, catalog_tree)?;
        losses::check(config, store, &snapshot, &stored)?;
        let resolved = stored_catalog::resolve(store, &snapshot, config, &stored)?;
        views::resolve((store, catalog_tree), &snapshot, config, &resolved.catalog, &stored)?;
        if resolved.work.iter().all(Work::is_empty) {
            return Ok(());
        }
        let why =
            "the change is built before writes are taken: open the folder with it, or let it be built beside writes";
        Err(DatabaseOpenError::Mismatch(why.to_string()))
    }

    /// Makes the new database and calls `publish`. After an error of either step everything is as before.
    fn make_or_put_back<E: From<DatabaseOpenError>>(
        &self,
        config: &Config,
        publish: impl FnOnce(&DocumentDatabase) -> Result<(), E>,
    ) -> Result<(DocumentDatabase, Rows), E> {
        let before = self.catalog_rows().map_err(DatabaseOpenError::from)?;
        // All writes wait for this, so a panic must become an error like any other.
        let made = caught::unless_panic(|| {
            self.make(config).map_err(E::from).and_then(|made| publish(&made.0).map(|()| made))
        });
        made.unwrap_or_else(|why| Err(panicked(why).into())).inspect_err(|_| {
            if let Err(why) = caught::outcome(|| self.put_back(&before)) {
                tracing::error!(why, "the catalog cannot be restored after a refused change: no writes are taken until a change succeeds, or a restart");
                self.inner.gate.end();
            }
        })
    }

    /// The new database, closed to writes, and the rows that name trees to be removed.
    fn make(&self, config: &Config) -> Result<(DocumentDatabase, Rows), DatabaseOpenError> {
        let store = self.store().clone();
        let stored = stored_rows::read(&store.reader()?.snapshot(), self.inner.core.catalog_tree)?;
        let generations = Arc::clone(&self.inner.generations);
        let (database, rows) =
            DocumentDatabase::assemble(config, &self.inner.dir, store, &stored, generations, Some(&self.inner.core))?;
        let closed = database.inner.gate.close_to_long() && database.inner.gate.close();
        debug_assert!(closed, "nobody knows it yet");
        let mut drops: Rows = stored;
        drops.extend(rows);
        Ok((database, drops))
    }

    /// The rows of the catalog's tree.
    fn catalog_rows(&self) -> Result<CatalogRows, engine::StoreError> {
        let (mut rows, tree) = (CatalogRows::new(), self.inner.core.catalog_tree);
        self.store().reader()?.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    /// Restores the catalog's rows; the new database has changed nothing else in the store. A remaining row would mislead a
    /// later opening. For example, a view whose collection was empty could be marked as ready although writes have not
    /// maintained it since.
    fn put_back(&self, before: &CatalogRows) -> Result<(), engine::StoreError> {
        let (now, tree) = (self.catalog_rows()?, self.inner.core.catalog_tree);
        if now != *before {
            self.store().commit(&mut |tx| {
                now.keys().filter(|key| !before.contains_key(*key)).for_each(|key| tx.delete(tree, key));
                let changed = before.iter().filter(|(key, value)| now.get(*key) != Some(value));
                changed.for_each(|(key, value)| tx.put(tree, key, value));
                Ok(())
            })?;
        }
        self.inner.core.take_folds();
        Ok(())
    }

    fn stop_builders(&self) {
        // Dropping waits for their threads.
        *self.inner.builder.lock().unwrap_or_else(PoisonError::into_inner) = Builder::default();
        *self.inner.index_builder.lock().unwrap_or_else(PoisonError::into_inner) = IndexBuilder::default();
    }

    /// Restarts the index builder after a failed reopening. Views that were being built fail, because their snapshots are gone.
    /// The next successful reopening begins them anew ([`DocumentDatabase::has_stopped_builds`]).
    fn start_builders(&self) {
        for view in self.inner.core.views.list.iter().filter(|view| view.readiness.is_pending()) {
            view.fail(STOPPED.to_string());
        }
        self.begin_indexes();
    }

    /// Counts a write as in progress; `None`: this database takes no more writes, mostly because another one has taken over.
    #[inline]
    pub(crate) fn pass(&self, kind: WriteKind) -> Option<Passing> {
        self.inner.gate.enter(kind).then(|| Passing { database: self.clone(), kind })
    }

    /// The same for callers that must not wait.
    #[inline]
    pub(crate) fn try_pass(&self, kind: WriteKind) -> Result<Passing, Shut> {
        self.inner.gate.try_enter(kind).map(|()| Passing { database: self.clone(), kind })
    }

    /// The database that has taken over. After a failed change whose catalog rows could not be restored there is none.
    fn successor(&self) -> Result<&DocumentDatabase, WriteError> {
        self.inner.successor.get().ok_or_else(|| WriteError::Unavailable {
            why: "a refused change of the configuration could not be undone: change it again, or restart the server"
                .to_owned(),
        })
    }

    /// Translates a write for the database that has taken over.
    #[cold]
    pub(crate) fn for_successor(&self, write: &Write) -> Result<(DocumentDatabase, Write), WriteError> {
        let successor = self.successor()?;
        let name = &self.collection_at(write.collection).info.name;
        let collection = successor.collection(name).ok_or(WriteError::NotFound)?;
        Ok((successor.clone(), Write { collection, ..write.clone() }))
    }

    /// The same for a required document.
    #[cold]
    pub(crate) fn required_for_successor(&self, required: Option<Required>) -> Result<Option<Required>, WriteError> {
        let Some(required) = required else { return Ok(None) };
        let successor = self.successor()?;
        let name = &self.collection_at(required.collection).info.name;
        let collection = successor.collection(name).ok_or(WriteError::NotFound)?;
        Ok(Some(Required { collection, ..required }))
    }

    /// The database that has taken over last, or this one.
    pub fn newest(&self) -> DocumentDatabase {
        let mut newest = self;
        while let Some(next) = newest.inner.successor.get() {
            newest = next;
        }
        newest.clone()
    }

    /// Whether it is the same open database.
    pub fn is_same(&self, other: &DocumentDatabase) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether another database has taken over.
    #[inline]
    pub fn is_superseded(&self) -> bool {
        self.inner.is_superseded.load(Ordering::SeqCst)
    }

    /// Whether this is the last handle: dropping it closes the database, which waits for its threads.
    pub fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// How many generations of this database are in memory: this one, and others that are still referenced.
    pub fn generations_held(&self) -> usize {
        Arc::strong_count(&self.inner.generations)
    }

    /// Whether all builds and checks have ended, by success or refusal.
    pub fn is_settled(&self) -> bool {
        let views = self.inner.builder.lock().unwrap_or_else(PoisonError::into_inner).is_done();
        views && self.inner.index_builder.lock().unwrap_or_else(PoisonError::into_inner).is_done()
    }

    /// Whether a failed reopening has stopped builds of views: reopening with the same configuration begins them anew.
    pub fn has_stopped_builds(&self) -> bool {
        self.inner.core.views.list.iter().any(|view| view.has_failed_for(STOPPED))
    }

    /// Whether a reopening with the same configuration has an effect: a rule came into force since the opening, which queries
    /// then know, or an index that no longer has to stand can go.
    pub fn gains_by_reopening(&self) -> bool {
        let mut standing = self.catalog().collections.iter().flat_map(|info| info.standing());
        self.rules().iter().any(|rule| rule.state == ReadinessState::Ready)
            || standing.any(|(_, mut successors)| successors.all(|index| index.readiness.is_ready()))
    }
}
