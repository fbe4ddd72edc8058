//! The catalog: names of trees, as rows of tree 0.
//!
//! ```text
//!  key               value
//!  00                next free id, u32
//!  01 NAME (UTF-8)   id, u32
//! ```
//!
//! Little-endian. These are ordinary rows, changed by ordinary transactions; replay and checkpoints treat them like others.

use super::Engine;
use super::limits::{CATALOG, TREE_NAME};
use super::view::View;
use crate::error::Error;
use crate::key::{TREE_NAME_BYTES_MAX, TreeId};
use crate::transaction::{Abort, Tx};
use crate::tree::TREES_MAX;

const NEXT_ID_KEY: &[u8] = &[0];
const NAME_PREFIX: u8 = 1;

/// The name and the id in a row, if it is the row of a name.
pub(super) fn row<'r>(key: &'r [u8], value: Option<&[u8]>) -> Option<(&'r str, TreeId)> {
    let (prefix, name) = key.split_first()?;
    let name = std::str::from_utf8(name).ok()?;
    (*prefix == NAME_PREFIX).then_some((name, id(value?)?))
}

fn id(value: &[u8]) -> Option<TreeId> {
    value.try_into().ok().map(|bytes| TreeId(u32::from_le_bytes(bytes)))
}

fn damaged() -> Error {
    // The page is not known here; `verify` finds it.
    Error::corrupt(TREE_NAME, 0, "a row of the catalog that holds no id of a tree")
}

fn name_key(name: &str) -> Result<Vec<u8>, Error> {
    if name.len() > TREE_NAME_BYTES_MAX {
        return Err(Error::Limit { what: "name of a tree", limit: TREE_NAME_BYTES_MAX as u64 });
    }
    Ok([&[NAME_PREFIX], name.as_bytes()].concat())
}

impl Engine {
    pub(crate) fn existing_tree(&self, name: &str) -> Result<Option<TreeId>, Error> {
        let key = name_key(name)?;
        let lent = self.take_slot();
        let (guard, version) = self.pin(lent.slot());
        let view = View { generation: &guard, version };
        match view.get(CATALOG, &key)?.map(|value| id(&value)) {
            None => Ok(None),
            Some(id) => id.map(Some).ok_or_else(damaged),
        }
    }

    pub(crate) fn tree(&self, name: &str) -> Result<TreeId, Error> {
        if let Some(found) = self.existing_tree(name)? {
            return Ok(found);
        }
        let key = name_key(name)?;
        let mut result = Err(Error::Aborted);
        let committed = self.commit(&mut |tx| {
            result = find_or_add(tx, &key);
            result.as_ref().map(|_| ()).map_err(|_| Abort)
        });
        let id = result?;
        committed.map(|_| id)
    }
}

fn find_or_add(tx: &mut Tx<'_>, key: &[u8]) -> Result<TreeId, Error> {
    if let Some(value) = tx.get(CATALOG, key)? {
        return id(&value).ok_or_else(damaged);
    }
    let next = match tx.get(CATALOG, NEXT_ID_KEY)? {
        Some(value) => id(&value).ok_or_else(damaged)?,
        None => TreeId(CATALOG.0 + 1),
    };
    if next.0 >= TREES_MAX {
        return Err(Error::Limit { what: "trees", limit: u64::from(TREES_MAX) });
    }
    tx.put(CATALOG, key, &next.0.to_le_bytes());
    tx.put(CATALOG, NEXT_ID_KEY, &(next.0 + 1).to_le_bytes());
    Ok(next)
}
