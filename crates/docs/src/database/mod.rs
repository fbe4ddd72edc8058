//! A database: a directory opened with a configuration.
//!
//! [`DocumentDatabase::open`] applies the configuration to the directory before anything is served. The handle is cheap to
//! clone; each thread that uses it opens a [`ReaderSession`]. Beside it are the gate that every write passes, the change of the
//! configuration, the feed of changes, the removal of expired documents, and verification.
//!
//! It imports `opening`, `writes`, `sql` and the folders below them. It does not know statements that write.

pub mod changes;
pub mod direct;
pub(crate) mod gate;
mod reopen;
mod session;
mod sweep;
pub mod verify;

pub(crate) use gate::{Shut, WriteKind};
pub(crate) use reopen::Passing;
pub use session::{Moment, ReaderSession, Stored, VisitDocument};
pub use sweep::{Sweep, Swept};

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::catalog::{Catalog, RuleState};
use crate::config::Config;
use crate::engine::{self, Recovery, Store, TreeId};
use crate::error::{ReadError, WriteError};
use crate::expire::WallClock;
use crate::opening::{
    CATALOG_TREE, CountingThread, DatabaseOpenError, Differences, IndexBuilder, ResolvedCatalog, Rows, counter, losses,
    rebuild, stored_catalog, stored_rows,
};
use crate::patience::RightOfWay;
use crate::sql::{PreparedQuery, SqlError};
use crate::views::{self, Builder, DatabaseCore, ViewId, ViewReport, ViewStatus, Views};
use crate::writes::{
    Collection, Keys, LONG_CHECK_BYTES, LongCheck, Op, Precondition, Prepared, RuleStatus, Written, announced, scratch,
    write,
};
use gate::Gate;

/// Interval at which a waiter checks whether the builds are done.
const BUILD_WAIT: std::time::Duration = std::time::Duration::from_millis(2);

/// An open database.
#[derive(Clone)]
pub struct DocumentDatabase {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// The first field, so that the builder's threads end before what they use is dropped.
    pub(crate) builder: Mutex<Builder>,
    pub(crate) index_builder: Mutex<IndexBuilder>,
    /// Its thread stops when it is dropped.
    counter: CountingThread,
    pub(crate) core: Arc<DatabaseCore>,
    pub(crate) dir: PathBuf,
    catalog: Catalog,
    dropped: Differences,
    clock: WallClock,
    /// Whether documents of any collection expire.
    is_timed: bool,
    pub(crate) gate: Gate,
    /// The database that has taken over, with another configuration.
    pub(crate) successor: OnceLock<DocumentDatabase>,
    pub(crate) is_superseded: AtomicBool,
    /// Shared by all databases that have replaced one another; each of them that is in memory holds a reference.
    pub(crate) generations: Arc<()>,
}

impl Drop for Inner {
    /// Submits the next key numbers to be stored, so that reserved numbers are not skipped. It does not wait, because this may
    /// be a thread of the store; closing the store commits what is queued. If the store accepts no writes, the numbers are
    /// skipped as after a crash.
    fn drop(&mut self) {
        if self.is_superseded.load(Ordering::SeqCst) {
            return;
        }
        let next = NextNumbers(self.core.collections.iter().filter_map(next_number).collect());
        if !next.0.is_empty()
            && let Ok(reader) = self.core.store.reader()
        {
            let _ = self.core.store.submit(&reader, Box::new(next));
        }
    }
}

/// Tree, row and next number of counters that are ahead of the row on disk.
struct NextNumbers(Vec<(TreeId, String, [u8; 8])>);

fn next_number(collection: &Collection) -> Option<(TreeId, String, [u8; 8])> {
    let (tree, next) = collection.keys.as_ref()?.unsettled()?;
    Some((tree, collection.info.name.clone(), next))
}

