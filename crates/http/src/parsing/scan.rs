//! Strict scan: finds the blank line that ends a head, and refuses line ends and bytes that httparse accepts.
//!
//! httparse accepts a bare LF as a line's end, and so reads a head differently from a strict proxy in front of this server;
//! request smuggling uses such differences. So before httparse runs, every line must end with CR LF, and there must be no other
//! CR or LF and no NUL.
//!
//! The scan resumes where it stopped: however a head is cut into reads, each of its bytes is scanned once. Invariant: between
//! calls `at` is the first unseen byte, or a CR whose next byte has not arrived.

use memchr::memchr3;

use crate::parsing::refusal::Refusal;

/// State of the scan of one head. Offsets count from the head's first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    at: usize,
    line_start: usize,
    first_line_bytes: usize,
}

impl HeadScan {
    /// Whether no byte of the head was scanned.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.at == 0
    }

    /// Length of the head including its blank line, once that has arrived. A further call returns the same.
    pub(crate) fn scan(&mut self, input: &[u8]) -> Result<Option<usize>, Refusal> {
        while let Some(found) = memchr3(b'\r', b'\n', 0, &input[self.at..]) {
            let at = self.at + found;
            match (input[at], input.get(at + 1)) {
                (b'\r', Some(b'\n')) if at == self.line_start => return Ok(Some(at + 2)),
                (b'\r', Some(b'\n')) => {
                    if self.line_start == 0 {
                        self.first_line_bytes = at + 2;
                    }
                    self.line_start = at + 2;
                    self.at = at + 2;
                }
                (b'\r', Some(_)) => return Err(Refusal::BareCarriageReturn),
                (b'\r', None) => {
                    self.at = at;
                    return Ok(None);
                }
                (b'\n', _) => return Err(Refusal::BareLineFeed),
                _ => return Err(Refusal::NulByte),
            }
        }
        self.at = input.len();
        Ok(None)
    }

    /// Length of the request line with its line end, once that has arrived.
    pub(crate) fn first_line_bytes(&self) -> Option<usize> {
        (self.first_line_bytes > 0).then_some(self.first_line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(input: &[u8], expected: Result<Option<usize>, Refusal>) {
        assert_eq!(HeadScan::default().scan(input), expected);
        let mut scan = HeadScan::default();
        let stepped = (0..=input.len()).map(|end| scan.scan(&input[..end])).find(|r| !matches!(r, Ok(None)));
        assert_eq!(stepped.unwrap_or(Ok(None)), expected, "byte by byte");
    }

    #[test]
    fn a_head_ends_at_its_blank_line() {
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody", Ok(Some(27)));
        check(b"GET / HTTP/1.1\r\n\r\n", Ok(Some(18)));
    }

    #[test]
    fn an_unfinished_head_wants_more() {
        check(b"", Ok(None));
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r", Ok(None));
    }

    #[test]
    fn bare_line_ends_and_nul_are_refused() {
        check(b"GET / HTTP/1.1\nHost: a\r\n\r\n", Err(Refusal::BareLineFeed));
        check(b"GET / HTTP/1.1\r\nHost: a\n\r\n", Err(Refusal::BareLineFeed));
        check(b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", Err(Refusal::BareCarriageReturn));
        check(b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", Err(Refusal::BareCarriageReturn));
        check(b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", Err(Refusal::NulByte));
    }

    proptest! {
        #[test]
        fn what_passes_the_scan_has_only_whole_line_ends(input in "[a\r\n\0]{0,24}") {
            let input = input.as_bytes();
            if let Ok(Some(end)) = HeadScan::default().scan(input) {
                let joined = String::from_utf8_lossy(&input[..end]).replace("\r\n", "");
                prop_assert!(!joined.contains(['\r', '\n', '\0']));
                prop_assert!(input[..end].ends_with(b"\r\n\r\n") || end == 2);
            }
        }
    }
}
