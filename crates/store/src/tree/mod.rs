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
//! - Damaged pages yield [`StoreError::Corrupt`](crate::StoreError::Corrupt) or correct data, never a panic or a hang: no byte of
//!   a page is returned before its checksum was computed once since the file was opened (`state/checked.rs`).
//!
//! Rooms, the lowest first: `format` (the bytes of a page), `state` (what an open file shares), `read`, `build` (new
//! pages). The files beside them serve the file as a whole: opening, checkpoints, bulk builds, copies, verification.
//!
//! It imports `base`, `disk` and the log's positions. The log, the memtable and the coordination of writers belong to the
//! engine. `FORMAT.md` draws the layout of every page.

mod build;
mod bulk;
mod copy;
mod file;
mod format;
mod opening;
mod pinned;
mod read;
mod state;
mod verify;
mod verify_space;
mod writer;

pub use crate::base::limits::{KEY_BYTES_MAX, TREES_MAX, VALUE_BYTES_MAX};
pub use build::chunk_writer::Pace;
pub(crate) use build::merge::Cut;
pub use bulk::{BulkBuilder, BulkCursor, BulkRoot};
pub use copy::{Copied, CopyProgress, Watch};
pub(crate) use copy::{Target, copy, given_up, measure};
pub(crate) use file::FreePages;
pub use file::TreeFile;
pub use format::meta::Meta;
pub(crate) use format::page::overflow_pages;
pub use format::page::{PAGE_BYTES, PageNo, VALUE_INLINE_MAX};
pub use opening::Opening;
pub(crate) use read::direct::{Lack, LastPages, SearchOutcome};
pub(crate) use read::entries::{LeafEntries, Leaves, WaitLimits};
pub use read::view::{TreeInfo, TreeView};
pub(crate) use read::walk::Beginning;
pub use verify::{SpaceStat, TreeReport, TreeStat};
pub use writer::TreeWriter;