impl engine::RetriableTransaction for NextNumbers {
    fn prepare(&mut self, tx: &mut engine::Tx<'_>) -> Result<(), engine::Abort> {
        self.0.iter().for_each(|(tree, row, next)| tx.put(*tree, row.as_bytes(), next));
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<engine::Commit, engine::StoreError>) {
        if let Err(error) = outcome {
            tracing::debug!(%error, "the next key numbers were not stored: some numbers will be skipped");
        }
    }
}

/// A collection of an open database, by its place in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectionId(pub usize);

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The collection.
    pub collection: CollectionId,
    /// The operation.
    pub op: Op,
    /// The condition on the stored document.
    pub precondition: Precondition,
}

/// A document that must exist when a transaction is committed.
#[derive(Clone, Debug)]
pub struct Required {
    /// The collection.
    pub collection: CollectionId,
    /// Its key's stored bytes.
    pub key: Vec<u8>,
}

impl DocumentDatabase {
    /// Opens or creates the database in a directory and applies the configuration: new and changed indexes are built, documents
    /// are checked against a changed schema, and new references are checked. Collections and indexes that the configuration no
    /// longer declares are dropped only if [`Config::may_drop`] permits it; otherwise opening fails and the directory stays
    /// unchanged.
    pub fn open(
        config: &Config,
        dir: &Path,
        options: engine::StoreOptions,
    ) -> Result<(DocumentDatabase, Recovery), DatabaseOpenError> {
        let (store, recovery) = Store::open(dir, options)?;
        let database = DocumentDatabase::with_store(config, dir, store)?;
        Ok((database, recovery))
    }

    /// The same over a store that is already open.
    pub fn with_store(config: &Config, dir: &Path, store: Store) -> Result<DocumentDatabase, DatabaseOpenError> {
        let catalog_tree = store.tree(CATALOG_TREE)?;
        let stored = stored_rows::read(&store.reader()?.snapshot(), catalog_tree)?;
        losses::check(config, &store, &store.reader()?.snapshot(), &stored)?;
        rebuild::drop_trees(&store, catalog_tree, &stored)?;
        let stored = stored_rows::after_drops(stored);
        let (database, rows) = DocumentDatabase::assemble(config, dir, store, &stored, Arc::default(), None)?;
        rebuild::drop_trees(database.store(), catalog_tree, &rows)?;
        database.begin_builds();
        Ok(database)
    }

    /// Starts the background builds.
    pub(crate) fn begin_builds(&self) {
        self.inner.builder.lock().unwrap_or_else(PoisonError::into_inner).begin(&self.inner.core);
        self.begin_indexes();
    }

    /// Starts the build of indexes and the check of rules.
    pub(crate) fn begin_indexes(&self) {
        match IndexBuilder::start(&self.inner.core) {
            Ok(builder) => *self.inner.index_builder.lock().unwrap_or_else(PoisonError::into_inner) = builder,
            Err(error) => tracing::error!(%error, "indexes are not built until the next start"),
        }
    }

