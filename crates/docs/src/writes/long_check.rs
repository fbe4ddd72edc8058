//! Checks of long documents and general schemas. One can take a millisecond or more, so it is done once for each write, and
//! never on the committing thread, for which all commits wait.
//!
//! Two conditions show only while a write is prepared: the schema check takes long even for a short document, or a short patch
//! is merged into a large stored document. On an event loop, and while all commits wait, the check of a short document ends
//! after [`SHORT_CHECK_STEPS`], and an event loop does not read a stored document of [`LARGE_BYTES`] or more. The event loop
//! then passes the write to another thread ([`crate::TakeLong`]), which treats it like a write of a long document.
//!
//! A write that conflicts with concurrent transactions is prepared again by the committer. If the resulting document is the
//! same, it is known to fit. If a patch was merged into a changed document, the result is not checked again: the write is
//! refused, and the client may repeat it. While a long document is read and checked, the check tests repeatedly whether the
//! write is cancelled.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::LazyLock;

use super::collection::Collection;
use super::share;
use crate::encoding::{Plain, Row};
use crate::error::WriteError;
use binjson::StoredDocument;
use schema::CancelCheck;

/// A document whose text is at least this long is checked against a general schema only on a thread for which no others wait.
/// Most checks of 4 KiB take 15 µs; arrays nested 120 deep under a recursive schema take 1.5 ms, and 6 ms for 16 KiB.
pub const LONG_CHECK_BYTES: usize = 4 << 10;

/// Steps of the check of a shorter document before it counts as long: about a millisecond.
pub(crate) const SHORT_CHECK_STEPS: u64 = schema::CANCEL_CHECK_STEPS;

/// A write with this many bytes of JSON, or that finds a stored document of this size, is too long for an event loop: reading
/// or merging it takes about a millisecond.
pub const LARGE_BYTES: usize = 256 << 10;

/// A write is prepared again while all commits wait (some milliseconds) only if it, and the stored document, have at most this
/// many bytes.
pub(crate) const AGAIN_BYTES_MAX: usize = 1 << 20;

/// Random keys of the hashes, so that a client cannot construct two documents with the same hash.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);

/// The state of a write's check: the kind of thread, the cancellation check, and results of earlier preparations.
#[derive(Default)]
pub(crate) struct LongCheck {
    /// Hashes of the text that passed the check.
    fits: Option<[u64; 2]>,
    /// The number that was generated for its key.
    pub(crate) number: Option<i64>,
    /// The write has been prepared before.
    pub(crate) is_again: bool,
    /// An event loop prepares the write, so no long check is started and no large document is read.
    pub(crate) is_on_loop: bool,
    /// Set if the write turned out to be too long for an event loop.
    pub(crate) is_long: bool,
    /// Called while the document is read and checked: whether the write is cancelled.
    pub(crate) over: Option<CancelCheck>,
}

impl LongCheck {
    /// The state for a write that is prepared for the first time.
    pub(crate) fn with_cancel_check(over: Option<CancelCheck>) -> LongCheck {
        LongCheck { over, ..LongCheck::default() }
    }

    /// The same on an event loop.
    pub(crate) fn on_loop(over: Option<CancelCheck>) -> LongCheck {
        LongCheck { is_on_loop: true, ..LongCheck::with_cancel_check(over) }
    }

    /// The state for a write inside a statement. Others may wait for this thread.
    pub(crate) fn in_share() -> LongCheck {
        LongCheck { is_again: share::is_in_share(), is_on_loop: share::is_in_share_of_loop(), ..LongCheck::default() }
    }

    /// The state for a write inside a larger transaction.
    pub(crate) fn within(is_on_loop: bool, is_again: bool) -> LongCheck {
        LongCheck { is_on_loop, is_again, ..LongCheck::default() }
    }

    /// Marks the write as prepared: a further preparation is done by the committing thread.
    pub(crate) fn was_prepared(&mut self) {
        (self.is_again, self.is_on_loop) = (true, false);
    }

    /// Refuses a cancelled write. Must be called between parts of the work whose time is proportional to the document's length.
    #[inline]
    pub(crate) fn go_on(&self) -> Result<(), WriteError> {
        if self.over.as_ref().is_some_and(|over| over()) { Err(WriteError::Busy) } else { Ok(()) }
    }

    /// Refuses a write that is too long to be prepared again.
    #[inline]
    pub(crate) fn bound_again(&self, bytes: usize) -> Result<(), WriteError> {
        if self.is_again && bytes > AGAIN_BYTES_MAX { Err(WriteError::Busy) } else { Ok(()) }
    }

    /// The same for the stored document. Also refuses a document that is too long for an event loop.
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
        document: StoredDocument<'d>,
        row: &Row<'_, 'd>,
        long_check: &mut LongCheck,
    ) -> Result<Plain<'d>, WriteError> {
        if self.checks_fully() { self.check_fully(document, row, long_check) } else { self.check(document, row) }
    }

    #[inline(never)]
    fn check_fully<'d>(
        &self,
        document: StoredDocument<'d>,
        row: &Row<'_, 'd>,
        long_check: &mut LongCheck,
    ) -> Result<Plain<'d>, WriteError> {
        if long_check.is_on_loop && document.text().len() >= LONG_CHECK_BYTES {
            long_check.is_long = true;
            return Err(WriteError::Busy);
        }
        // If there is a cancellation check, no others wait for this thread.
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
        document: StoredDocument<'d>,
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
        let plain =
            schema::with_cancel_check(over.as_ref(), || self.check(document, row)).map_err(|error| match over {
                Some(over) if over() => WriteError::Busy,
                _ => error,
            })?;
        long_check.fits = Some(hashes);
        Ok(plain)
    }
}
