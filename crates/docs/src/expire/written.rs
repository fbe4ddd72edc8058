//! Expiry by last write: documents that expire a duration after their last write.
//!
//! Each write marks the stored document with the second in which it was prepared, rounded up ([`mark_at`]; `binjson` keeps the
//! mark beside the JSON), and an index has an entry for it, as for a time field. So a document's time is as durable as the
//! document, and the sweep finds expired documents. A write that changes nothing else still updates the mark if the second has
//! changed.
//!
//! Documents from before the rule have no mark; documents from before a pause of the rule have an old one. The catalog stores
//! when recording began: both count as written then. They are not rewritten for it; the index gets entries without a time.
//!
//! The mark is the system's time at each write. If the clock was wrong, the document expires earlier or later by as much. If it
//! was ahead by more than the duration, existing documents have been removed.

/// The name that stands for the time of the last write in place of a field. No document has a field of this name.
pub const LAST_WRITE: &str = binjson::MARK_NAME;

/// The treatment of documents without a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutTime {
    /// They never expire.
    Never,
    /// Nothing has expired yet: recording began less than the duration ago.
    Nothing,
    /// They have expired, and so have all with an older time.
    All,
}

/// The mark of a document that is written now. Rounded up: nothing expires before its duration is over.
pub(crate) fn mark_at(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or_default().div_ceil(1000).min(binjson::MARK_MAX)
}
