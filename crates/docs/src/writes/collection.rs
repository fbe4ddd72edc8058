//! An open collection: its catalog entry, with field names resolved to positions in a document's row, and the tree entries of a
//! document.
//!
//! [`Collection::check`] checks a document by itself (schema and key). [`Collection::index_entry`] and
//! [`Collection::unique_key`] return exactly the bytes that are stored in the trees; writes, imports, rebuilds and verification
//! all use them.

use std::sync::Arc;

use binjson::StoredDocument;
use schema::{Schema, shown};

use super::made_keys::Keys;
use super::reference::{ReferencePlace, Referrer};
use super::rule::{Announced, RuleScope};
use crate::catalog::{Catalog, CollectionInfo, Readiness};
use crate::encoding::row::{key_value, plain};
use crate::encoding::{FieldNumbers, KEY_BYTES_MAX, Key, KeyType, NAMES_MAX, Names, Plain, Row, index, order};
use crate::engine::TreeId;
use crate::error::WriteError;
use crate::expire::{self, AtWrite, ExpiryLimit, WallClock, has_come, is_there};
use crate::views::{View, Watch};

/// An open collection.
#[derive(Debug)]
pub struct Collection {
    /// The catalog's entry.
    pub info: Arc<CollectionInfo>,
    /// The schema.
    pub schema: Option<Schema>,
    /// State of the schema: dropped once an announced one replaces it.
    pub(crate) schema_readiness: Readiness,
    pub(crate) names: Names,
    pub(crate) key: usize,
    pub(crate) indexes: Vec<IndexPlaces>,
    pub(crate) unique: Vec<UniquePlace>,
    pub(crate) references: Vec<ReferencePlace>,
    /// The references to this collection.
    pub(crate) referrers: Vec<Referrer>,
    /// Announced rules; each is in force once it is ready.
    pub(crate) announced: Vec<Announced>,
    /// The place of the field by which documents expire.
    pub(crate) expire: Option<usize>,
    /// Whether its documents are marked with the time of their last write.
    pub(crate) marks: bool,
    /// Whether it refers to documents that expire.
    pub(crate) refers_to_expiring: bool,
    /// The generator of keys for documents without one.
    pub(crate) keys: Option<Keys>,
    /// The views that read this collection.
    pub(crate) views: Vec<Watch>,
}

#[derive(Debug)]
pub(crate) struct IndexPlaces {
    pub(crate) tree: TreeId,
    pub(crate) fields: Vec<usize>,
    pub(crate) included: Vec<usize>,
    pub(crate) readiness: Readiness,
}

#[derive(Debug)]
pub(crate) struct UniquePlace {
    pub(crate) tree: TreeId,
    pub(crate) fields: Vec<usize>,
    pub(crate) readiness: Readiness,
}

impl Collection {
    /// Resolves the collection at a place in the catalog. `Err`: more fields than a row has places.
    pub(crate) fn new(catalog: &Catalog, place: usize, schema: Option<Schema>) -> Result<Collection, String> {
        let info = catalog.collections[place].clone();
        let mut names = Names::default();
        let too_many = || format!("collection {} uses more than {NAMES_MAX} fields", info.name);
        // The schema's fields come first: its checker relies on it.
        let first = schema.iter().flat_map(|schema| schema.fields()).map(|field| &field.name);
        for name in first.take(NAMES_MAX) {
            names.add(name).ok_or_else(too_many)?;
        }
        let mut number = |name: &String| names.add(name).ok_or_else(too_many);
        let key = number(&info.key.field)?;
        let mut indexes = Vec::new();
        for index in &info.indexes {
            let fields = index.fields.iter().map(&mut number).collect::<Result<_, _>>()?;
            let included = index.included.iter().map(&mut number).collect::<Result<_, _>>()?;
            let readiness = index.readiness.clone();
            indexes.push(IndexPlaces { tree: index.tree, fields, included, readiness });
        }
        let mut unique = Vec::new();
        for one in &info.unique {
            let fields = one.fields.iter().map(&mut number).collect::<Result<_, _>>()?;
            unique.push(UniquePlace { tree: one.tree, fields, readiness: one.readiness.clone() });
        }
        let mut references = Vec::new();
        for reference in &info.references {
            let target = &catalog.collections[reference.target];
            let field = number(&reference.field)?;
            references.push(ReferencePlace::new(field, reference.index, target, Readiness::default()));
        }
        let expire = info.expire.as_ref().map(|expire| number(&expire.field)).transpose()?;
        let marks = info.expire.as_ref().is_some_and(|expire| expire.field == expire::LAST_WRITE);
        let refers_to_expiring = references.iter().any(|reference| reference.target_expires.is_some());
        let referrers = referrers(catalog, place);
        Ok(Collection {
            info,
            schema,
            schema_readiness: Readiness::default(),
            names,
            key,
            indexes,
            unique,
            references,
            referrers,
            announced: Vec::new(),
            expire,
            marks,
            refers_to_expiring,
            keys: None,
            views: Vec::new(),
        })
    }

