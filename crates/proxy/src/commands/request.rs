//! A complete request with the places of its arguments, so that each is reached by its number.

use resp::codec::Arguments;

/// Where the bytes of an argument stand in its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

/// Bytes of the line end behind an argument.
const LINE_END_BYTES: usize = 2;

/// A request: an array of bulk strings, as a [`resp::codec::RequestFramer`] found it complete.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    bytes: &'r [u8],
    spans: &'r [Span],
}

impl<'r> Request<'r> {
    /// Notes the places of the arguments of `bytes` in `spans`, whose storage is used again and again.
    ///
    /// # Panics
    /// The request has 4 GB or more; framers refuse it far below.
    pub fn of(bytes: &'r [u8], spans: &'r mut Vec<Span>) -> Request<'r> {
        let offset = |byte: usize| u32::try_from(byte).expect("a request below 4 GB");
        let base = bytes.as_ptr() as usize;
        spans.clear();
        spans.extend(Arguments::of(bytes).map(|argument| {
            let start = argument.as_ptr() as usize - base;
            Span { start: offset(start), end: offset(start + argument.len()) }
        }));
        Request { bytes, spans }
    }

    /// The same of places that were noted before.
    pub fn with_spans(bytes: &'r [u8], spans: &'r [Span]) -> Request<'r> {
        Request { bytes, spans }
    }

    /// Arguments, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// An argument; 0 is the command's name.
    pub fn get(&self, index: usize) -> Option<&'r [u8]> {
        let span = self.spans.get(index)?;
        Some(&self.bytes[span.start as usize..span.end as usize])
    }

    /// Whether an argument is this word, in letters of any size.
    pub fn is_word(&self, index: usize, word: &[u8]) -> bool {
        self.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word))
    }

    /// An argument as a decimal number.
    pub fn number(&self, index: usize) -> Option<i64> {
        std::str::from_utf8(self.get(index)?).ok()?.parse().ok()
    }

    /// Some arguments as they stand in the request, with their lengths and line ends: to be copied into another request.
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
    use super::Request;

    #[test]
    fn arguments_are_given_alone_and_as_they_stand() {
        let mut spans = Vec::new();
        let request = Request::of(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n17\r\n", &mut spans);
        assert_eq!((request.len(), request.get(1), request.get(3)), (3, Some(&b"k"[..]), None));
        assert_eq!(request.raw(0..1), b"$3\r\nSET\r\n");
        assert_eq!(request.raw(1..3), b"$1\r\nk\r\n$2\r\n17\r\n");
        assert!(request.is_word(0, b"set") && !request.is_word(1, b"set"));
        assert_eq!((request.number(2), request.number(1)), (Some(17), None));
    }
}
