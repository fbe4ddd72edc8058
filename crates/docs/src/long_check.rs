//! Long documents and general schemas: one check can take a millisecond or more, so it is done once for a write, and never on
//! the committing thread, which works for all.
//!
//! Two conditions are known only when a write is prepared: that a schema takes long even for a short document, and that the
//! stored document that a short patch is merged into is large. Where others wait (on an event loop, or while all commits wait),
//! the check of a short document ends after [`SHORT_CHECK_STEPS`], and an event loop does not read a stored document of
//! [`LARGE_BYTES`]. The loop then hands the write to another thread ([`crate::TakeLong`]), which treats it like a long
//! document.
//!
//! A write that conflicts with concurrent transactions is prepared again by the committer. If the document is the same, it is
//! known to fit. If a patch was merged into a changed document, the result is not checked: the write is rejected, and the
//! client may send it again. While a long document is read and checked, the check asks repeatedly whether the client still
//! waits.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::LazyLock;

use crate::collection::Collection;
use crate::error::WriteError;
use crate::row::{Plain, Row};
use crate::schema;
use crate::statement;
use crate::writing::Question;
use binjson::Document;

/// A document whose text is at least this long is checked against a general schema only where nobody waits. Most checks of 4
/// KiB take 15 µs; arrays nested 120 deep under a recursive schema take 1.5 ms, and 6 ms for 16 KiB.
pub const LONG_CHECK_BYTES: usize = 4 << 10;

/// Steps of the check of a shorter document before it counts as long: about a millisecond.
pub(crate) const SHORT_CHECK_STEPS: u64 = schema::QUESTION_STEPS;

/// A write with this many bytes of JSON, or that finds a stored document of this size, is too long for an event loop: reading
/// or merging it takes about a millisecond.
pub const LARGE_BYTES: usize = 256 << 10;

/// Limit in bytes for a write, and for the document that it finds, to be prepared again while all commits wait: some
/// milliseconds.
pub(crate) const AGAIN_BYTES_MAX: usize = 1 << 20;

/// Random keys of the hashes, so that a client cannot make two documents with one hash.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);

/// The state of a write's check: where it runs, when it is cancelled, and results of earlier preparations.
#[derive(Default)]
pub(crate) struct LongCheck {
    /// Hashes of the text that passed the check.
    fits: Option<[u64; 2]>,
    /// The number that was generated for its key.
    pub(crate) number: Option<i64>,
    /// The write has been prepared before.
    pub(crate) is_again: bool,
    /// An event loop prepares it: it starts no long check and reads no large document.
    pub(crate) is_on_loop: bool,
    /// Set if the write turned out to be too long for an event loop.
    pub(crate) is_long: bool,
    /// Asks whether the write is cancelled, while it is read and checked.
    pub(crate) over: Option<Question>,
}

impl LongCheck {
    /// The state for a write that is prepared for the first time.
    pub(crate) fn asking(over: Option<Question>) -> LongCheck {
        LongCheck { over, ..LongCheck::default() }
    }

    /// The same on an event loop.
    pub(crate) fn on_loop(over: Option<Question>) -> LongCheck {
        LongCheck { is_on_loop: true, ..LongCheck::asking(over) }
    }

    /// The state for a write inside a statement, which this thread may prepare while others wait.
    pub(crate) fn in_share() -> LongCheck {
        LongCheck {
            is_again: statement::is_in_share(),
            is_on_loop: statement::is_in_share_of_loop(),
            ..LongCheck::default()
        }
    }

    /// The state for a write inside a larger transaction.
    pub(crate) fn within(is_on_loop: bool, is_again: bool) -> LongCheck {
        LongCheck { is_on_loop, is_again, ..LongCheck::default() }
    }

    /// Marks the write as prepared: a further preparation is done by the committing thread.
    pub(crate) fn was_prepared(&mut self) {
        (self.is_again, self.is_on_loop) = (true, false);
    }

    /// Must be called between two parts of the work that take time proportional to the document's length. Rejects a cancelled
    /// write.
    #[inline]
    pub(crate) fn go_on(&self) -> Result<(), WriteError> {
        if self.over.as_ref().is_some_and(|over| over()) { Err(WriteError::Busy) } else { Ok(()) }
    }

    /// Rejects a write that is too long to be prepared again.
    #[inline]
    pub(crate) fn bound_again(&self, bytes: usize) -> Result<(), WriteError> {
        if self.is_again && bytes > AGAIN_BYTES_MAX { Err(WriteError::Busy) } else { Ok(()) }
    }

    /// The same for the stored document that the write finds; also rejects what is too long for an event loop.
    #[inline]
    pub(crate) fn bound_stored(&mut self, bytes: usize) -> Result<(), WriteError> {
        if self.is_on_loop && bytes >= LARGE_BYTES {
            self.is_long = true;
            return Err(WriteError::Busy);
        }
        self.bound_again(bytes)
    }
}

impl Collection {
    /// Whether documents are checked by the general schema checker.
    pub(crate) fn checks_fully(&self) -> bool {
        self.schema.as_ref().is_some_and(|schema| !schema.is_plain()) || self.announces_schema()
    }

    /// Checks a write's document: see [`Collection::check`].
    #[inline]
    pub(crate) fn check_write<'d>(
        &self,
        document: Document<'d>,
        row: &Row<'_, 'd>,
        long_check: &mut LongCheck,
    ) -> Result<Plain<'d>, WriteError> {
        if self.checks_fully() { self.check_fully(document, row, long_check) } else { self.check(document, row) }
    }

    #[inline(never)]
    fn check_fully<'d>(
        &self,
        document: Document<'d>,
        row: &Row<'_, 'd>,
        long_check: &mut LongCheck,
    ) -> Result<Plain<'d>, WriteError> {
        if long_check.is_on_loop && document.text().len() >= LONG_CHECK_BYTES {
            long_check.is_long = true;
            return Err(WriteError::Busy);
        }
        // A write with a cancellation check is not on a thread for which others wait.
        if document.text().len() < LONG_CHECK_BYTES && long_check.over.is_none() {
            match schema::within(SHORT_CHECK_STEPS, || self.check(document, row)) {
                Some(checked) => return checked,
                None if long_check.is_on_loop => {
                    long_check.is_long = true;
                    return Err(WriteError::Busy);
                }
                None => {}
            }
        }
        self.check_long(document, row, long_check)
    }

    #[cold]
    fn check_long<'d>(
        &self,
        document: Document<'d>,
        row: &Row<'_, 'd>,
        long_check: &mut LongCheck,
    ) -> Result<Plain<'d>, WriteError> {
        let hashes = KEYS.each_ref().map(|key| key.hash_one(document.text()));
        if long_check.fits == Some(hashes) {
            return self.check_beside_schema(document, row);
        }
        if long_check.is_again {
            return Err(WriteError::Busy);
        }
        let over = &long_check.over;
        let plain = schema::asking(over.as_ref(), || self.check(document, row)).map_err(|error| match over {
            Some(over) if over() => WriteError::Busy,
            _ => error,
        })?;
        long_check.fits = Some(hashes);
        Ok(plain)
    }
}
