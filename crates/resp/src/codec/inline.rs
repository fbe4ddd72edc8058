//! Inline commands: a line that a person types, with Redis's quoting rules (`sdssplitargs`).
//!
//! | in the line | means |
//! |---|---|
//! | blanks, tabs | part arguments; a quote may also begin inside an argument: `a"b c"` is `ab c` |
//! | `"…"` | the bytes, with `\n` `\r` `\t` `\b` `\a`, `\xHH`, and `\` before any other byte for that byte |
//! | `'…'` | the bytes as they are; only `\'` is a quote |
//! | a closing quote | must end the argument |

use super::encoder::{write_bulk, write_count};
use super::protocol_error::ProtocolError;

/// Appends an inline command to `output` as an array of bulk strings, so that later code sees one form of request.
/// Returns the number of arguments. For a blank line it is 0, and nothing is written.
///
/// # Errors
/// [`ProtocolError::UnbalancedQuotes`]; `output` is then unchanged.
pub fn rewrite_inline(line: &[u8], output: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    let mut arguments: Vec<Vec<u8>> = Vec::new();
    let mut rest = line.trim_ascii_end();
    loop {
        rest = trim_start(rest);
        if rest.is_empty() {
            break;
        }
        let (argument, behind) = argument(rest)?;
        arguments.push(argument);
        rest = behind;
    }
    if !arguments.is_empty() {
        write_count(output, b'*', arguments.len() as u64);
        arguments.iter().for_each(|argument| write_bulk(output, argument));
    }
    Ok(arguments.len())
}

/// C's `isspace`, which includes the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&byte| is_space(byte)).count();
    &text[blanks..]
}

/// The argument that begins here, and the text after it.
fn argument(text: &[u8]) -> Result<(Vec<u8>, &[u8]), ProtocolError> {
    let mut argument = Vec::new();
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => break,
            b'"' => return double_quoted(behind, &mut argument).map(|rest| (argument, rest)),
            b'\'' => return single_quoted(behind, &mut argument).map(|rest| (argument, rest)),
            _ => argument.push(byte),
        }
        rest = behind;
    }
    Ok((argument, rest))
}

/// Appends the content of double quotes; `text` begins after the opening quote.
fn double_quoted<'l>(text: &'l [u8], argument: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return behind_quote(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                argument.push(hex(*high) << 4 | hex(*low));
                behind
            }
            [b'\\', escaped, behind @ ..] => {
                argument.push(unescape(*escaped));
                behind
            }
            [byte, behind @ ..] => {
                argument.push(*byte);
                behind
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// Appends the content of single quotes; `text` begins after the opening quote.
fn single_quoted<'l>(text: &'l [u8], argument: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'\'', behind @ ..] => {
                argument.push(b'\'');
                behind
            }
            [b'\'', behind @ ..] => return behind_quote(behind),
            [byte, behind @ ..] => {
                argument.push(*byte);
                behind
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// A closing quote must end its argument.
fn behind_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Arguments;

    #[track_caller]
    fn check(line: &[u8], expected: &[&[u8]]) {
        let mut output = Vec::new();
        assert_eq!(rewrite_inline(line, &mut output), Ok(expected.len()));
        let arguments: Vec<&[u8]> = Arguments::of(&output).collect();
        assert_eq!(arguments, expected, "{}", line.escape_ascii());
    }

    #[test]
    fn blanks_part_arguments_and_quotes_hold_them_together() {
        check(b"PING\r\n", &[b"PING"]);
        check(b"  set  a\t1 \n", &[b"set", b"a", b"1"]);
        check(b"\x0b a\x0bb", &[b"a\x0bb"]);
        check(b"", &[]);
        check(b" \r\n", &[]);
        check(b"set \"a b\" 'c d'", &[b"set", b"a b", b"c d"]);
        check(b"\"\" ''", &[b"", b""]);
        check(b"a\"b c\" d", &[b"ab c", b"d"]);
    }

    #[test]
    fn escapes_are_those_of_redis() {
        check(br#""\n\r\t\b\a\\\"\q""#, &[b"\n\r\t\x08\x07\\\"q"]);
        check(br#""\x00\xfF\xg1\x1""#, &[b"\x00\xffxg1x1"]);
        check(br"'\n\'\x41'", &[br"\n'\x41"]);
        check(br"a\nb", &[br"a\nb"]);
    }

    #[test]
    fn quotes_that_do_not_match_are_refused_and_nothing_is_written() {
        for line in ["\"a", "'a", "\"a\"b", "'a'b", "a 'b", "\"\\\"", "'\\'", "\"", "a\"", "\"a\"\"b\""] {
            let mut output = b"before".to_vec();
            assert_eq!(rewrite_inline(line.as_bytes(), &mut output), Err(ProtocolError::UnbalancedQuotes), "{line}");
            assert_eq!(output, b"before");
        }
    }
}
