//! The entries of a document in the trees of its collection's unique fields and indexes.

use super::collection::Collection;
use super::scratch::Entries;
use crate::encoding::{Key, Row};
use crate::engine::WriteTransaction;
use crate::error::WriteError;

/// Replaces the old row's entries by the new row's in all trees; equal entries are not touched.
pub(super) fn replace<C: WriteTransaction>(
    (collection, key): (&Collection, &Key<'_>),
    old: Option<&Row<'_, '_>>,
    new: Option<&Row<'_, '_>>,
    change: &mut C,
    entries: &mut Entries,
) -> Result<(), WriteError> {
    let Collection { unique, indexes, .. } = collection;
    for number in (0..unique.len()).filter(|number| unique[*number].readiness.is_maintained()) {
        replace_unique((collection, key), number, (old, new), change, entries)?;
    }
    for number in (0..indexes.len()).filter(|number| indexes[*number].readiness.is_maintained()) {
        replace_index((collection, key), number, (old, new), change, entries)?;
    }
    Ok(())
}

fn replace_unique<C: WriteTransaction>(
    (collection, key): (&Collection, &Key<'_>),
    number: usize,
    (old, new): (Option<&Row<'_, '_>>, Option<&Row<'_, '_>>),
    change: &mut C,
    entries: &mut Entries,
) -> Result<(), WriteError> {
    let tree = collection.unique[number].tree;
    let had = match old.map(|row| collection.unique_key(number, row, &mut entries.old_key)) {
        // The document is older than the unique field, and its value is too long. The build refuses the field; this write
        // succeeds.
        Some(Err(_)) if !collection.unique[number].readiness.is_ready() => false,
        had => had.unwrap_or(Ok(false))?,
    };
    let has = new.map_or(Ok(false), |row| collection.unique_key(number, row, &mut entries.new_key))?;
    if had && has && entries.old_key == entries.new_key {
        return Ok(());
    }
    if has && change.get(tree, &entries.new_key)?.is_some() {
        let fields = collection.info.unique[number].shown();
        let what = format!("another document of {} has this {fields}", collection.info.name);
        return Err(WriteError::Conflict { what });
    }
    // While the field is being built, another document may already own the value in the tree.
    let is_its_own = had
        && (collection.unique[number].readiness.is_ready()
            || change.get(tree, &entries.old_key)?.is_some_and(|named| *named == *key.as_bytes()));
    if is_its_own {
        change.delete(tree, &entries.old_key);
    }
    if has {
        change.put(tree, &entries.new_key, key.as_bytes());
    }
    Ok(())
}

fn replace_index<C: WriteTransaction>(
    (collection, key): (&Collection, &Key<'_>),
    number: usize,
    (old, new): (Option<&Row<'_, '_>>, Option<&Row<'_, '_>>),
    change: &mut C,
    entries: &mut Entries,
) -> Result<(), WriteError> {
    let Entries { old_key, old_value, new_key, new_value } = entries;
    let tree = collection.indexes[number].tree;
    let old = match old.map(|row| collection.index_entry(number, row, key, old_key, old_value)) {
        // The entry is too long for an index that is being built. The build refuses the index; this write succeeds.
        Some(Err(_)) if !collection.indexes[number].readiness.is_ready() => None,
        had => had.transpose()?,
    };
    if let Some(new) = new {
        collection.index_entry(number, new, key, new_key, new_value)?;
    }
    if old.is_some() && (new.is_none() || old_key != new_key) {
        change.delete(tree, old_key);
    }
    if new.is_some() && (old.is_none() || old_key != new_key || old_value != new_value) {
        change.put(tree, new_key, new_value);
    }
    Ok(())
}
