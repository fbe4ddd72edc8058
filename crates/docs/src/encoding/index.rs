//! The value of an index entry: the stored JSON of the index's included fields, and the indexed numbers that the key does not tell.
//!
//! ```text
//!  for each included field, in the index's order:   length (varint.rs) | that many bytes of JSON text
//!  then for each indexed field, if one has such a number:   length | WRITTEN (order.rs) | JSON text
//! ```
//!
//! Length 0 is a missing field, or an indexed field that the key tells. The numbers in question are whole and are not written in
//! plain digits: 5.0, 1e2, -0. Equal values have one place in an index, so such a number has the key of the integer; the document
//! keeps it as sent. Nearly all values end after the included fields, and are empty if there are none. A query that
//! needs only these fields and the key's fields reads no document.

use super::key::whole;
use super::order::WRITTEN;
use super::varint;

/// Format of index entries, in the catalog's rows: entries of other formats are built again when a folder is opened. Before
/// format 2 the key had the kind of a number.
pub(crate) const FORMAT: u64 = 2;

/// The included fields of one entry, in the index's order: returns each field's JSON text, `None` if it is missing.
#[derive(Clone, Copy, Debug)]
pub struct IncludedValues<'a> {
    rest: &'a [u8],
}

impl<'a> IncludedValues<'a> {
    /// Reads an entry's value.
    #[inline]
    pub fn new(value: &'a [u8]) -> Self {
        IncludedValues { rest: value }
    }

    /// The next field; `Err` if the value is damaged or has no more fields.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "an iterator of results of options would hide the end")]
    pub fn next(&mut self) -> Result<Option<&'a [u8]>, DamagedEntry> {
        let length = self.length()?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(DamagedEntry)?;
        self.rest = rest;
        Ok(if text.is_empty() { None } else { Some(text) })
    }

    /// The numbers as written, which follow after `included` more fields: one value for each indexed field, a missing one if the key
    /// alone gives the number. `None` if the entry has no such number.
    #[inline(always)]
    pub(crate) fn written(mut self, included: usize) -> Result<Option<Self>, DamagedEntry> {
        for _ in 0..included {
            self.next()?;
        }
        Ok((!self.rest.is_empty()).then_some(self))
    }

    /// The value at a place, counted from the next one; `None` if it is missing, or there are fewer.
    #[cold]
    pub(crate) fn at(mut self, place: usize) -> Option<&'a [u8]> {
        for _ in 0..place {
            self.next().ok()?;
        }
        self.next().ok()?
    }

    /// Most lengths fit one byte: `varint::take` has this case too, but takes more instructions here.
    #[inline(always)]
    fn length(&mut self) -> Result<usize, DamagedEntry> {
        match self.rest.split_first() {
            Some((&length, rest)) if length < 0x80 => {
                self.rest = rest;
                Ok(usize::from(length))
            }
            _ => self.long_length(),
        }
    }

    #[cold]
    fn long_length(&mut self) -> Result<usize, DamagedEntry> {
        varint::take(&mut self.rest).and_then(|length| usize::try_from(length).ok()).ok_or(DamagedEntry)
    }
}

/// The JSON text of a number as written, if these are the bytes of one.
#[inline]
pub(crate) fn written_number(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(&[WRITTEN])
}

/// The error for an index entry whose bytes break the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedEntry;

/// Appends one included field to an entry's value; empty text is a missing field.
#[inline]
pub fn include(text: &[u8], value: &mut Vec<u8>) {
    varint::push(value, text.len() as u64);
    value.extend_from_slice(text);
}

/// Appends the indexed fields, given as JSON texts (empty: missing, or the primary key), after the included fields.
#[inline]
pub fn include_written<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone, value: &mut Vec<u8>) {
    if !fields.clone().any(is_otherwise_written) {
        return;
    }
    for text in fields {
        match is_otherwise_written(text) {
            true => {
                varint::push(value, text.len() as u64 + 1);
                value.push(WRITTEN);
                value.extend_from_slice(text);
            }
            false => include(&[], value),
        }
    }
}

/// Whether a JSON text is a number with the key of an integer, but not the integer's digits.
#[inline]
fn is_otherwise_written(text: &[u8]) -> bool {
    match text {
        b"-0" => true,
        [b'-' | b'0'..=b'9', rest @ ..] if rest.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => {
            let real = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            real.and_then(whole).is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks whether an entry stores a number as written (`told` is false) or leaves it to the key.
    #[track_caller]
    fn check(text: &str, told: bool) {
        let mut value = Vec::new();
        include(b"1.0", &mut value);
        include_written([&b"\"5.0\""[..], text.as_bytes(), b""].into_iter(), &mut value);
        let found = IncludedValues::new(&value).written(1).unwrap();
        assert_eq!(found.is_none(), told, "{text}");
        if let Some(found) = found {
            assert_eq!((found.at(0), found.at(2), found.at(3)), (None, None, None));
            assert_eq!(found.at(1).and_then(written_number), Some(text.as_bytes()));
        }
        assert!(IncludedValues::new(&value).written(5).is_err());
    }

    #[test]
    fn an_entry_has_the_whole_numbers_that_are_not_written_in_plain_digits() {
        for text in ["5", "-3", "0", "5.5", "1e300", "-1e-3", "9223372036854775808.0", "true", "[1.0]", "", "1e999"] {
            check(text, true);
        }
        for text in ["5.0", "1e2", "50e-1", "-0", "-0.0", "0E9", "-9223372036854775808.0", "9007199254740993.0"] {
            check(text, false);
        }
    }

    proptest! {
        #[test]
        fn included_fields_come_back_in_order(fields in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4)) {
            let mut value = Vec::new();
            for field in &fields {
                include(field, &mut value);
            }
            let mut included = IncludedValues::new(&value);
            for field in &fields {
                prop_assert_eq!(included.next().unwrap().unwrap_or_default(), &field[..]);
            }
            prop_assert_eq!(included.next(), Err(DamagedEntry));
        }
    }
}
