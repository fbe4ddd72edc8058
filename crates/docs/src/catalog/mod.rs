//! The catalog: the collections, indexes and rules of a database, resolved to trees. Made when a database is opened, read-only
//! afterwards.
//!
//! It imports `encoding` and, of `sql`, the types of columns and the cache of plans. It does not know the configuration or a
//! document.
//!
//! The planner uses it: it lists the trees, the fields of their keys, and what the schema guarantees about a collection's
//! fields.
//!
//! - Documents: tree `docs/NAME`; key = [`crate::key::Key`], value = change number (8 bytes, little-endian), then binjson.
//! - Index: tree `index/NAME/FIELD,FIELD`; key = each field by [`crate::order::lower`], then the primary key; a missing field, null, a
//!   boolean, an object and an array are indexed as [`IndexInfo`] describes; value = see [`crate::encoding::index`].
//! - Unique: tree `unique/NAME/FIELD,FIELD`; key = each field by [`crate::order::lower`], value = the primary key's stored
//!   bytes.

pub mod counts;
pub mod generate;
pub(crate) mod readiness;
pub(crate) mod view_trees;

pub(crate) use counts::{ALL, Counts, ENTRIES_LEAST, TreeCount};
pub(crate) use generate::{GENERATORS, KeyGeneration};
pub use readiness::{Readiness, ReadinessState, RuleState};

use std::sync::Arc;

use schema::{FieldPromise, PromisedKind};

use crate::encoding::KeyType;
use crate::engine::TreeId;
use crate::sql::{JsonTypes, PlanSpace};
use view_trees::{is_table, without};

/// All collections of a database, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Sorted by name. Shared: each prepared query holds a catalog.
    pub collections: Vec<Arc<CollectionInfo>>,
    /// The views, as queries see them.
    pub views: Vec<Arc<CollectionInfo>>,
    /// Approximate sizes of the trees.
    pub counts: Counts,
    /// Cache of the plans of queries prepared against this catalog.
    pub plans: PlanSpace,
}

impl Catalog {
    /// The collection of that name.
    pub fn collection(&self, name: &str) -> Option<&CollectionInfo> {
        self.number(name).map(|number| &*self.collections[number])
    }

    /// The same with the views among the collections: queries are prepared from this.
    pub(crate) fn with_views(&self) -> Catalog {
        let mut all: Vec<(Option<usize>, Arc<CollectionInfo>)> =
            self.collections.iter().cloned().enumerate().map(|(place, info)| (Some(place), info)).collect();
        all.extend(self.views.iter().cloned().map(|info| (None, info)));
        all.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let target = |old: usize| all.iter().position(|(place, _)| *place == Some(old)).unwrap_or(old);
        let targets: Vec<usize> = (0..self.collections.len()).map(target).collect();
        let collections = all.into_iter().map(|(_, mut info)| {
            if info.references.iter().any(|reference| reference.target != targets[reference.target]) {
                let references = &mut Arc::make_mut(&mut info).references;
                references.iter_mut().for_each(|reference| reference.target = targets[reference.target]);
            }
            info
        });
        let (counts, plans) = (self.counts.clone(), self.plans.clone());
        let mut collections: Vec<Arc<CollectionInfo>> = collections.collect();
        // `collect` reused the memory of the larger elements before.
        collections.shrink_to_fit();
        Catalog { collections, views: Vec::new(), counts, plans }
    }

    /// The place of the collection of that name in `collections`.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.collections.binary_search_by(|info| info.name.as_str().cmp(name)).ok()
    }
}

/// One collection.
#[derive(Clone, Debug)]
pub struct CollectionInfo {
    /// Its name.
    pub name: String,
    /// The tree of its documents.
    pub tree: TreeId,
    /// The primary key.
    pub key: KeyInfo,
    /// The text of the JSON Schema in force. This is the old schema while stored documents are checked against a new one, and
    /// after the new one is refused.
    pub schema: Option<Arc<str>>,
    /// The fields that the schema names, in its order (the order of `*`); empty if there is no schema.
    pub fields: Vec<FieldInfo>,
    /// Whether the schema forbids fields other than these, so that an unknown name in a query is an error.
    pub closed: bool,
    /// The declared indexes, and those made for references and expiry.
    pub indexes: Vec<IndexInfo>,
    /// The unique fields, and the lists of fields that are unique together.
    pub unique: Vec<UniqueInfo>,
    /// The references to other collections.
    pub references: Vec<ReferenceInfo>,
    /// When documents expire.
    pub expire: Option<ExpireInfo>,
    /// The fields that together identify a row; `None` for a view with ROLLUP and for a query in FROM.
    pub identity: Option<Vec<String>>,
}

impl CollectionInfo {
    /// Whether it is a view.
    pub(crate) fn is_view(&self) -> bool {
        is_table(self.tree) && self.key.field.is_empty()
    }

    /// Restricts a view to the fields that the reader wants: the others are not computed.
    pub(crate) fn narrow(info: &mut Arc<CollectionInfo>, wants: &dyn Fn(&str) -> bool) {
        let is_unwanted = |(column, field): (usize, &FieldInfo)| (!wants(&field.name)).then_some(column);
        let unwanted: Vec<usize> = info.fields.iter().enumerate().filter_map(is_unwanted).collect();
        if unwanted.is_empty() || !info.is_view() {
            return;
        }
        let info = Arc::make_mut(info);
        for column in unwanted {
            info.tree = without(info.tree, column);
            info.indexes.iter_mut().for_each(|index| index.tree = without(index.tree, column));
        }
    }

