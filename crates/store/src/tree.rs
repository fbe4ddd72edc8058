//! The tree file: copy-on-write B+trees in 4 KB pages, read through a map, changed by checkpoints only.
//!
//! What it promises:
//!
//! - A [`TreeView`] is one consistent set of trees and never changes. While any view that reaches a page lives, the page
//!   is not written again, so that slices taken from a view stay right without locks.
//! - Changes become visible only by a meta page ([`Meta`]), written after everything it reaches is synced. A crash at
//!   any point leaves the trees of the last meta page whole.
//! - Pages freed by checkpoint N are reused only when no view older than N lives and when the meta page before N has been
//!   overwritten: so either of the two meta pages on disk can be recovered.
//! - Damaged pages give [`Error::Corrupt`](crate::Error::Corrupt) or right data, never a panic or a hang: no byte of a page is
//!   handed out before its checksum was computed once since the file was opened (`checked.rs`).
//!
//! The log, the memtable and who may write when are the engine's. The layout of every page is drawn in `FORMAT.md`.

mod assembler;
mod bulk;
mod catalog;
mod checked;
mod chunk_writer;
mod copy;
mod cursor;
mod direct;
mod entries;
mod file;
mod held;
mod merge;
mod meta;
mod node;
mod opening;
mod output;
mod page;
mod pinned;
mod portions;
mod prefetch;
mod residency;
mod root;
mod run;
mod shared;
mod sort_merge;
mod sort_part;
mod sort_run;
mod sorter;
mod space;
mod space_map;
mod sync_owner;
mod verify;
mod verify_space;
mod view;
mod walk;
mod writer;

pub use bulk::{BulkBuilder, BulkCursor, BulkRoot};
pub use chunk_writer::Pace;
pub use copy::{Copied, Progress, Watch};
pub(crate) use copy::{Target, copy, given_up, measure};
pub use cursor::Cursor;
pub(crate) use direct::{Lack, Part, Told};
pub use entries::{Entries, VisitEntries};
pub(crate) use file::Runs;
pub use file::TreeFile;
pub(crate) use merge::{Cut, check_limits};
pub use meta::Meta;
pub(crate) use node::head;
pub use opening::Opening;
pub(crate) use page::overflow_pages;
pub use page::{KEY_BYTES_MAX, PAGE_BYTES, PageNo, VALUE_BYTES_MAX, VALUE_INLINE_MAX};
pub(crate) use prefetch::{prefetch, prefetch_all};
pub use sorter::{SortedEntries, SortedEntry, SortedRun, SortedRunWriter, Sorter};
pub use verify::{Report, SpaceStat, TreeStat};
pub use view::{TreeInfo, TreeView};
pub(crate) use walk::Beginning;
pub use writer::TreeWriter;

/// Trees that one file can hold: the view's table of roots is an array up to the highest id.
pub const TREES_MAX: u32 = 65_536;
