//! The tree file: copy-on-write B+trees in 4 KB pages, read through a map, changed by checkpoints only.
//!
//! Guarantees:
//!
//! - A [`TreeView`] is one consistent set of trees and never changes. While any view that reaches a page lives, the
//!   page is not written again, so slices taken from a view stay valid without locks.
//! - Changes become visible only by a meta page ([`Meta`]), written after everything that it reaches is synced. After a
//!   crash at any point the trees of the last meta page are intact.
//! - A page freed by checkpoint N is reused only when no living view reaches it and the meta page before N has been
//!   overwritten. So either of the two meta pages on disk can be recovered.
//! - Damaged pages yield [`Error::Corrupt`](crate::Error::Corrupt) or correct data, never a panic or a hang: no byte of
//!   a page is returned before its checksum was computed once since the file was opened (`checked.rs`).
//!
//! The log, the memtable and the coordination of writers belong to the engine. `FORMAT.md` draws the layout of every page.

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

/// Maximum number of trees in one file: the view's table of roots is an array up to the highest id.
pub const TREES_MAX: u32 = 65_536;
