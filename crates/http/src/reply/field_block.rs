//! Header fields shared by many replies: checked once, then copied in one piece.

use crate::reply::composer::append_field;
use std::fmt;

/// Header fields that were checked: [`crate::Reply::fields`] adds them all with one copy. At most 16 KB, the limit for the fields
/// of a reply.
///
/// ```
/// let block = http::FieldBlock::new([("X-Content-Type-Options", "nosniff")]).unwrap();
/// # fn reply(mut reply: http::Reply<'_>, block: &http::FieldBlock) {
/// reply.fields(block);
/// reply.send(http::Status(200), "text/html", b"<p>");
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldBlock {
    /// Whole lines with their line ends.
    lines: Box<[u8]>,
}

/// A header field that cannot be added: it would break the head, contradict the server's own fields (`Content-Length`,
/// `Content-Type`, `Connection`, …), or exceed the limit of all fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldBlockFault {
    /// The field's name.
    pub name: String,
}

impl fmt::Display for FieldBlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the header field {:?} is not one that can be added: its name is no token or the server's own, its value has a control byte, \
             or all fields have more than 16 KB",
            self.name
        )
    }
}

impl std::error::Error for FieldBlockFault {}

impl FieldBlock {
    /// A block of these fields, names and values, in this order; or the first that cannot be added.
    pub fn new<'f>(fields: impl IntoIterator<Item = (&'f str, &'f str)>) -> Result<FieldBlock, FieldBlockFault> {
        let mut lines = Vec::new();
        for (name, value) in fields {
            if !append_field(&mut lines, name, value) {
                return Err(FieldBlockFault { name: name.to_owned() });
            }
        }
        Ok(FieldBlock { lines: lines.into() })
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(crate) fn lines(&self) -> &[u8] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_lines_of_its_fields() {
        let block = FieldBlock::new([("A", "b"), ("C-D", "")]).unwrap();
        assert_eq!(block.lines(), b"A: b\r\nC-D: \r\n");
        assert!(!block.is_empty() && FieldBlock::default().is_empty());
    }

    #[test]
    fn fields_that_would_break_the_head_are_faults() {
        let long = "b".repeat(17 << 10);
        for (name, value) in
            [("A", "b\r\nC: d"), ("A b", "c"), ("", "c"), ("Content-Length", "5"), ("A", long.as_str())]
        {
            assert_eq!(FieldBlock::new([("X", "y"), (name, value)]), Err(FieldBlockFault { name: name.to_owned() }));
        }
    }
}
