//! A thread's access to a database: reads without locks and without allocation.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};

use binjson::StoredDocument;

use crate::catalog::readiness;
use crate::database::{CollectionId, DocumentDatabase};
use crate::encoding::Key;
use crate::engine::{self, Direction, KeyRange, ReadView, STAMP_BYTES};
use crate::error::ReadError;
use crate::sql::{FirstRange, QueryError, Value};
use crate::views::table::WithViews;
use crate::views::{ViewId, row};

/// Maximum number of expired documents that one list skips: reading them takes a few milliseconds.
const HIDDEN_MAX: usize = 20_000;

/// A list calls `goes_on` after this many documents, about every ten microseconds. A document counts once more for every 2 KiB.
const LISTED_PER_ASKING: u32 = 32;
const LISTED_BYTES_PER_ASKING: usize = 2 << 10;

/// The registration of one thread as a reader of a database. Not shared between threads.
pub struct ReaderSession {
    database: DocumentDatabase,
    reader: engine::Reader,
}

/// The database as of one moment. Should be short-lived: it pins pages while it lives.
pub struct Moment<'s> {
    database: &'s DocumentDatabase,
    /// Another database has taken over, so the indexes and views of this one are no longer maintained.
    is_superseded: bool,
    view: WithViews<'s, engine::StoreSnapshot<'s>>,
}

/// A stored document.
#[derive(Clone, Debug)]
pub struct Stored<'v> {
    value: Cow<'v, [u8]>,
}

/// Visits one document of a list, and returns whether to continue.
pub type VisitDocument<'v> = dyn FnMut(&Key<'_>, &Stored<'_>) -> Result<ControlFlow<()>, ReadError> + 'v;

impl DocumentDatabase {
    /// Registers the calling thread.
    pub fn session(&self) -> Result<ReaderSession, engine::StoreError> {
        Ok(ReaderSession::new(self.clone(), self.store().reader()?))
    }
}

impl ReaderSession {
    pub(crate) fn new(database: DocumentDatabase, reader: engine::Reader) -> ReaderSession {
        ReaderSession { database, reader }
    }

    /// The same session without its cache of document positions, for documents that are rarely read twice.
    pub fn without_places(self) -> ReaderSession {
        ReaderSession { reader: self.reader.without_places(), ..self }
    }

    /// The database.
    pub fn database(&self) -> &DocumentDatabase {
        &self.database
    }

    /// The store's side of the registration.
    pub fn reader(&self) -> &engine::Reader {
        &self.reader
    }

    /// Gathers the writes that an event loop submits with this session: see [`engine::Reader::gather_submissions`].
    pub fn gather_submissions(&self) {
        self.reader.gather_submissions();
    }

    /// Gathers no more, and passes on what was gathered.
    pub fn stop_gathering(&self) {
        self.reader.stop_gathering();
    }

    /// Ends a tick of that loop. `true`: the loop must not sleep before the next tick: see [`engine::Reader::tick_ended`].
    #[inline]
    pub fn tick_ended(&self, now_ns: u64) -> bool {
        self.reader.tick_ended(now_ns)
    }

    /// The newest visible state; it is durable if each commit is synced.
    #[inline]
    pub fn now(&self) -> Moment<'_> {
        let ready_by = readiness::count();
        let view = WithViews { inner: self.reader.snapshot(), views: self.database.views_at_work(), ready_by };
        // After the snapshot: if the database is not superseded now, its indexes were maintained up to the snapshot.
        Moment { database: &self.database, is_superseded: self.database.is_superseded(), view }
    }

    /// Registers a document for prefetching.
    #[inline]
    pub fn foresee(&self, collection: CollectionId, key: &Key<'_>) {
        self.reader.foresee(self.database.collection_at(collection).info.tree, key.as_bytes());
    }

    /// Registers the start of a range for prefetching; `from` is its first key, made by [`crate::order::lower`] from the values
    /// of [`FirstRange::slots`].
    #[inline]
    pub fn foresee_range(&self, range: &FirstRange<'_>, from: &[u8]) {
        self.reader.foresee_range(range.tree(), from);
    }

    /// Prefetches the registered documents and ranges from memory, all at once.
    #[inline]
    pub fn fetch(&self) {
        self.reader.fetch();
    }
}

