//! The catalog rows that a configuration determines by itself, without a store.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::config::row_name::{collection_row, index_row, reference_row, unique_row};
use crate::config::{CollectionConfig, Config, ExpireConfig};
use crate::encoding::index;

/// The catalog rows that a configuration alone determines.
pub(crate) fn wanted_rows(config: &Config) -> BTreeMap<String, Json> {
    config.collections.iter().flat_map(|collection| rows_of(config, collection)).collect()
}

/// The catalog rows of one collection that its declaration alone determines.
fn rows_of(config: &Config, wanted: &CollectionConfig) -> Vec<(String, Json)> {
    let mut rows = vec![(collection_row(&wanted.name), declared_row(wanted))];
    for fields in index_fields(wanted, wanted.expire.as_ref()) {
        let included = included(config, wanted, &fields);
        rows.push((index_row(&wanted.name, &fields), json!({ "included": included, "format": index::FORMAT })));
    }
    rows.extend(wanted.unique.iter().map(|fields| (unique_row(&wanted.name, fields), json!({}))));
    let references = wanted.references.iter();
    rows.extend(references.map(|(field, target)| {
        let row = json!({ "target": target });
        (reference_row(&wanted.name, field), row)
    }));
    rows
}

/// The part that a row describes: its kind in words, its collection, and its name. `None` for rows that no declaration makes,
/// and for rows of views.
pub(crate) fn part_of(key: &str) -> Option<(&'static str, &str, String)> {
    let mut parts = key.splitn(3, '/');
    let (kind, collection) = (parts.next()?, parts.next()?);
    let of = parts.next().map(|fields| format!("{collection}({fields})"));
    match kind {
        "collection" => Some(("collection", collection, collection.to_string())),
        "index" => Some(("index", collection, of?)),
        "unique" => Some(("unique field", collection, of?)),
        "reference" => Some(("reference", collection, of?)),
        _ => None,
    }
}

/// The collection's own row, as the declaration determines it.
pub(crate) fn declared_row(wanted: &CollectionConfig) -> Json {
    let mut row = json!({ "key": wanted.key.field, "type": wanted.key.kind.name(), "schema": wanted.schema });
    if let Some(expire) = &wanted.expire {
        row["expire"] = json!(expire.field);
        row["expire_after"] = json!(expire.after_seconds);
    }
    row
}

/// The fields that an index must include.
pub(crate) fn included(config: &Config, collection: &CollectionConfig, index: &[String]) -> Vec<String> {
    let mut declared = config.included.iter();
    let found = declared.find(|included| included.collection == collection.name && included.index == index);
    found.map(|included| included.fields.clone()).unwrap_or_default()
}

/// The declared indexes, and one for each referring field and for the expiry field unless a declared index starts with it. They
/// find the referring documents at a deletion, and the expired documents, without reading the whole collection.
pub(crate) fn index_fields(wanted: &CollectionConfig, expire: Option<&ExpireConfig>) -> Vec<Vec<String>> {
    let mut indexes = wanted.indexes.clone();
    let times = wanted.expire.iter().chain(expire).map(|expire| &expire.field);
    for field in wanted.references.iter().map(|(field, _)| field).chain(times) {
        if !indexes.iter().any(|fields| fields[0] == *field) {
            indexes.push(vec![field.clone()]);
        }
    }
    indexes
}
