//! The arguments of a request, read in place, also while the request is still arriving.

use super::payload::LINE_END_BYTES;

/// Iterates over the arguments of a request in the form of an array of bulk strings.
///
/// The bytes must be those that a [`RequestFramer`](super::RequestFramer) consumed since the request began, all of them or
/// as many as came: then the iterator gives the complete arguments, and [`Arguments::rest`] the one that is cut off.
/// Of other bytes it gives some arguments or none; it never panics.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'b> {
    bytes: &'b [u8],
}

/// An argument of which not all bytes have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialArgument<'b> {
    /// What has come of it.
    pub start: &'b [u8],
    /// Bytes of the whole argument.
    pub bytes: u64,
}

impl<'b> Arguments<'b> {
    /// The arguments of the request that begins here.
    pub fn of(request: &'b [u8]) -> Arguments<'b> {
        // Behind the line of the count.
        let line = memchr::memchr(b'\n', request).map_or(request.len(), |line_feed| line_feed + 1);
        Arguments { bytes: &request[line..] }
    }

    /// What is left when the iterator ends: the argument that is cut off, if its length has come.
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

/// The length behind `$`, and the bytes of its line.
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