    /// Its approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let texts = |fields: &[String]| fields.iter().map(|name| size_of::<String>() + name.len()).sum::<usize>();
        let indexes = self.indexes.iter();
        size_of::<CollectionInfo>()
            + self.name.len()
            + self.fields.iter().map(|field| size_of::<FieldInfo>() + field.name.len()).sum::<usize>()
            + indexes.map(|of| size_of::<IndexInfo>() + texts(&of.fields) + texts(&of.included)).sum::<usize>()
            + self.unique.iter().map(|unique| size_of::<UniqueInfo>() + texts(&unique.fields)).sum::<usize>()
            + self.references.iter().map(|of| size_of::<ReferenceInfo>() + of.field.len()).sum::<usize>()
            + self.identity.as_deref().map_or(0, texts)
    }

    /// The indexes that stand until these others are built: the declared ones that begin with the same field.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (&IndexInfo, impl Iterator<Item = &IndexInfo>)> {
        self.indexes.iter().filter(|index| index.is_standing).map(|standing| {
            let successors = self.indexes.iter().filter(|index| !index.is_standing);
            (standing, successors.filter(|index| index.fields[0] == standing.fields[0]))
        })
    }

    /// The schema's promise about a field.
    pub fn field(&self, name: &str) -> Option<&FieldInfo> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// A collection's primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The field of the document that holds it.
    pub field: String,
    /// Its type.
    pub kind: KeyType,
    /// How it is generated for documents without one.
    pub generate: Option<KeyGeneration>,
}

/// The promise of a schema, or of a view, about one top-level field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Its name.
    pub name: String,
    /// Its kind, if it is present and not null.
    pub kind: FieldKind,
    /// Whether every document has it with a value other than null.
    pub required: bool,
}

impl From<&FieldPromise> for FieldInfo {
    fn from(promise: &FieldPromise) -> FieldInfo {
        FieldInfo { name: promise.name.clone(), kind: promise.kind.into(), required: promise.required }
    }
}

/// The kinds of values that a schema or a view can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Whole numbers within 64 bits, however they are written: 5.0 is a real for queries.
    Integer,
    /// Any number.
    Number,
    /// Text.
    Text,
    /// True or false.
    Boolean,
    /// Nothing is promised.
    Any,
    /// A column of a view, whose values have these types. Their form in an index is not determined, as for [`FieldKind::Any`].
    Computed(JsonTypes),
}

impl From<PromisedKind> for FieldKind {
    fn from(kind: PromisedKind) -> FieldKind {
        match kind {
            PromisedKind::Integer => FieldKind::Integer,
            PromisedKind::Number => FieldKind::Number,
            PromisedKind::Text => FieldKind::Text,
            PromisedKind::Boolean => FieldKind::Boolean,
            PromisedKind::Any => FieldKind::Any,
        }
    }
}

/// One index.
///
/// Fields are encoded by value: numbers and text as they are; a missing field and null as NULL; a boolean as the integer 1 or
/// 0; an object or array as its minified text, as in queries. So `true` and `1` have the same key, and so have 5.0 and 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// The indexed fields, in order. (The primary key follows them in each entry's key.)
    pub fields: Vec<String>,
    /// The fields whose stored JSON each entry carries: read them with [`crate::encoding::index::IncludedValues`].
    pub included: Vec<String>,
    /// Its tree.
    pub tree: TreeId,
    /// Whether it is complete.
    pub readiness: Readiness,
    /// It is no longer declared like this, and stands until the indexes that begin with the same field are built.
    pub is_standing: bool,
}

/// One unique field, or fields that are unique together. A document in which one of them is missing or null has no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueInfo {
    /// The fields, in order.
    pub fields: Vec<String>,
    /// Its tree.
    pub tree: TreeId,
    /// Whether it is complete.
    pub readiness: Readiness,
}

impl UniqueInfo {
    /// Its field, if it has only one.
    pub fn only(&self) -> Option<&str> {
        match &self.fields[..] {
            [field] => Some(field),
            _ => None,
        }
    }

    /// Its fields as shown in messages.
    pub fn shown(&self) -> String {
        self.fields.iter().map(|field| format!("\"{field}\"")).collect::<Vec<_>>().join(", ")
    }
}

/// When the documents of a collection expire: see [`crate::expire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpireInfo {
    /// The field that holds a time, or [`crate::expire::LAST_WRITE`] for the time of the last write.
    pub field: String,
    /// Seconds added to that time.
    pub after_seconds: i64,
    /// For expiry by last write: when recording began, in seconds since 1970. Older documents count as written then.
    pub since_seconds: Option<i64>,
    /// The place in `indexes` of an index that starts with the field. It always exists: one is made if none is declared.
    pub index: usize,
}

/// One reference: the field holds a key of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceInfo {
    /// The referring field.
    pub field: String,
    /// The place of the target in [`Catalog::collections`].
    pub target: usize,
    /// The place in `indexes` of an index that starts with the field. It always exists: one is made if none is declared.
    pub index: usize,
}
