//! Skipping over JSON text: the end of a string or a value.
//!
//! Whitespace between tokens is allowed, because texts are also scanned as sent. Nothing recurses: skipping only
//! counts brackets, so damaged bytes cost at most one pass over the text.

use crate::scan::{string_stop, structure_stop};

/// The offset after the string whose opening quote is at `at`. `None`: it is not closed, or has a control character.
#[inline]
pub fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut stop = string_stop(text, at + 1);
    loop {
        match text.get(stop)? {
            b'"' => return Some(stop + 1),
            b'\\' => stop = string_stop(text, stop + 2),
            _ => return None,
        }
    }
}

/// The offset after the value that begins at `at`; brackets and strings are matched, and nothing else is checked. `None`: it is
/// not closed, or there is none.
#[inline]
pub fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => container_end(text, at),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b'"' | b' ' | b'\t' | b'\n' | b'\r');
            let len = text[at..].iter().position(ends).unwrap_or(text.len() - at);
            (len > 0).then_some(at + len)
        }
    }
}

fn container_end(text: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = open;
    loop {
        at = structure_stop(text, at)?;
        match text[at] {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            _ => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
    }
}

/// The offset of the first byte at or after `at` that is not whitespace.
#[inline]
pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}
