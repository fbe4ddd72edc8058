//! The root of a tree.

use super::page::PageNo;

/// Root page, level and entry count of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// `PageNo::NONE` in an empty tree.
    pub(super) page: PageNo,
    pub(super) level: u8,
    pub(super) entries: u64,
}
