//! The catalog: names of trees, as rows of tree 0.
//!
//! ```text
//!  key               value
//!  00                next free id, u32
//!  01 NAME (UTF-8)   id, u32
//! ```
//!
//! Little-endian. These are ordinary rows, changed by ordinary transactions; replay and checkpoints treat them like others.

use super::view::View;
use crate::base::error::StoreError;
use crate::base::key::{TREE_NAME_BYTES_MAX, TreeId};
use crate::base::limits::{CATALOG, TREE_NAME};
use crate::engine::Engine;

pub(in crate::engine) const NEXT_ID_KEY: &[u8] = &[0];
const NAME_PREFIX: u8 = 1;

/// The name and the id in a row, if it is the row of a name.
pub(crate) fn row<'r>(key: &'r [u8], value: Option<&[u8]>) -> Option<(&'r str, TreeId)> {
    let (prefix, name) = key.split_first()?;
    let name = std::str::from_utf8(name).ok()?;
    (*prefix == NAME_PREFIX).then_some((name, id(value?)?))
}

pub(in crate::engine) fn id(value: &[u8]) -> Option<TreeId> {
    value.try_into().ok().map(|bytes| TreeId(u32::from_le_bytes(bytes)))
}

pub(in crate::engine) fn damaged() -> StoreError {
    // The page is not known here; `verify` finds it.
    StoreError::corrupt(TREE_NAME, 0, "a row of the catalog that holds no id of a tree")
}

pub(in crate::engine) fn name_key(name: &str) -> Result<Vec<u8>, StoreError> {
    if name.len() > TREE_NAME_BYTES_MAX {
        return Err(StoreError::Limit { what: "name of a tree", limit: TREE_NAME_BYTES_MAX as u64 });
    }
    Ok([&[NAME_PREFIX], name.as_bytes()].concat())
}

impl Engine {
    pub(crate) fn existing_tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        let key = name_key(name)?;
        let lent = self.take_slot();
        let (guard, version) = self.pin(lent.slot());
        let view = View { generation: &guard, version };
        match view.get(CATALOG, &key)?.map(|value| id(&value)) {
            None => Ok(None),
            Some(id) => id.map(Some).ok_or_else(damaged),
        }
    }
}
