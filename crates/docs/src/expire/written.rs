//! Documents that go so long after their last write.
//!
//! Each write marks the document that it stores with the second in which it was prepared, rounded up ([`mark_at`]; `binjson` keeps
//! such a mark beside the JSON), and an index has an entry for each, as for a field of times: so a document's time is as durable as
//! the document, and the sweep finds what has come due. A write that changes nothing else is one too, if the second is another.
//!
//! What was there before the rule has no mark, and what was written before a pause of the rule an old one. The catalog says since
//! when times are noted: both count as written then. Nothing is written anew for it, the index gets entries without a time.
//!
//! The clock is what the system says at each write. One that was wrong by so much has a document go earlier or later by so much;
//! where it was wrong by more than the duration, and forward, what was there is gone.

/// The name in the place of a field's where it is the time of the last write. No document has such a field.
pub const LAST_WRITE: &str = binjson::MARK_NAME;

/// What is with documents that have no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutTime {
    /// They stay for ever.
    Never,
    /// Times are not noted for so long yet that anything can have come due.
    Nothing,
    /// They have come due, and so has all whose time is older.
    All,
}

/// The mark of a document that is written now. Rounded up: nothing goes before its duration is over.
pub(crate) fn mark_at(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or_default().div_ceil(1000).min(binjson::MARK_MAX)
}
