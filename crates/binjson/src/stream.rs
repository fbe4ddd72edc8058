//! The end of a value whose text arrives in pieces, for readers of files that are larger than memory.

use crate::scan::{string_stop, structure_stop};

/// State of the scan of one value between two pieces of its text. Only strings and brackets are matched: the reader parses the
/// value afterwards.
#[derive(Clone, Debug, Default)]
pub struct ValueScan {
    depth: u64,
    in_string: bool,
    /// The piece before ended with the backslash of an escape.
    is_escaped: bool,
}

impl ValueScan {
    /// Number of bytes of this piece that belong to the value, if it ends within them. The first piece begins with the value; a
    /// separator or a closing bracket in its place is a value of no bytes. A number or a word ends before the next separator.
    pub fn end_in(&mut self, piece: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.in_string {
                at = self.string_end_in(piece, at)?;
                if self.depth == 0 {
                    return Some(at);
                }
            }
            let stop = if self.depth == 0 { separator(piece, at)? } else { structure_stop(piece, at)? };
            match piece[stop] {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                _ if self.depth == 0 => return Some(stop),
                _ => self.depth -= 1,
            }
            at = stop + 1;
            if self.depth == 0 && !self.in_string {
                return Some(at);
            }
        }
    }

    /// The offset after the quote that ends the string.
    fn string_end_in(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        piece.get(from)?;
        let mut at = from + usize::from(std::mem::take(&mut self.is_escaped));
        loop {
            let stop = string_stop(piece, at);
            match piece.get(stop)? {
                b'"' => {
                    self.in_string = false;
                    return Some(stop + 1);
                }
                b'\\' => {
                    self.is_escaped = stop + 1 == piece.len();
                    at = stop + 2;
                }
                // A control character is an error, which the parser reports.
                _ => at = stop + 1,
            }
        }
    }
}

/// The offset of the first byte at or after `from` that ends a number or a word, or begins another value.
fn separator(piece: &[u8], from: usize) -> Option<usize> {
    let is_separator =
        |byte: &u8| matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    piece.get(from..)?.iter().position(is_separator).map(|found| from + found)
}

#[cfg(test)]
mod tests {
    use super::ValueScan;
    use crate::skip::value_end;
    use proptest::prelude::*;

    /// The end of the value at the start of a text that comes in pieces.
    fn end(text: &[u8], piece_bytes: usize) -> Option<usize> {
        let mut scan = ValueScan::default();
        text.chunks(piece_bytes).enumerate().find_map(|(piece, bytes)| Some(piece * piece_bytes + scan.end_in(bytes)?))
    }

    #[test]
    fn a_value_ends_where_its_brackets_and_quotes_do() {
        for (text, expected) in [
            (r#"{"a":[1,"]\"}\\"],"b":{}},2"#, Some(25)),
            (r#""a\\",1"#, Some(5)),
            (r#""a\"b" "#, Some(6)),
            ("-1.5e3,", Some(6)),
            ("true]", Some(4)),
            ("[]", Some(2)),
            ("]", Some(0)),
            (",1", Some(0)),
            ("\"a\nb\"x", Some(5)),
            ("12", None),
            (r#"{"a":1"#, None),
            (r#""a\""#, None),
        ] {
            for piece_bytes in 1..=30 {
                assert_eq!(end(text.as_bytes(), piece_bytes), expected, "{text} in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn an_empty_piece_changes_nothing() {
        let mut scan = ValueScan::default();
        assert_eq!(scan.end_in(b"\"a\\"), None);
        assert_eq!(scan.end_in(b""), None);
        assert_eq!(scan.end_in(b"\"\","), Some(2));
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_end_of_the_whole(text in "[\\[{]([\\[\\]{}\",: a1]|\\\\[\"\\\\n]){0,40}", piece_bytes in 1usize..20) {
            // A backslash outside of strings is no JSON: both scans pass it.
            prop_assert_eq!(end(text.as_bytes(), piece_bytes), value_end(text.as_bytes(), 0));
        }
    }
}
