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
//!
//! Rooms, the lowest first; a room imports only rooms before it: `base`, [`disk`], [`log`], [`memtable`], [`tree`] and
//! `sort`, `engine`, `store` (the public interface), `maintenance` (whole stores).

mod base;
pub mod disk;
mod engine;
pub mod log;
mod maintenance;
pub mod memtable;
mod sort;
mod store;
pub mod tree;

pub use base::clock::Clock;
pub use base::error::StoreError;
pub use base::key::{Direction, Entry, KeyRange, TREE_NAME_BYTES_MAX, TreeId, Version, Visit};
pub use base::limits::RANGES_MAX;
pub use base::readers;
pub use engine::feed::reader::{Change, ChangeReader, Changeset};
pub use engine::load::bulk::{BulkEntries, BulkTree};
pub use engine::load::large::LargeTx;
pub use engine::options::{Durability, StoreOptions};
pub use engine::read::across::Across;
pub use engine::read::direct::{DirectReads, Got, ReadOutcome};
pub use engine::read::entries::{Entries, VisitEntries};
pub use engine::read::snapshot::{Reader, StoreSnapshot};
pub use engine::stats::{Recovery, Stats};
pub use engine::write::fold::{Fold, FoldView, Folded, Further, RowChange};
pub use engine::write::transaction::{Abort, Commit, RetriableTransaction, Submit, Tx};
pub use maintenance::compact::Compacted;
pub use maintenance::examine::Examination;
pub use maintenance::inspect::Inventory;
pub use maintenance::restore::{RestoreProgress, WatchRestore};
pub use sort::{SortedEntries, SortedEntry, SortedRun, SortedRunWriter, Sorter};
pub use store::Store;
pub use tree::{BulkCursor, Copied, CopyProgress, TreeInfo, TreeReport, TreeStat, Watch};
