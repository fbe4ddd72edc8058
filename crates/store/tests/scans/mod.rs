//! Ranges and scans of several tests.

use std::ops::{Bound, ControlFlow};

use store::{Entry, KeyRange, StoreError, Visit};

/// The first entry that a scan visits.
pub(crate) fn first_of(
    scan: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
) -> Result<Option<Entry>, StoreError> {
    let mut found = None;
    scan(&mut |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// The keys that begin with `prefix`; all keys if it is empty. `end` is a buffer for the upper bound.
pub(crate) fn beginning_with<'k>(prefix: &'k [u8], end: &'k mut Vec<u8>) -> KeyRange<'k> {
    end.clear();
    // The least key above them all: the last byte below 255 is incremented, and the bytes after it are dropped.
    end.extend_from_slice(prefix);
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    let to = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end.as_slice())
        }
        None => Bound::Unbounded,
    };
    KeyRange { from: Bound::Included(prefix), to }
}
