//! State of one open tree file that views, writers and builders share: the map, the allocation of pages, the checked
//! and the unreadable pages, the held views, and the owner of all syncs.
//!
//! It imports `tree::format` and `disk`. It must not know how trees are read or built.

pub(super) mod checked;
pub(super) mod held;
pub(super) mod refused;
pub(super) mod shared;
pub(super) mod space;
pub(super) mod sync_owner;
