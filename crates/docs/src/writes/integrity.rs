//! Referential integrity: a write stores no reference to a missing document, and deletes no document that another refers to.

use std::ops::{Bound, ControlFlow};

use super::collection::Collection;
use super::reference::Referrer;
use super::rule::RuleScope;
use crate::encoding::{Key, Row, order};
use crate::engine::{Direction, KeyRange, WriteTransaction};
use crate::error::WriteError;

/// Checks that each reference of the new row names a document. References that the old row has too were checked before.
pub(super) fn check_references<C: WriteTransaction>(
    (collection, key): (&Collection, &Key<'_>),
    new: &Row<'_, '_>,
    old: Option<&Row<'_, '_>>,
    now_ms: i64,
    change: &mut C,
) -> Result<(), WriteError> {
    for reference in collection.references_held(RuleScope::All) {
        let Some(found) = reference.named(new) else { continue };
        if old.is_some_and(|old| old.raw(reference.field) == new.raw(reference.field)) {
            continue;
        }
        let there = match found.key() {
            None => false,
            Some(target) => {
                let itself = reference.target == collection.info.tree && target.as_bytes() == key.as_bytes();
                itself || {
                    let found = change.get(reference.target, target.as_bytes())?;
                    found.is_some_and(|stored| reference.is_there(&stored, now_ms))
                }
            }
        };
        if !there {
            return Err(reference.dangling(&collection.names, &found));
        }
    }
    Ok(())
}

/// Checks that no other document refers to this one, with one lookup in the index of each referring field.
pub(super) fn check_referrers<C: WriteTransaction>(
    (collection, key): (&Collection, &Key<'_>),
    change: &mut C,
) -> Result<(), WriteError> {
    for referrer in collection.referrers.iter().filter(|referrer| referrer.readiness.is_obeyed()) {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        order::lower(key.scalar(), &mut from);
        order::upper(key.scalar(), &mut to);
        let own = referrer.documents == collection.info.tree;
        let mut refers = false;
        let range = KeyRange { from: Bound::Included(&from), to: Bound::Excluded(&to) };
        change.scan(referrer.index, range, Direction::Forward, &mut |entry, _| {
            // A document that refers only to itself may be deleted.
            refers = !(own && referrer.is_entry_of(entry, key));
            if refers { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if refers {
            let Referrer { collection, field, .. } = referrer;
            let what = format!("a document of {collection} refers to it by \"{field}\"");
            return Err(WriteError::Conflict { what });
        }
    }
    Ok(())
}