    /// Registers a view that writes must maintain. `Err`: more fields than a row has places.
    pub(crate) fn watch(&mut self, view: &Arc<View>) -> Result<(), String> {
        let too_many = || format!("collection {} and its views use more than {NAMES_MAX} fields", self.info.name);
        let names = &mut self.names;
        let columns = view.definition.grouping.columns.iter().map(|name| names.add(name));
        let columns = columns.collect::<Option<Vec<usize>>>().ok_or_else(too_many)?;
        self.views.push(Watch { view: Arc::clone(view), columns });
        Ok(())
    }

    /// Resolves the fields of a stored document (without its stamp).
    #[inline]
    pub(crate) fn with_row<'d, R>(
        &self,
        document: StoredDocument<'d>,
        shape: &mut FieldNumbers,
        each: impl FnOnce(&Row<'_, 'd>) -> R,
    ) -> R {
        self.names.with_row(document, shape, each)
    }

    /// Checks a document by itself: it must be an object, fit the schema and have a key. Returns the key.
    #[inline]
    pub(crate) fn check<'d>(&self, document: StoredDocument<'d>, row: &Row<'_, 'd>) -> Result<Plain<'d>, WriteError> {
        self.check_held(RuleScope::All, document, row)
    }

    /// The same against the given rules.
    #[inline]
    pub(crate) fn check_held<'d>(
        &self,
        held: RuleScope,
        document: StoredDocument<'d>,
        row: &Row<'_, 'd>,
    ) -> Result<Plain<'d>, WriteError> {
        if !document.is_object() {
            return Err(WriteError::invalid("a document is a JSON object", ""));
        }
        if !self.announced.is_empty() {
            self.check_announced(held, document, row)?;
        } else if let Some(schema) = &self.schema {
            schema
                .check(document, row, &self.names)
                .map_err(|misfit| WriteError::Invalid { why: misfit.why, pointer: misfit.pointer })?;
        }
        self.check_beside_schema(document, row)
    }

    /// The same for a document that is known to fit the schemas.
    #[inline]
    pub(crate) fn check_beside_schema<'d>(
        &self,
        document: StoredDocument<'d>,
        row: &Row<'_, 'd>,
    ) -> Result<Plain<'d>, WriteError> {
        if !document.is_object() {
            return Err(WriteError::invalid("a document is a JSON object", ""));
        }
        if let Some((info, place)) = self.info.expire.as_ref().zip(self.expire) {
            expire::check(&info.field, place, row)?;
        }
        self.key_of(row).ok_or_else(|| self.no_key(row))
    }

    /// The expiry limit as of now, where documents expire.
    #[inline]
    pub(crate) fn due(&self, clock: &WallClock) -> Option<ExpiryLimit> {
        self.info.expire.as_ref().map(|expire| ExpiryLimit::of(expire, clock.now_ms()))
    }

    /// Whether writes need the current time.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.info.expire.is_some() || self.marks || self.refers_to_expiring
    }

    /// The time-dependent inputs of a write that is prepared now.
    #[inline]
    pub(crate) fn at_write(&self, clock: &WallClock) -> AtWrite {
        if self.is_timed() { self.at_moment(clock.now_ms()) } else { AtWrite::default() }
    }

    /// The same at a moment.
    pub(crate) fn at_moment(&self, now_ms: i64) -> AtWrite {
        let due = self.info.expire.as_ref().map(|expire| ExpiryLimit::of(expire, now_ms));
        AtWrite { due, mark: self.marks.then(|| expire::mark_at(now_ms)), now_ms }
    }

    /// Whether a stored document exists at a moment: it has not expired.
    #[inline]
    pub(crate) fn is_there(&self, stored: &[u8], now_ms: impl FnOnce() -> i64) -> bool {
        self.info.expire.as_ref().is_none_or(|expire| is_there(expire, stored, now_ms()))
    }

    /// Whether a stored document has expired.
    pub(crate) fn has_come(&self, due: &ExpiryLimit, document: StoredDocument<'_>) -> bool {
        let Some(expire) = &self.info.expire else { return false };
        has_come(expire, due, document)
    }

    /// The value of a row's key field, if it is a key.
    #[inline]
    pub(crate) fn key_of<'d>(&self, row: &Row<'_, 'd>) -> Option<Plain<'d>> {
        key_value(self.info.key.kind, row.get(self.key)?)
    }

    #[cold]
    fn no_key(&self, row: &Row<'_, '_>) -> WriteError {
        let field = &self.info.key.field;
        let why = match row.get(self.key) {
            None => format!("the key \"{field}\" is missing"),
            Some(value) if self.info.key.kind == KeyType::String => {
                format!("{} is no key of type string (\"{field}\"): 1 to {KEY_BYTES_MAX} bytes of text", shown(value))
            }
            Some(value) => format!("{} is no key of type {} (\"{field}\")", shown(value), self.info.key.kind.name()),
        };
        WriteError::invalid(why, format!("/{field}"))
    }

    /// Makes the key and value of a row's index entry.
    #[inline]
    pub(crate) fn index_entry(
        &self,
        number: usize,
        row: &Row<'_, '_>,
        key: &Key<'_>,
        entry: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<(), WriteError> {
        let places = &self.indexes[number];
        entry.clear();
        value.clear();
        for &field in &places.fields {
            // The key's entry is the key, however the document spells it.
            let found = if field == self.key { None } else { Some(plain(row.get(field))) };
            order::lower(found.as_ref().map_or(key.scalar(), Plain::scalar), entry);
        }
        order::encode(key.scalar(), entry);
        for &field in &places.included {
            index::include(row.raw(field), value);
        }
        let is_key = |field: usize| field == self.key;
        index::include_written(
            places.fields.iter().map(|&field| if is_key(field) { &[] } else { row.raw(field) }),
            value,
        );
        bounded(entry, "a document's key in an index")
    }

    /// Makes a row's key in a unique tree; `false`: it has no entry (a field is missing or null).
    #[inline]
    pub(crate) fn unique_key(&self, number: usize, row: &Row<'_, '_>, out: &mut Vec<u8>) -> Result<bool, WriteError> {
        out.clear();
        for &field in &self.unique[number].fields {
            match plain(row.get(field)) {
                Plain::Null => return Ok(false),
                // Each encoded value marks its own end.
                found => order::lower(found.scalar(), out),
            }
        }
        bounded(out, "a unique value").map(|()| true)
    }
}

fn bounded(key: &[u8], what: &str) -> Result<(), WriteError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(WriteError::TooLarge { what: what.to_string(), limit: KEY_BYTES_MAX as u64 });
    }
    Ok(())
}

fn referrers(catalog: &Catalog, target: usize) -> Vec<Referrer> {
    let mut found = Vec::new();
    for info in &catalog.collections {
        for reference in info.references.iter().filter(|reference| reference.target == target) {
            found.push(Referrer::new(info, reference.field.clone(), reference.index, Readiness::default()));
        }
    }
    found
}
