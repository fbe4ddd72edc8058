//! Stores with trees of folded numbers, for the tests of folds and of derived rows.

use std::path::Path;
use std::sync::Arc;

use store::{Fold, Store, StoreOptions, TreeId};

/// Decodes a value or an operand.
pub(crate) fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

/// Small memtables and log segments, so that memtables are frozen and segments change in the middle of a test.
pub(crate) fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.map_bytes = 1 << 32;
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options
}

/// A store with these trees and the fold functions for them.
pub(crate) fn open<F: Fold + 'static>(
    directory: &Path,
    names: [&str; 3],
    fold: impl FnOnce([TreeId; 3]) -> F,
) -> (Store, [TreeId; 3]) {
    let (store, _) = Store::open(directory, options()).unwrap();
    let trees = names.map(|name| store.tree(name).unwrap());
    store.set_fold(Arc::new(fold(trees)));
    (store, trees)
}
