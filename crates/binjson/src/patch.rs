//! Merge patch (RFC 7396) on stored documents.
//!
//! The target's fields keep their order; new ones follow in the patch's order; `null` removes; nested objects are merged. The
//! merged text is built from slices of both documents and encoded again. This costs one more pass, but only the encoder has to
//! compute positions.

use crate::document::StoredDocument;
use crate::encoder::Encoder;
use crate::error::JsonError;
use crate::limits::DEPTH_MAX;
use crate::value::{JsonKind, JsonValue};
use crate::walk::Fields;

/// Up to this many fields of a patch are searched linearly; more are sorted first.
const UNSORTED_FIELDS_MAX: usize = 16;

/// Appends to `out` the stored form of `target` changed by `patch`. Fails only if the result exceeds a limit (its size) or
/// stored bytes are damaged.
pub fn merge_patch(target: StoredDocument<'_>, patch: StoredDocument<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    Encoder::new().merge_patch(target, patch, out)
}

impl Encoder {
    /// [`merge_patch`] with this encoder's memory.
    pub fn merge_patch(
        &mut self,
        target: StoredDocument<'_>,
        patch: StoredDocument<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), JsonError> {
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        append_merged(&mut merged, Some(target.root()), patch.root(), 0);
        let result = self.encode(&merged, out);
        self.merged = merged;
        self.give_back();
        result
    }
}

/// A field of a patch, and whether the target has it.
struct PatchField<'a> {
    key: &'a [u8],
    value: JsonValue<'a>,
    applied: bool,
    order: usize,
}

fn append_merged(out: &mut Vec<u8>, target: Option<JsonValue<'_>>, patch: JsonValue<'_>, depth: usize) {
    // Stored documents are no deeper than the limit. For damaged ones this bounds the recursion.
    if patch.kind() != JsonKind::Object || depth >= DEPTH_MAX {
        out.extend_from_slice(patch.raw());
        return;
    }
    let mut changes = patch_fields(patch);
    let sorted = changes.len() > UNSORTED_FIELDS_MAX;
    if sorted {
        changes.sort_unstable_by(|a, b| a.key.cmp(b.key));
    }
    out.push(b'{');
    let start = out.len();
    for (key, value) in target.map_or_else(Fields::empty, |target| target.fields()) {
        match find(&mut changes, key.stored(), sorted) {
            None => append_field(out, start, key.stored(), |out| out.extend_from_slice(value.raw())),
            Some(change) => {
                change.applied = true;
                if !change.value.is_null() {
                    append_field(out, start, key.stored(), |out| {
                        append_merged(out, Some(value), change.value, depth + 1);
                    });
                }
            }
        }
    }
    if sorted {
        changes.sort_unstable_by_key(|change| change.order);
    }
    for change in changes.iter().filter(|change| !change.applied && !change.value.is_null()) {
        append_field(out, start, change.key, |out| append_merged(out, None, change.value, depth + 1));
    }
    out.push(b'}');
}

fn patch_fields(patch: JsonValue<'_>) -> Vec<PatchField<'_>> {
    patch
        .fields()
        .enumerate()
        .map(|(order, (key, value))| PatchField { key: key.stored(), value, applied: false, order })
        .collect()
}

fn find<'c, 'a>(changes: &'c mut [PatchField<'a>], key: &[u8], sorted: bool) -> Option<&'c mut PatchField<'a>> {
    if sorted {
        let index = changes.binary_search_by(|change| change.key.cmp(key)).ok()?;
        return changes.get_mut(index);
    }
    changes.iter_mut().find(|change| change.key == key)
}

fn append_field(out: &mut Vec<u8>, start: usize, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
    if out.len() > start {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
    value(out);
}
