//! Percent-encoding of values in paths and queries.

use std::fmt::Write as _;

/// Appends bytes, escaped for a path or a query: all but unreserved ones percent-escaped (RFC 3986, sections 2.1 and 2.3).
pub(crate) fn escape(bytes: &[u8], text: &mut String) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing into a String does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}
