//! Ordered transactional key-value engine: log, memtable, copy-on-write B+tree.
//!
//! ```text
//!   commit ──► log        acknowledged transactions       appended, one sync for a group
//!         └──► memtable   changes since the checkpoint    versioned, in an arena, bounded
//!   checkpoint ─► tree    everything else                 a copy-on-write B+tree file, mapped
//! ```
//!
//! Entry points of [`Store`]: [`Store::reader`] and [`Reader::snapshot`] to read, [`Store::commit`] and [`Store::submit`]
//! to write, [`Store::bulk`] and [`Store::attach`] to load, [`Store::changes_since`] to follow changes. `FORMAT.md` draws
//! the files. All file operations go through [`disk`]. The modules `log`, `memtable`, `readers` and `tree` are public for
//! their own tests and examples; other crates use the items re-exported at the root.

mod across;
mod at_rest;
mod backup;
mod bulk;
mod clock;
mod direct;
pub mod disk;
mod engine;
mod error;
mod examine;
mod fail_stop;
mod feed;
mod fold;
mod folder;
mod inspect;
mod key;
mod large;
pub mod log;
pub mod memtable;
mod options;
mod places;
pub mod readers;
mod snapshot;
mod stats;
mod store;
mod transaction;
pub mod tree;

pub use across::Across;
pub use backup::{Compacted, RestoreProgress, Restored, WatchRestore};
pub use bulk::{BulkEntries, BulkTree};
pub use clock::Clock;
pub use direct::{DirectReads, Got, Outcome};
pub use engine::limits::RANGES_MAX;
pub use error::Error;
pub use examine::Examination;
pub use feed::{Change, ChangeReader, Changeset};
pub use fold::{Fold, FoldView, Folded, Further, RowChange};
pub use inspect::Inventory;
pub use key::{Direction, Entry, KeyRange, TREE_NAME_BYTES_MAX, TreeId, Version, Visit};
pub use large::{CHANGED_LAST_MAX, Changed, LargeTx, Operand, Revise};
pub use options::{Durability, Options};
pub use snapshot::{Reader, Snapshot};
pub use stats::{Recovery, Stats};
pub use store::Store;
pub use transaction::{Abort, Commit, Submit, Transaction, Tx};
pub use tree::{
    BulkCursor, Copied, Entries, Progress, Report, SortedEntries, SortedEntry, SortedRun, SortedRunWriter, Sorter,
    TreeInfo, TreeStat, VisitEntries, Watch,
};
