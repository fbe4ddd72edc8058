//! Cells of CSV (RFC 4180), as queries and exports write them and an import reads them.
//!
//! NULL is an empty cell. A text that an import could read as another value is in quotes: the empty text, and text that looks like a
//! number, a boolean or JSON. Any other value is its JSON text.

use std::borrow::Cow;

/// Appends a text as a cell.
pub fn append_text(text: &[u8], out: &mut Vec<u8>) {
    append(text, is_ambiguous(text) || needs_quotes(text), out);
}

/// Appends a stored value, given as its JSON text, as a cell.
pub fn append_json(json: &[u8], out: &mut Vec<u8>) {
    match json {
        b"null" => {}
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => append_text(inner, out),
        [b'"', ..] => {
            let text = serde_json::from_slice::<Cow<'_, str>>(json).unwrap_or_default();
            append_text(text.as_bytes(), out);
        }
        other => append(other, needs_quotes(other), out),
    }
}

/// Appends the name of a column.
pub fn append_name(name: &str, out: &mut Vec<u8>) {
    append(name.as_bytes(), needs_quotes(name.as_bytes()), out);
}

/// Whether a cell with this content is in quotes, whatever its type.
pub fn needs_quotes(cell: &[u8]) -> bool {
    cell.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
}

/// Whether an import could read a text as a number, a boolean or JSON.
fn is_ambiguous(text: &[u8]) -> bool {
    matches!(text, [] | [b'-' | b'0'..=b'9' | b'[' | b'{', ..])
        || text.eq_ignore_ascii_case(b"true")
        || text.eq_ignore_ascii_case(b"false")
}

fn append(cell: &[u8], is_quoted: bool, out: &mut Vec<u8>) {
    if !is_quoted {
        return out.extend_from_slice(cell);
    }
    out.push(b'"');
    for part in cell.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}
