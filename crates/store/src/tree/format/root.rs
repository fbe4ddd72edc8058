//! The root of a tree.

use super::page::PageNo;

/// Root page, level and entry count of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tree) struct Root {
    /// `PageNo::NONE` in an empty tree.
    pub(in crate::tree) page: PageNo,
    pub(in crate::tree) level: u8,
    pub(in crate::tree) entries: u64,
}
