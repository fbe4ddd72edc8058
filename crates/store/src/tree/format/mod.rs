//! What the bytes of a page mean: header and checksum, nodes, the meta page.
//!
//! It imports `base`, and of the log only the position that a meta page stores. It must not know files, maps or the
//! allocation of pages. `FORMAT.md` draws the layouts.

pub(super) mod meta;
pub(super) mod node;
pub(super) mod page;
pub(super) mod root;
