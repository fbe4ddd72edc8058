//! The operands by which a write changes a view's rows; `fold.rs` applies them.
//!
//! ```text
//!  operand of a group     00 | a state to be added (state.rs)
//!  operand of a value     01 | change of its occurrences (zigzag varint)
//!    for COUNT(DISTINCT) then: tree of the groups (u32, little-endian) | slot (varint) | length of the group's key,
//!    which is a prefix of the value's key (varint)
//! ```

use crate::encoding::varint;
use crate::engine::TreeId;

pub(super) const GROUP: u8 = 0;
pub(super) const VALUE: u8 = 1;

/// The additional part of a value's operand for COUNT(DISTINCT).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DistinctOf {
    pub(crate) groups: TreeId,
    pub(crate) slot: usize,
    pub(crate) group_key_bytes: usize,
}

/// Writes the operand that adds a state to a group.
pub(crate) fn group_operand(state: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.push(GROUP);
    out.extend_from_slice(state);
}

/// Writes the operand that counts a value up or down.
pub(crate) fn value_operand(by: i64, distinct: Option<DistinctOf>, out: &mut Vec<u8>) {
    out.clear();
    out.push(VALUE);
    varint::push_signed(out, by);
    if let Some(distinct) = distinct {
        out.extend_from_slice(&distinct.groups.0.to_le_bytes());
        varint::push(out, distinct.slot as u64);
        varint::push(out, distinct.group_key_bytes as u64);
    }
}

/// The number of occurrences in a value's row. `None`: damaged.
pub(crate) fn occurrences(mut row: &[u8]) -> Option<i64> {
    varint::take_signed(&mut row)
}