    /// Applies a configuration to the store while no writes run. Returns the new catalog rows; the caller must remove the trees
    /// that they mark as dropped. Background builds start only with [`DocumentDatabase::begin_builds`]. `until_now` is the core
    /// of the database that used the store before.
    pub(crate) fn assemble(
        config: &Config,
        dir: &Path,
        store: Store,
        stored: &Rows,
        generations: Arc<()>,
        until_now: Option<&DatabaseCore>,
    ) -> Result<(DocumentDatabase, Rows), DatabaseOpenError> {
        let catalog_tree = store.tree(CATALOG_TREE)?;
        let reader = store.reader()?;
        let dropped = losses::check(config, &store, &reader.snapshot(), stored)?;
        let resolved = stored_catalog::resolve(&store, &reader.snapshot(), config, stored)?;
        let ResolvedCatalog { mut catalog, schemas, wishes, work, mut rows, mut obsolete } = resolved;
        let watched = views::resolve((&store, catalog_tree), &reader.snapshot(), config, &catalog, stored)?;
        rows.extend(watched.rows);
        obsolete.extend(watched.obsolete);
        let mut collections = Vec::new();
        for (place, schema) in schemas.into_iter().enumerate() {
            collections.push(Collection::new(&catalog, place, schema).map_err(DatabaseOpenError::Mismatch)?);
        }
        announced::announce(&mut collections, &catalog, wishes).map_err(DatabaseOpenError::Mismatch)?;
        let mut builds = Vec::new();
        for (collection, work) in collections.iter().zip(&work).filter(|(_, work)| !work.is_empty()) {
            builds.extend(rebuild::collection(&store, &reader, collection, work, config.sort_bytes)?);
        }
        rebuild::make_visible(&store, catalog_tree, builds, &rows, &obsolete)?;
        for view in &watched.views.list {
            if let Some(collection) = view.definition.collection() {
                collections[collection].watch(view).map_err(DatabaseOpenError::Mismatch)?;
            }
        }
        catalog.views = views::tables(config, &catalog)?;
        for collection in &mut collections {
            let until_now = until_now.and_then(|core| core.collection(&collection.info.name)?.keys.as_ref());
            collection.keys = Keys::open(&store, &reader.snapshot(), &collection.info, until_now)?;
        }
        drop(reader);
        let core = Arc::new(DatabaseCore {
            store,
            collections,
            views: watched.views,
            catalog_tree,
            build_bytes: config.build_bytes,
            right_of_way: RightOfWay::default(),
        });
        core.take_folds();
        let builder = Builder::start(&core, config.build_threads)?;
        catalog.counts = counter::counts(&core);
        let counter = CountingThread::start(&core, &catalog, stored)?;
        let is_timed = core.collections.iter().any(Collection::is_timed);
        let inner = Inner {
            builder: Mutex::new(builder),
            index_builder: Mutex::default(),
            counter,
            core,
            dir: dir.to_path_buf(),
            catalog,
            dropped,
            clock: config.clock.clone(),
            is_timed,
            gate: Gate::default(),
            successor: OnceLock::new(),
            is_superseded: AtomicBool::new(false),
            generations,
        };
        Ok((DocumentDatabase { inner: Arc::new(inner) }, rows))
    }

    /// The clock by which documents expire.
    pub fn clock(&self) -> &WallClock {
        &self.inner.clock
    }

    /// The catalog of the open database.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// What opening has dropped from the directory, as [`Config::may_drop`] permitted.
    pub fn dropped(&self) -> &Differences {
        &self.inner.dropped
    }

    /// The collection of that name.
    pub fn collection(&self, name: &str) -> Option<CollectionId> {
        self.inner.catalog.number(name).map(CollectionId)
    }

    /// An open collection. Panics if the id comes from another database that has more collections.
    pub fn collection_at(&self, id: CollectionId) -> &Collection {
        &self.inner.core.collections[id.0]
    }

    /// The declared view of that name.
    pub fn view(&self, name: &str) -> Option<ViewId> {
        self.inner.catalog.views.iter().position(|view| view.name == name).map(ViewId)
    }

    /// Prepares a query. To learn which fields indexes should include for it, prepare it on [`outline`](crate::outline) before
    /// the database is opened.
    pub fn prepare_query(&self, sql: &str) -> Result<PreparedQuery, SqlError> {
        PreparedQuery::prepare(sql, &self.inner.catalog)
    }

    /// The engine below: for checkpoints, statistics and backups.
    pub fn store(&self) -> &Store {
        &self.inner.core.store
    }

    /// The state of all views: the declared ones, then old versions that serve until a changed definition is built.
    pub fn views(&self) -> Vec<ViewStatus> {
        self.inner.core.views.list.iter().map(|view| view.status()).collect()
    }