impl<'s> Moment<'s> {
    /// A document by its key.
    #[inline]
    pub fn get(&self, collection: CollectionId, key: &Key<'_>) -> Result<Option<Stored<'_>>, ReadError> {
        let found = self.view.inner.get(self.tree(collection), key.as_bytes())?.map(Stored::of);
        if self.expires(collection) {
            return self.unless_due(collection, found);
        }
        Ok(found)
    }

    /// Appends the row of a declared view with these values in its GROUP BY columns, in the order of GROUP BY, as the text of a
    /// JSON object. `false`: there is no such group. A view with ROLLUP is an error, because these values do not identify a row.
    pub fn view_row(&self, view: ViewId, group: &[Value<'_>], out: &mut Vec<u8>) -> Result<bool, QueryError> {
        row::append(self.view.views, (view, group), &self.view.inner, out)
    }

    #[inline]
    pub(crate) fn tree(&self, collection: CollectionId) -> engine::TreeId {
        self.database.collection_at(collection).info.tree
    }

    #[inline]
    pub(crate) fn snapshot(&self) -> &engine::StoreSnapshot<'s> {
        &self.view.inner
    }

    #[inline]
    pub(crate) fn expires(&self, collection: CollectionId) -> bool {
        self.database.collection_at(collection).expire.is_some()
    }

    /// A document, unless it has expired: then it is hidden until it is removed.
    #[inline(never)]
    fn unless_due<'v>(
        &self,
        collection: CollectionId,
        found: Option<Stored<'v>>,
    ) -> Result<Option<Stored<'v>>, ReadError> {
        let collection = self.database.collection_at(collection);
        let (Some(stored), Some(due)) = (&found, collection.due(self.database.clock())) else { return Ok(found) };
        Ok(if collection.has_come(&due, stored.document()?) { None } else { found })
    }

    /// Visits up to `limit` documents after a key (from the first if there is none), in order of key, until `visit` breaks. A
    /// list that skips too many expired documents ends early and returns the last key; the next list can continue after it.
    pub fn list(
        &self,
        collection: CollectionId,
        after: Option<&Key<'_>>,
        limit: usize,
        visit: &mut VisitDocument<'_>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        self.list_while(collection, after, limit, &|| true, visit)
    }

    /// The same, with `goes_on` called every few documents, hidden ones included. Once it returns false, the list ends with
    /// [`ReadError::Stopped`].
    pub fn list_while(
        &self,
        collection: CollectionId,
        after: Option<&Key<'_>>,
        limit: usize,
        goes_on: &dyn Fn() -> bool,
        visit: &mut VisitDocument<'_>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let collection = self.database.collection_at(collection);
        let (info, due) = (&collection.info, collection.due(self.database.clock()));
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_bytes()));
        let range = KeyRange { from, to: Bound::Unbounded };
        let (mut left, mut result) = (limit, Ok(ControlFlow::Continue(())));
        let (mut hidden, mut goes_on_behind) = (0, None);
        let mut seen = 0_u32;
        if limit == 0 {
            return Ok(None);
        }
        self.view.inner.scan(info.tree, range, Direction::Forward, &mut |key, value| {
            let stored = Stored { value: Cow::Borrowed(value) };
            // A long document counts as several.
            seen += 1 + u32::try_from(value.len() / LISTED_BYTES_PER_ASKING).unwrap_or(u32::MAX / 2);
            if seen >= LISTED_PER_ASKING {
                seen = 0;
                if !goes_on() {
                    result = Err(ReadError::Stopped);
                    return ControlFlow::Break(());
                }
            }
            if let Some(due) = &due {
                match stored.document() {
                    Ok(document) if collection.has_come(due, document) => {
                        hidden += 1;
                        if hidden < HIDDEN_MAX {
                            return ControlFlow::Continue(());
                        }
                        goes_on_behind = Some(key.to_vec());
                        return ControlFlow::Break(());
                    }
                    Ok(_) => {}
                    Err(error) => {
                        result = Err(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            left -= 1;
            result = match info.key.kind.of_bytes(key) {
                Some(key) => visit(&key, &stored),
                None => Err(ReadError::Damaged(format!("a key of {}", info.name))),
            };
            let more = left > 0 && matches!(result, Ok(ControlFlow::Continue(())));
            if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result.map(|_| goes_on_behind)
    }

    /// Whether everything read of this moment so far was valid: a failing disk may lose a page between a `get` and the use of
    /// its result. A caller that copies documents or computes from them must call this before using the result.
    #[inline]
    pub fn check(&self) -> Result<(), ReadError> {
        Ok(self.view.inner.check()?)
    }

    /// The same for reads through indexes or views. [`engine::StoreError::Busy`] if another database had already taken over,
    /// since this one's are then no longer maintained.
    #[inline]
    pub fn check_indexes(&self) -> Result<(), engine::StoreError> {
        if self.is_superseded {
            return Err(engine::StoreError::Busy);
        }
        self.view.inner.check()
    }

    /// Whether another database had taken over, so that indexes and views were no longer maintained.
    #[inline]
    pub fn is_superseded(&self) -> bool {
        self.is_superseded
    }

    /// The database.
    pub(crate) fn database(&self) -> &DocumentDatabase {
        self.database
    }

    /// The change number of the newest visible change.
    pub fn version(&self) -> u64 {
        self.view.inner.version().0
    }

    /// The view for queries.
    pub fn view(&self) -> &impl ReadView {
        &self.view
    }
}

impl<'v> Stored<'v> {
    #[inline]
    pub(crate) fn of(value: impl Into<Cow<'v, [u8]>>) -> Stored<'v> {
        Stored { value: value.into() }
    }

    /// The number of its last change, which is its ETag.
    #[inline]
    pub fn change_number(&self) -> Result<u64, ReadError> {
        let stamp = self.value.first_chunk::<STAMP_BYTES>().ok_or_else(damaged)?;
        Ok(u64::from_le_bytes(*stamp))
    }

    /// The document.
    #[inline]
    pub fn document(&self) -> Result<StoredDocument<'_>, ReadError> {
        let bytes = self.value.get(STAMP_BYTES..).ok_or_else(damaged)?;
        StoredDocument::from_bytes(bytes).map_err(|_| damaged())
    }

    /// Its JSON text, minified.
    #[inline]
    pub fn text(&self) -> Result<&[u8], ReadError> {
        let bytes = self.value.get(STAMP_BYTES..).ok_or_else(damaged)?;
        StoredDocument::text_of(bytes).map_err(|_| damaged())
    }
}

#[cold]
fn damaged() -> ReadError {
    ReadError::Damaged("a stored document".to_string())
}
