//! A complete request with random access to its arguments.

use resp::codec::Arguments;

/// Position of an argument in the bytes of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

/// Bytes of the line end after an argument.
const LINE_END_BYTES: usize = 2;

/// A complete request in the form of an array of bulk strings, as a [`resp::codec::RequestFramer`] delivers it.
#[derive(Clone, Copy, Debug)]
pub struct CommandRequest<'r> {
    bytes: &'r [u8],
    spans: &'r [Span],
}

impl<'r> CommandRequest<'r> {
    /// Records the positions of the arguments of `bytes` in `spans`, whose storage is reused.
    ///
    /// # Panics
    /// The request has 4 GB or more; framers refuse it far below.
    pub fn of(bytes: &'r [u8], spans: &'r mut Vec<Span>) -> CommandRequest<'r> {
        let offset = |byte: usize| u32::try_from(byte).expect("a request below 4 GB");
        let base = bytes.as_ptr() as usize;
        spans.clear();
        spans.extend(Arguments::of(bytes).map(|argument| {
            let start = argument.as_ptr() as usize - base;
            Span { start: offset(start), end: offset(start + argument.len()) }
        }));
        CommandRequest { bytes, spans }
    }

    /// A request with positions that were recorded before.
    pub fn with_spans(bytes: &'r [u8], spans: &'r [Span]) -> CommandRequest<'r> {
        CommandRequest { bytes, spans }
    }

    /// Number of arguments, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether even the name is missing.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// An argument; 0 is the command's name.
    pub fn get(&self, index: usize) -> Option<&'r [u8]> {
        let span = self.spans.get(index)?;
        Some(&self.bytes[span.start as usize..span.end as usize])
    }

    /// Whether an argument is this word, without regard to case.
    pub fn is_word(&self, index: usize, word: &[u8]) -> bool {
        self.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word))
    }

    /// An argument as a decimal number.
    pub fn number(&self, index: usize) -> Option<i64> {
        std::str::from_utf8(self.get(index)?).ok()?.parse().ok()
    }

    /// The encoded bytes of some arguments, with their lengths and line ends, for copying into another request.
    ///
    /// # Panics
    /// There are fewer arguments, or the range is empty.
    pub fn raw(&self, arguments: std::ops::Range<usize>) -> &'r [u8] {
        let start = match arguments.start.checked_sub(1) {
            Some(before) => self.spans[before].end as usize + LINE_END_BYTES,
            None => memchr::memchr(b'\n', self.bytes).map_or(0, |line_feed| line_feed + 1),
        };
        &self.bytes[start..self.spans[arguments.end - 1].end as usize + LINE_END_BYTES]
    }

    /// All arguments in order.
    pub fn iter(&self) -> impl Iterator<Item = &'r [u8]> + use<'r> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start as usize..span.end as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::CommandRequest;

    #[test]
    fn arguments_are_given_alone_and_as_they_stand() {
        let mut spans = Vec::new();
        let request = CommandRequest::of(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n17\r\n", &mut spans);
        assert_eq!((request.len(), request.get(1), request.get(3)), (3, Some(&b"k"[..]), None));
        assert_eq!(request.raw(0..1), b"$3\r\nSET\r\n");
        assert_eq!(request.raw(1..3), b"$1\r\nk\r\n$2\r\n17\r\n");
        assert!(request.is_word(0, b"set") && !request.is_word(1, b"set"));
        assert_eq!((request.number(2), request.number(1)), (Some(17), None));
    }
}
