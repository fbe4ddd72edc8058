//! The effect of a write on the views of its collection: the old document's contribution is subtracted, and the new one's is
//! added.
//!
//! If both contribute the same, nothing is folded: a write that changes no field of a view costs one comparison.

use binjson::StoredDocument;

use super::definition::Contribution;
use super::operand::{DistinctOf, group_operand, value_operand};
use super::state;
use super::view::View;
use crate::encoding::{Key, Row};
use crate::engine::{TreeId, WriteTransaction};
use crate::error::WriteError;
use crate::sql::grouping::Memory;
use crate::writes::Collection;

/// Working memory of a thread.
#[derive(Default)]
pub(crate) struct ViewBuffers {
    memory: Memory,
    old: Contribution,
    new: Contribution,
    negated: Vec<u8>,
    delta: Vec<u8>,
    emit: Emit,
}

/// Buffers for the current operand.
#[derive(Default)]
pub(crate) struct Emit {
    operand: Vec<u8>,
    key: Vec<u8>,
}

/// A document and its row.
pub(crate) type Side<'s, 'r, 'd> = Option<(StoredDocument<'d>, &'s Row<'r, 'd>)>;

/// Folds the changes of one write into the views; `key` is the key of the document.
pub(crate) fn apply<C: WriteTransaction>(
    (collection, key): (&Collection, &Key<'_>),
    old: Side<'_, '_, '_>,
    new: Side<'_, '_, '_>,
    change: &mut C,
    buffers: &mut ViewBuffers,
) -> Result<(), WriteError> {
    for watch in &collection.views {
        let is_same = match (old, new) {
            (Some((_, old)), Some((_, new))) => watch.columns.iter().all(|&column| old.raw(column) == new.raw(column)),
            _ => false,
        };
        if is_same || !watch.view.readiness.is_maintained() {
            continue;
        }
        let (old, new) = (old.map(|(document, _)| document), new.map(|(document, _)| document));
        if let Some(why) = old.and_then(|old| misfit(&watch.view, old, buffers)) {
            give_up(&watch.view, (collection, key), &why);
            continue;
        }
        let mut fold = |tree: TreeId, key: &[u8], operand: &[u8]| change.fold(tree, key, operand);
        one(&watch.view, old, new, &mut fold, buffers)?;
    }
    Ok(())
}

/// Why a stored document cannot be represented in a view that is being built. For a built view each document was checked when
/// it was written.
fn misfit(view: &View, old: StoredDocument<'_>, buffers: &mut ViewBuffers) -> Option<WriteError> {
    if !view.readiness.is_pending() {
        return None;
    }
    view.contribution(old, &mut buffers.memory, &mut buffers.old).err()
}

/// Fails the build of a view that cannot represent a stored document. The write of the document succeeds.
#[cold]
fn give_up(view: &View, (collection, key): (&Collection, &Key<'_>), why: &WriteError) {
    let why = format!("the stored document {}/{key}: {why}", collection.info.name);
    tracing::error!(view = view.name, why, "the view cannot be built");
    view.fail(why);
}

/// Receives a tree, a key, and an operand to be applied to the key's value.
pub(crate) type TakeFold<'f> = dyn FnMut(TreeId, &[u8], &[u8]) + 'f;

/// Folds the change from one document's contribution to another's.
pub(crate) fn one(
    view: &View,
    old: Option<StoredDocument<'_>>,
    new: Option<StoredDocument<'_>>,
    fold: &mut TakeFold<'_>,
    buffers: &mut ViewBuffers,
) -> Result<(), WriteError> {
    let ViewBuffers { memory, old: was, new: is, negated, delta, emit } = buffers;
    for (document, contribution) in [(old, &mut *was), (new, &mut *is)] {
        match document {
            Some(document) => view.contribution(document, memory, contribution)?,
            None => contribution.is_any = false,
        }
    }
    negated.clear();
    if was.is_any {
        state::negated(&was.state, negated).ok_or_else(damaged)?;
    }
    for level in 0..view.definition.levels() {
        let (from, to) = (was.is_any.then(|| was.key(level)), is.is_any.then(|| is.key(level)));
        match (from, to) {
            (Some(key), Some(to)) if key == to => {
                delta.clear();
                state::add(negated, &is.state, delta).ok_or_else(damaged)?;
                emit.group(view, key, delta, fold);
            }
            _ => {
                from.into_iter().for_each(|key| emit.group(view, key, negated, fold));
                to.into_iter().for_each(|key| emit.group(view, key, &is.state, fold));
            }
        }
        for facet in 0..view.definition.facets.len() {
            let before = from.and_then(|key| Some((key, was.value(facet)?)));
            let after = to.and_then(|key| Some((key, is.value(facet)?)));
            if before == after {
                continue;
            }
            before.into_iter().for_each(|(key, value)| emit.value(view, facet, key, value, -1, fold));
            after.into_iter().for_each(|(key, value)| emit.value(view, facet, key, value, 1, fold));
        }
    }
    Ok(())
}

impl Emit {
    fn group(&mut self, view: &View, key: &[u8], state: &[u8], fold: &mut TakeFold<'_>) {
        if state.is_empty() {
            return;
        }
        group_operand(state, &mut self.operand);
        fold(view.groups, key, &self.operand);
    }

    fn value(&mut self, view: &View, facet: usize, group: &[u8], value: &[u8], by: i64, fold: &mut TakeFold<'_>) {
        value_key(group, facet, value, &mut self.key);
        value_operand(by, distinct_of(view, facet, group.len()), &mut self.operand);
        fold(view.values, &self.key, &self.operand);
    }
}

/// The key for counting a value of a facet.
pub(crate) fn value_key(group: &[u8], facet: usize, value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(group);
    out.push(facet as u8);
    out.extend_from_slice(value);
}

/// The part of the operands of a facet's values that concerns its COUNT(DISTINCT).
pub(crate) fn distinct_of(view: &View, facet: usize, group_key_bytes: usize) -> Option<DistinctOf> {
    let slot = view.definition.facets[facet].distinct?;
    Some(DistinctOf { groups: view.groups, slot, group_key_bytes })
}

#[cold]
fn damaged() -> WriteError {
    WriteError::Unavailable { why: "what a document contributes to a view is damaged".to_string() }
}
