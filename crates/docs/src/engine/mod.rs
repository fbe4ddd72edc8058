//! The storage engine below documents and queries, under names that do not depend on it. Other crates reach the engine only
//! through this room.
//!
//! - [`ReadView`] and [`WriteTransaction`]: the two traits through which queries read and writes happen, so most of this crate
//!   knows no type of the engine.
//! - The engine's own types, bound to names in `binding.rs`, the only file that names the engine's crate. The engine is chosen
//!   at compile time, so these types are called directly, not through a trait object.
//! - [`ErrorKind`]: what a [`StoreError`] means. Callers outside this crate decide by it and by nothing else.
//!
//! Another engine needs a `binding.rs` and an `adapter.rs` (the traits for its types) of its own, with these items:
//!
//! | items | what this crate requires of them |
//! |---|---|
//! | [`TreeId`], [`KeyRange`], [`Direction`], [`Entry`], [`Version`] | named trees of byte strings in byte order; versions are numbers that ascend with each commit |
//! | [`StoreSnapshot`], [`Reader`], [`Across`], [`Entries`] | reads of one version, which no write delays; [`ReadView`] for `StoreSnapshot` and `Across`; whole leaves and reads by several threads may be left out, as the defaults of [`ReadView`] do |
//! | [`Tx`], [`RetriableTransaction`], [`Submit`], [`Commit`], [`Abort`] | serializable transactions that are prepared again after a conflict, and return at once if they are submitted; [`WriteTransaction`] for `Tx` |
//! | [`Fold`], [`FoldView`], [`Folded`], [`Further`], [`RowChange`] | operands merged into a row at the commit, so that writes to one row do not conflict, and rows that follow from merged rows |
//! | [`LargeTx`] | a transaction of any size beside running writes, which refuses writes of others to what it has read; [`WriteTransaction`] for it |
//! | [`Sorter`], [`SortedRun`], [`SortedRunWriter`], [`SortedEntries`], [`BulkTree`], [`BulkEntries`], [`BulkCursor`] | sorting beyond memory; trees built from sorted entries, all visible at once |
//! | [`ChangeReader`], [`LoggedChange`] | all changes since a version, transaction by transaction |
//! | [`DirectReads`], [`Got`], [`ReadOutcome`] | reads past the page cache; `Store::direct_reads` may return `None` |
//! | [`Store`], [`StoreOptions`], [`Durability`], [`Recovery`], [`in_memory`] | opening a folder; settings, each with a default; `server` divides its memory among the settings of [`StoreOptions`] |
//! | [`Stats`] | numbers for metrics and health; numbers without a meaning in an engine are 0 |
//! | [`CopyProgress`], [`Copied`], [`Examination`], [`Compacted`] | backup, restoring, verification and compaction of a whole folder, with their progress and results |
//! | [`StoreError`], by [`Classified`] | this crate makes and matches `Busy`, `Pinned`, `Unknown`, `Full`, `Aborted`, `Refused`, `Limit`, `Io`, `NotInMemory` and `Closed`; in `Limit`, the name of a bound of one transaction begins with [`OF_TRANSACTION`] |
//! | [`major_faults`], [`RANGES_MAX`], [`TREE_NAME_BYTES_MAX`] | page faults of a thread that waited for the disk (0 if unknown); bounds |

mod adapter;
mod binding;
mod commit;
mod error_kind;
mod view;

pub use binding::{
    Abort, Across, BulkCursor, BulkEntries, BulkTree, ChangeReader, Commit, Compacted, Copied, CopyProgress,
    DirectReads, Direction, Durability, Entries, Entry, Examination, Fold, FoldView, Folded, Further, Got, KeyRange,
    LargeTx, LoggedChange, RANGES_MAX, ReadOutcome, Reader, Recovery, RetriableTransaction, RowChange, SortedEntries,
    SortedRun, SortedRunWriter, Sorter, Stats, Store, StoreError, StoreOptions, StoreSnapshot, Submit,
    TREE_NAME_BYTES_MAX, TreeId, Tx, Version, in_memory, major_faults,
};
pub(crate) use commit::commit;
pub use error_kind::{Classified, ErrorKind, OF_TRANSACTION};
pub use view::{ReadView, STAMP_BYTES, Within, WriteTransaction};
