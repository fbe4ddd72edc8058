//! What an open database is made of.

use store::Store;

use super::Views;
use crate::collection::Collection;
use crate::engine::TreeId;

/// What an open database and its builders share.
pub(crate) struct Heart {
    pub(crate) store: Store,
    pub(crate) collections: Vec<Collection>,
    pub(crate) views: Views,
    pub(crate) catalog_tree: TreeId,
    /// Memory for building views, and as much for each that is verified.
    pub(crate) build_bytes: usize,
}
