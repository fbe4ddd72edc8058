//! Fast path for length lines: up to nine digits and CR LF, complete in the input.
//!
//! It avoids the byte-by-byte state of [`Number`](super::number::Number), which handles all other lines: long,
//! malformed, negative, or incomplete. Tests feed the same bytes whole and in pieces to check that both paths agree.

/// More digits exceed the limits; this many fit into any integer type.
const DIGITS_MAX: usize = 9;

/// The length at the beginning of `input`, and the number of bytes of the line. None: the line needs the general path.
#[inline]
pub(crate) fn short_length(input: &[u8]) -> Option<(u64, usize)> {
    let mut length = 0u64;
    for (at, &byte) in input.iter().enumerate().take(DIGITS_MAX + 1) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_line_end = byte == b'\r' && input.get(at + 1) == Some(&b'\n');
            let is_shortest = at == 1 || at > 1 && input[0] != b'0';
            return (is_line_end && is_shortest).then_some((length, at + 2));
        }
        length = length * 10 + u64::from(digit);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::short_length;

    #[test]
    fn usual_lines_are_read_and_all_others_left_alone() {
        assert_eq!(short_length(b"0\r\n"), Some((0, 3)));
        assert_eq!(short_length(b"132\r\nxyz"), Some((132, 5)));
        assert_eq!(short_length(b"999999999\r\n"), Some((999_999_999, 11)));
        for other in
            [&b""[..], b"\r\n", b"1", b"1\r", b"1\rx", b"1\n", b"01\r\n", b"00\r\n", b"-1\r\n", b"1234567890\r\n"]
        {
            assert_eq!(short_length(other), None, "{}", other.escape_ascii());
        }
    }
}
