//! The arguments of a request, read in place, even while the request is still arriving.

use super::payload::LINE_END_BYTES;

/// Iterates over the arguments of a request in the form of an array of bulk strings.
///
/// The bytes must be those that a [`RequestFramer`](super::RequestFramer) consumed since the request began, complete or
/// not. The iterator yields the complete arguments, and [`Arguments::rest`] the incomplete one. For any other bytes the
/// arguments are unspecified; the iterator never panics.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'b> {
    bytes: &'b [u8],
}

/// An argument that is still arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialArgument<'b> {
    /// The received part.
    pub start: &'b [u8],
    /// Size of the whole argument, in bytes.
    pub bytes: u64,
}

impl<'b> Arguments<'b> {
    /// The arguments of the request that begins here.
    pub fn of(request: &'b [u8]) -> Arguments<'b> {
        // Skips the line with the count.
        let line = memchr::memchr(b'\n', request).map_or(request.len(), |line_feed| line_feed + 1);
        Arguments { bytes: &request[line..] }
    }

    /// After the end of the iterator: the incomplete argument, if its length has arrived.
    pub fn rest(&self) -> Option<PartialArgument<'b>> {
        let (bytes, line_bytes) = length(self.bytes)?;
        let start = &self.bytes[line_bytes..];
        Some(PartialArgument { start: &start[..start.len().min(bytes)], bytes: bytes as u64 })
    }
}

impl<'b> Iterator for Arguments<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let (bytes, line_bytes) = length(self.bytes)?;
        let end = line_bytes.checked_add(bytes)?;
        let argument = self.bytes.get(line_bytes..end)?;
        self.bytes = self.bytes.get(end.checked_add(LINE_END_BYTES as usize)?..)?;
        Some(argument)
    }
}

/// The length after `$`, and the number of bytes of its line.
#[inline]
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let (b'$', digits) = bytes.split_first()? else { return None };
    let mut length = 0usize;
    for (at, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => length = length.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?,
            // The type, and CR LF.
            b'\r' if digits.get(at + 1) == Some(&b'\n') => return Some((length, at + 3)),
            _ => return None,
        }
    }
    None
}
