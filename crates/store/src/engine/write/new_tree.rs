//! New trees: a name gets the next free id by an ordinary transaction on the catalog (`engine/read/catalog.rs`).

use super::transaction::{Abort, Tx};
use crate::base::error::StoreError;
use crate::base::key::TreeId;
use crate::base::limits::{CATALOG, TREES_MAX};
use crate::engine::Engine;
use crate::engine::read::catalog::{NEXT_ID_KEY, damaged, id, name_key};

impl Engine {
    pub(crate) fn tree(&self, name: &str) -> Result<TreeId, StoreError> {
        if let Some(found) = self.existing_tree(name)? {
            return Ok(found);
        }
        let key = name_key(name)?;
        let mut result = Err(StoreError::Aborted);
        let committed = self.commit(&mut |tx| {
            result = find_or_add(tx, &key);
            result.as_ref().map(|_| ()).map_err(|_| Abort)
        });
        let id = result?;
        committed.map(|_| id)
    }
}

fn find_or_add(tx: &mut Tx<'_>, key: &[u8]) -> Result<TreeId, StoreError> {
    if let Some(value) = tx.get(CATALOG, key)? {
        return id(&value).ok_or_else(damaged);
    }
    let next = match tx.get(CATALOG, NEXT_ID_KEY)? {
        Some(value) => id(&value).ok_or_else(damaged)?,
        None => TreeId(CATALOG.0 + 1),
    };
    if next.0 >= TREES_MAX {
        return Err(StoreError::Limit { what: "trees", limit: u64::from(TREES_MAX) });
    }
    tx.put(CATALOG, key, &next.0.to_le_bytes());
    tx.put(CATALOG, NEXT_ID_KEY, &(next.0 + 1).to_le_bytes());
    Ok(next)
}