    /// The first view whose build failed.
    pub fn failed_view(&self) -> Option<ViewStatus> {
        let mut views = self.inner.core.views.list.iter();
        views.find(|view| view.readiness.now() == RuleState::Refused).map(|view| view.status())
    }

    /// Waits until no view is being built.
    pub fn wait_for_views(&self) {
        while !self.inner.builder.lock().unwrap_or_else(PoisonError::into_inner).is_done() {
            std::thread::sleep(BUILD_WAIT);
        }
    }

    /// The rules that were announced when the database was opened, with their states.
    pub fn rules(&self) -> Vec<RuleStatus> {
        self.inner.core.collections.iter().flat_map(Collection::rules).collect()
    }

    /// Waits until no index or unique field is being built and no new rule is being checked against stored documents.
    pub fn wait_for_indexes(&self) {
        while !self.inner.index_builder.lock().unwrap_or_else(PoisonError::into_inner).is_done() {
            std::thread::sleep(BUILD_WAIT);
        }
    }

    /// Updates the planner's statistics ([`crate::catalog::counts`]). A thread also does so periodically.
    pub fn count(&self) {
        self.inner.counter.count(&self.inner.core, &self.inner.catalog);
    }

    /// Computes a view again at one version and compares the result with the view's rows, while writes continue. `None`: there
    /// is no such view, or it is not built.
    pub fn verify_view(&self, name: &str) -> Result<Option<ViewReport>, ReadError> {
        self.verify_view_while(name, &|| true)
    }

    /// The same, with `goes_on` called repeatedly. Once it returns false, the verification ends with [`ReadError::Stopped`].
    pub fn verify_view_while(&self, name: &str, goes_on: &dyn Fn() -> bool) -> Result<Option<ViewReport>, ReadError> {
        let views = &self.inner.core.views.list;
        let Some(view) = views.iter().find(|view| view.name == name && view.is_ready()) else { return Ok(None) };
        let session = self.session()?;
        let now = session.now();
        let core = &self.inner.core;
        let source = match view.definition.collection() {
            Some(collection) => views::ViewSource::Collection(&core.collections[collection]),
            None => views::ViewSource::View(core.views.lower(view).unwrap_or(view)),
        };
        let mut report = views::verify(now.snapshot(), &core.store, (source, view), core.build_bytes, goes_on)?;
        now.check_indexes()?;
        report.version = now.version();
        Ok(Some(report))
    }

    pub(crate) fn views_at_work(&self) -> &Views {
        &self.inner.core.views
    }

    /// The directory of the database.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Commits one write and waits until it is durable; a lone caller commits on its own thread.
    pub fn write_now(&self, write: &Write) -> Result<Written, WriteError> {
        let Some(_passing) = self.pass(WriteKind::Short) else {
            let (database, write) = self.for_successor(write)?;
            return database.write_now(&write);
        };
        let (mut outcome, mut long_check) = (None, LongCheck::default());
        let commit = self.inner.core.store.commit(&mut |tx| {
            let prepared = self.prepare(write, tx, &mut long_check);
            let result = if prepared.is_ok() { Ok(()) } else { Err(engine::Abort) };
            outcome = Some(prepared);
            long_check.was_prepared();
            result
        });
        written(outcome, commit)
    }

    /// Commits several writes in one transaction, all or none, and waits until it is durable.
    pub fn write_all(&self, writes: &[Write]) -> Result<(), WriteError> {
        let Some(_passing) = self.pass(WriteKind::Short) else {
            let moved: Vec<_> = writes.iter().map(|write| self.for_successor(write)).collect::<Result<_, _>>()?;
            let Some((database, _)) = moved.first().cloned() else { return Ok(()) };
            return database.write_all(&moved.into_iter().map(|(_, write)| write).collect::<Vec<_>>());
        };
        let mut checks: Vec<LongCheck> = writes.iter().map(|_| LongCheck::default()).collect();
        engine::commit(&self.inner.core.store, &mut |tx| {
            let mut each = writes.iter().zip(&mut checks);
            let prepared = each.try_for_each(|(write, long_check)| self.prepare(write, tx, long_check).map(drop));
            checks.iter_mut().for_each(LongCheck::was_prepared);
            prepared
        })
    }

