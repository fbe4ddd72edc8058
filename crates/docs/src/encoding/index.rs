//! The value of an index entry: the stored JSON of the index's included fields.
//!
//! ```text
//!  for each included field, in the index's order:   length (varint.rs) | that many bytes of JSON text
//! ```
//!
//! Length 0 is a missing field. Without included fields the value is empty. A query that needs only these fields and the key's
//! fields reads no document.

use super::varint;

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

/// The error for an index entry whose bytes break the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedEntry;

/// Appends one included field to an entry's value; empty text is a missing field.
#[inline]
pub fn include(text: &[u8], value: &mut Vec<u8>) {
    varint::push(value, text.len() as u64);
    value.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
