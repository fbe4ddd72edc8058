//! References between collections, with the field's place in a row: those that a document has, and those to its collection.

use binjson::JsonValue;

use crate::catalog::{CollectionInfo, ExpireInfo, Readiness};
use crate::encoding::row::key_value;
use crate::encoding::{Key, KeyType, Names, Plain, Row, order};
use crate::engine::TreeId;
use crate::error::WriteError;
use crate::expire::is_there;

#[derive(Debug)]
pub(crate) struct ReferencePlace {
    pub(crate) field: usize,
    /// The place of the index by which referring documents are found.
    pub(crate) index: usize,
    pub(crate) target: TreeId,
    pub(crate) target_kind: KeyType,
    pub(crate) target_name: String,
    /// Dropped once a reference of the field to another collection replaces it.
    pub(crate) readiness: Readiness,
    /// Set if documents of the target expire.
    pub(crate) target_expires: Option<ExpireInfo>,
}

/// The value of a reference field.
pub(crate) struct ReferenceValue<'d> {
    value: JsonValue<'d>,
    /// The value as a key of the target's type.
    key: Option<Plain<'d>>,
    kind: KeyType,
}

impl ReferenceValue<'_> {
    /// The key of the document that it refers to. `None`: no document can have it.
    #[inline]
    pub(crate) fn key(&self) -> Option<Key<'_>> {
        self.key.as_ref().and_then(|key| self.kind.of_scalar(key.scalar()))
    }
}

#[derive(Debug)]
pub(crate) struct Referrer {
    pub(crate) collection: String,
    pub(crate) documents: TreeId,
    pub(crate) field: String,
    pub(crate) index: TreeId,
    pub(crate) index_fields: usize,
    /// Readiness of the reference.
    pub(crate) readiness: Readiness,
}

impl ReferencePlace {
    /// A reference of a field to this collection; the field and its index by their places.
    pub(crate) fn new(field: usize, index: usize, target: &CollectionInfo, readiness: Readiness) -> ReferencePlace {
        ReferencePlace {
            field,
            index,
            target: target.tree,
            target_kind: target.key.kind,
            target_name: target.name.clone(),
            readiness,
            target_expires: target.expire.clone(),
        }
    }

    /// The value of a row's reference field, unless missing or null.
    #[inline]
    pub(crate) fn named<'d>(&self, row: &Row<'_, 'd>) -> Option<ReferenceValue<'d>> {
        let value = row.get(self.field).filter(|value| !value.is_null())?;
        Some(ReferenceValue { value, key: key_value(self.target_kind, value), kind: self.target_kind })
    }

    /// Whether a stored document of the target exists at a moment: it has not expired.
    #[inline]
    pub(crate) fn is_there(&self, stored: &[u8], now_ms: i64) -> bool {
        self.target_expires.as_ref().is_none_or(|expire| is_there(expire, stored, now_ms))
    }

    /// The error for a reference to a missing document.
    #[cold]
    pub(crate) fn dangling(&self, names: &Names, found: &ReferenceValue<'_>) -> WriteError {
        let field = names.name(self.field);
        let (value, target) = (schema::shown(found.value), &self.target_name);
        let why = match found.key() {
            Some(_) => format!("\"{field}\": there is no {value} in {target}"),
            None => format!("\"{field}\": {value} is no key of {target} (type {})", self.target_kind.name()),
        };
        WriteError::invalid(why, format!("/{field}"))
    }
}

impl Referrer {
    /// The reference by this field, through the index at a place.
    pub(crate) fn new(info: &CollectionInfo, field: String, index: usize, readiness: Readiness) -> Referrer {
        let index = &info.indexes[index];
        let (collection, index_fields) = (info.name.clone(), index.fields.len());
        Referrer { collection, documents: info.tree, field, index: index.tree, index_fields, readiness }
    }

    /// Whether an entry of the referring index belongs to the document with this key.
    pub(crate) fn is_entry_of(&self, entry: &[u8], key: &Key<'_>) -> bool {
        let mut rest = entry;
        for _ in 0..self.index_fields {
            if order::skip(&mut rest).is_none() {
                return false;
            }
        }
        let mut own = Vec::new();
        order::encode(key.scalar(), &mut own);
        rest == own
    }
}
