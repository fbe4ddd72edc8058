//! The engine of this build: the crate `store`, whose types get the names of this room. No other file of this crate names it.
//! Nothing is wrapped, so a call costs what it costs in the engine.

use std::sync::Arc;

// Keys, trees, errors.
pub use store::{Direction, Entry, KeyRange, RANGES_MAX, StoreError, TREE_NAME_BYTES_MAX, TreeId, Version};
// Reads.
pub use store::{Across, DirectReads, Entries, Got, ReadOutcome, Reader, StoreSnapshot};
// Transactions, and what is folded into rows at their commit.
pub use store::{Abort, Commit, RetriableTransaction, Submit, Tx};
pub use store::{Fold, FoldView, Folded, Further, RowChange};
// Transactions larger than the log takes at once.
pub use store::LargeTx;
// Sorting beyond memory, and building whole trees from sorted entries.
pub use store::{BulkCursor, BulkEntries, BulkTree, SortedEntries, SortedRun, SortedRunWriter, Sorter};
// The changes since a version.
pub use store::{Change as LoggedChange, ChangeReader};
// A whole database: its options, opening, statistics, backup, restoring, verification, compaction.
pub use store::{Compacted, Copied, CopyProgress, Durability, Examination, Recovery, Stats, Store, StoreOptions};

/// An empty database in memory that ends when it is dropped. Its files may take up to `bytes`.
pub fn in_memory(bytes: usize, options: StoreOptions) -> Result<Store, StoreError> {
    let disk = Arc::new(store::disk::MemoryDisk::new(bytes));
    Store::open_on(disk, options).map(|(store, _)| store)
}

/// Number of times that the calling thread has waited for a page that was not in memory, since the thread began.
#[inline]
pub fn major_faults() -> u64 {
    store::disk::major_faults()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WriteError;

    #[test]
    fn a_write_over_any_bound_of_a_transaction_is_recognised() {
        let (mut by_itself, mut by_memtable) = (StoreOptions::default(), StoreOptions::default());
        by_itself.transaction_bytes_max = 1 << 20;
        by_memtable.memtable_bytes = 1 << 20;
        for options in [by_itself, by_memtable] {
            let store = in_memory(64 << 20, options).unwrap();
            let tree = store.tree("texts").unwrap();
            let put = |bytes: usize, key: &[u8]| {
                store.commit(&mut |tx| {
                    tx.put(tree, key, &vec![0; bytes]);
                    Ok(())
                })
            };
            put(1 << 10, b"short").unwrap();
            assert!(WriteError::from(put(2 << 20, b"long").unwrap_err()).exceeds_transaction());
            assert!(!WriteError::from(put(1, &[0; 2000]).unwrap_err()).exceeds_transaction());
        }
    }

    #[test]
    fn a_database_in_memory_is_empty_and_takes_writes() {
        let store = in_memory(16 << 20, StoreOptions::default()).unwrap();
        let tree = store.tree("numbers").unwrap();
        assert_eq!(store.reader().unwrap().snapshot().get(tree, b"one").unwrap(), None);
        store
            .commit(&mut |tx| {
                tx.put(tree, b"one", b"1");
                Ok(())
            })
            .unwrap();
        assert_eq!(store.reader().unwrap().snapshot().get(tree, b"one").unwrap().as_deref(), Some(&b"1"[..]));
    }
}
