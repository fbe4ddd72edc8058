//! The shared core of an open database.

use std::sync::Arc;

use super::fold::ViewFold;
use super::{Chains, Views};
use crate::engine::{Store, TreeId};
use crate::patience::RightOfWay;
use crate::writes::Collection;

/// The state shared by an open database and its builders.
pub(crate) struct DatabaseCore {
    pub(crate) store: Store,
    pub(crate) collections: Vec<Collection>,
    pub(crate) views: Views,
    pub(crate) catalog_tree: TreeId,
    /// Memory for building views, and the same amount for each verification.
    pub(crate) build_bytes: usize,
    /// Of statements that had to begin again.
    pub(crate) right_of_way: RightOfWay,
}

impl DatabaseCore {
    /// The collection of that name.
    pub(crate) fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.iter().find(|collection| &*collection.info.name == name)
    }

    /// Makes the committer apply the operands of writes to these views from now on.
    pub(crate) fn take_folds(&self) {
        let chains = Some(Chains::new(&self.views.list, self.catalog_tree));
        self.store.set_fold(Arc::new(ViewFold { chains }));
    }
}
