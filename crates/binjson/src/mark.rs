//! The mark: a number that is stored with a document and is not part of its JSON.
//!
//! ```text
//!  0     1            11
//!  +-----+------------+----------------------------+
//!  | tag | ten digits | the rest, as without one   |
//!  +-----+------------+----------------------------+
//! ```
//!
//! It is stored as digits, so that it can be read as a value like a field's: under the name [`MARK_NAME`], which no document's
//! field can have. Iteration over the fields and the document's text do not include it.

use crate::document::StoredDocument;
use crate::key::FieldName;
use crate::tag::{MARK_BYTES, TAG_MARK};
use crate::value::JsonValue;

/// The name under which a document's mark is found. No field has it: `\u0000` is refused in documents.
pub const MARK_NAME: &str = "\0mark";
/// The same in stored form.
const STORED_NAME: &[u8] = b"\\u0000mark";
/// The largest mark.
pub const MARK_MAX: u64 = 9_999_999_999;

impl<'a> StoredDocument<'a> {
    /// The document's mark.
    #[inline]
    pub fn mark(&self) -> Option<JsonValue<'a>> {
        if self.bytes.first()? & TAG_MARK == 0 {
            return None;
        }
        let digits = self.bytes.get(1..=MARK_BYTES)?;
        // A damaged mark is not returned as a value.
        digits.iter().all(u8::is_ascii_digit).then(|| JsonValue::new(self.bytes, 1, 1 + MARK_BYTES))
    }

    /// The mark, if `name` is its name: for lookups that found no field.
    #[inline]
    pub(crate) fn mark_named(&self, name: &str) -> Option<JsonValue<'a>> {
        self.mark().filter(|_| name == MARK_NAME)
    }

    /// The same for a prepared name.
    #[inline]
    pub(crate) fn mark_prepared(&self, name: &FieldName) -> Option<JsonValue<'a>> {
        self.mark().filter(|_| name.stored() == STORED_NAME)
    }
}

/// Sets the mark of the document that begins at `start` of `stored`, if it has none; at most [`MARK_MAX`].
pub fn set_mark(stored: &mut Vec<u8>, start: usize, mark: u64) {
    let Some(tag) = stored.get_mut(start).filter(|tag| **tag & TAG_MARK == 0) else { return };
    *tag |= TAG_MARK;
    let (mut digits, mut rest) = ([0; MARK_BYTES], mark.min(MARK_MAX));
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let end = stored.len();
    stored.extend_from_slice(&digits);
    stored.copy_within(start + 1..end, start + 1 + MARK_BYTES);
    stored[start + 1..=start + MARK_BYTES].copy_from_slice(&digits);
}