    /// Whether a document exists in a transaction, that is, it is stored and has not expired.
    pub(crate) fn is_there(&self, required: &Required, tx: &mut engine::Tx<'_>) -> Result<bool, engine::StoreError> {
        let collection = self.collection_at(required.collection);
        let found = tx.get(collection.info.tree, &required.key)?;
        Ok(found.is_some_and(|stored| collection.is_there(&stored, || self.inner.clock.now_ms())))
    }

    /// The time of a transaction. If documents of any collection expire, it is the clock's, so that expired documents are
    /// absent for every reader; otherwise it is the caller's `now_ms`.
    pub(crate) fn moment_ms(&self, now_ms: i64) -> i64 {
        if self.inner.is_timed { self.inner.clock.now_ms() } else { now_ms }
    }

    pub(crate) fn prepare(
        &self,
        write: &Write,
        tx: &mut engine::Tx<'_>,
        long_check: &mut LongCheck,
    ) -> Result<Prepared, WriteError> {
        let collection = self.collection_at(write.collection);
        scratch::with(|scratch| {
            let at = collection.at_write(&self.inner.clock);
            scratch.long_check = std::mem::take(long_check);
            let prepared = write::apply(collection, (&write.op, &at), &write.precondition, tx, scratch);
            *long_check = std::mem::take(&mut scratch.long_check);
            prepared
        })
    }

    /// Whether preparing a write would check a long document against a general schema, which takes too long for an event loop.
    pub fn has_long_check(&self, session: &ReaderSession, write: &Write) -> bool {
        let collection = self.collection_at(write.collection);
        if !collection.checks_fully() {
            return false;
        }
        let is_long = |bytes: usize| bytes >= LONG_CHECK_BYTES;
        match &write.op {
            Op::Delete { .. } => false,
            Op::Insert { body } | Op::Replace { body, .. } | Op::Put { body, .. } => is_long(body.len()),
            Op::Update { key, patch } | Op::Patch { key, patch } => {
                let now = session.now();
                let key = collection.info.key.kind.of_bytes(key);
                let stored = key.and_then(|key| now.get(write.collection, &key).ok().flatten());
                let there = stored.and_then(|stored| stored.text().map(<[u8]>::len).ok());
                is_long(patch.len() + there.unwrap_or_default())
            }
        }
    }

    /// Whether documents of a collection are checked by the general schema checker.
    pub fn checks_fully(&self, collection: CollectionId) -> bool {
        self.collection_at(collection).checks_fully()
    }

    /// Whether the preparation of a write may turn out to take too long for an event loop; on one it then needs a
    /// [`Submission::long`](crate::Submission::long). (An insert reads a stored document only if that document has expired.)
    pub fn may_be_long(&self, write: &Write) -> bool {
        let collection = self.collection_at(write.collection);
        !matches!(write.op, Op::Insert { .. }) || collection.is_timed() || collection.checks_fully()
    }
}

pub(crate) fn written(
    outcome: Option<Result<Prepared, WriteError>>,
    commit: Result<engine::Commit, engine::StoreError>,
) -> Result<Written, WriteError> {
    match (commit, outcome) {
        (Ok(commit), Some(Ok(prepared))) => {
            let change_number = prepared.unchanged.unwrap_or(commit.version.0);
            Ok(Written { change_number, created: prepared.created, key: prepared.key })
        }
        (Err(engine::StoreError::Aborted), Some(Err(refused))) => Err(refused),
        (Err(error), _) => Err(error.into()),
        (Ok(_), _) => Err(WriteError::Unknown { why: "the store finished a write it had not prepared".to_string() }),
    }
}
