//! Expiry by last write: documents that expire a duration after their last write.
//!
//! Each write marks the stored document with the second in which it was prepared, rounded up ([`mark_at`]; `binjson` keeps the
//! mark beside the JSON), and an index has an entry for it, as for a time field. So the time is as durable as the document, and
//! the sweep finds expired documents through the index. A write that changes nothing else still updates the mark if its second
//! differs.
//!
//! Documents that are older than the rule have no mark. If the rule was removed and declared again, documents may have an old
//! mark. The catalog stores when recording began, and both count as written at that time. They are not rewritten; documents
//! without a mark have index entries without a time.
//!
//! The mark is the system's time at each write. If the clock was wrong at a write, the document expires earlier or later by the
//! same amount. If the clock is ahead by more than the duration, existing documents are removed.

/// The name that stands for the time of the last write in place of a field. No document has a field of this name.
pub const LAST_WRITE: &str = binjson::MARK_NAME;

/// The treatment of documents without a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutTime {
    /// They never expire.
    Never,
    /// No document has expired yet, because recording began less than the duration ago.
    Nothing,
    /// They have expired, as have all with a time before the recording began.
    All,
}

/// The mark of a document that is written now, rounded up so that no document expires before its duration is over.
pub(crate) fn mark_at(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or_default().div_ceil(1000).min(binjson::MARK_MAX)
}
