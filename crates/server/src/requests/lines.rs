//! Lines of a body that arrives in pieces: text in, whole lines out.
//!
//! A line has a limit. A longer one is not kept: it is reported, and the next line begins after its end. While a line is
//! complete, at most [`TEXT_BYTES_MAX`] of text waits; so the memory is that or one line, whichever is larger.

/// Text that may wait behind a complete line.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Text(Vec<u8>),
    /// The line exceeds the limit.
    TooLong,
}

/// See the module's documentation.
pub(crate) struct Lines {
    line_bytes_max: usize,
    text: Vec<u8>,
    /// Beginning of the next line.
    start: usize,
    /// Up to here there is no line end.
    scanned: usize,
    /// Number of returned lines, blank ones included.
    number: usize,
    /// The next bytes belong to a line that is too long.
    is_skipping: bool,
    /// Such a line is still to be reported.
    is_too_long: bool,
    has_ended: bool,
}

impl Lines {
    pub(crate) fn new(line_bytes_max: usize) -> Lines {
        let text = Vec::new();
        Lines {
            line_bytes_max,
            text,
            start: 0,
            scanned: 0,
            number: 0,
            is_skipping: false,
            is_too_long: false,
            has_ended: false,
        }
    }

    /// For a complete text.
    pub(crate) fn of(text: &[u8], line_bytes_max: usize) -> Lines {
        Lines { text: text.to_vec(), has_ended: true, ..Lines::new(line_bytes_max) }
    }

    /// No more text comes: text after the last line end is a line too.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Bytes of memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.text.capacity()
    }

    /// The limit of that.
    fn text_bytes_max(&self) -> usize {
        TEXT_BYTES_MAX.max(self.line_bytes_max + 1)
    }

    /// Takes as many bytes as fit, and returns their number.
    pub(crate) fn take(&mut self, piece: &[u8]) -> usize {
        let mut taken = 0;
        if self.is_skipping {
            let Some(end) = piece.iter().position(|byte| *byte == b'\n') else { return piece.len() };
            self.is_skipping = false;
            taken = end + 1;
        }
        if self.is_too_long {
            return taken;
        }
        let room_max = if self.line_end().is_some() { TEXT_BYTES_MAX } else { self.text_bytes_max() };
        let room = room_max.saturating_sub(self.text.len() - self.start);
        let part = &piece[taken..piece.len().min(taken + room)];
        self.append(part);
        if self.line_end().is_none() && self.text.len() - self.start > self.line_bytes_max {
            self.clear();
            (self.is_skipping, self.is_too_long) = (true, true);
        }
        taken + part.len()
    }

    /// Whether it is worthwhile to offer more.
    pub(crate) fn has_room(&mut self) -> bool {
        !self.is_too_long && (self.text.len() - self.start <= TEXT_BYTES_MAX / 2 || self.line_end().is_none())
    }

    fn append(&mut self, part: &[u8]) {
        if self.text.len() + part.len() > self.text.capacity() {
            self.text.drain(..self.start);
            (self.scanned, self.start) = (self.scanned - self.start, 0);
            let needed = self.text.len() + part.len();
            if needed > self.text.capacity() {
                // Doubles the capacity, but never beyond the bound.
                let target = needed.max(self.text.capacity() * 2).min(self.text_bytes_max()).max(needed);
                self.text.reserve_exact(target - self.text.len());
            }
        }
        self.text.extend_from_slice(part);
    }

    /// Position of the next line's end.
    fn line_end(&mut self) -> Option<usize> {
        let found = self.text[self.scanned..].iter().position(|byte| *byte == b'\n');
        self.scanned = found.map_or(self.text.len(), |at| self.scanned + at);
        found.map(|_| self.scanned)
    }

    /// The next line that is not blank, with its number.
    pub(crate) fn next(&mut self) -> Option<(usize, Line)> {
        if std::mem::take(&mut self.is_too_long) {
            self.number += 1;
            return Some((self.number, Line::TooLong));
        }
        loop {
            let (end, next) = match self.line_end() {
                Some(end) => (end, end + 1),
                None if self.has_ended && self.start < self.text.len() => (self.text.len(), self.text.len()),
                None => break,
            };
            let line = &self.text[self.start..end];
            self.number += 1;
            let line = match line.trim_ascii() {
                [] => None,
                _ if line.len() > self.line_bytes_max => Some(Line::TooLong),
                _ => Some(Line::Text(line.to_vec())),
            };
            (self.start, self.scanned) = (next, next);
            if let Some(line) = line {
                return Some((self.number, line));
            }
        }
        if self.start == self.text.len() {
            self.clear();
        }
        None
    }

    fn clear(&mut self) {
        self.text.clear();
        if self.text.capacity() > TEXT_BYTES_MAX {
            self.text = Vec::new();
        }
        (self.start, self.scanned) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines of a text that arrives in pieces; a number of lines is read after each.
    fn read(text: &[u8], line_max: usize, piece: usize, at_a_time: usize) -> Vec<(usize, Line)> {
        let (mut lines, mut seen) = (Lines::new(line_max), Vec::new());
        let mut rest = text;
        while !rest.is_empty() {
            let has_room = lines.has_room();
            let taken = lines.take(&rest[..piece.min(rest.len())]);
            assert!(taken > 0 || !has_room, "an offer that was asked for");
            rest = &rest[taken..];
            assert!(lines.held_bytes() <= lines.text_bytes_max());
            let before = seen.len();
            seen.extend(std::iter::from_fn(|| lines.next()).take(at_a_time));
            // Only blank lines may have been read; they make room.
            assert!(taken > 0 || seen.len() > before || lines.has_room(), "nothing moves");
        }
        lines.end();
        seen.extend(std::iter::from_fn(|| lines.next()));
        seen
    }

    /// The same for a complete text.
    fn expected(text: &[u8], line_max: usize) -> Vec<(usize, Line)> {
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        let of = |line: &[u8]| if line.len() > line_max { Line::TooLong } else { Line::Text(line.to_vec()) };
        lines
            .filter(|(_, line)| line.len() > line_max || !line.trim_ascii().is_empty())
            .map(|(at, line)| (at + 1, of(line)))
            .collect()
    }

    proptest! {
        #[test]
        fn lines_come_out_however_the_text_is_cut(
            lengths in proptest::collection::vec(prop_oneof![0usize..30, 90usize..110, 30_000usize..70_000], 0..12),
            ends in any::<bool>(), line_max in prop_oneof![Just(100usize), Just(40_000usize)],
            piece in prop_oneof![1usize..40, 1_000usize..40_000], at_a_time in 1usize..5,
        ) {
            let mut text: Vec<u8> = Vec::new();
            for (at, length) in lengths.iter().enumerate() {
                text.extend(std::iter::repeat_n(b'a' + at as u8, *length));
                text.push(b'\n');
            }
            if !ends {
                text.pop();
            }
            // Small pieces of long texts take long.
            let piece = if text.len() > 10_000 { piece.max(500) } else { piece };
            prop_assert_eq!(read(&text, line_max, piece, at_a_time), expected(&text, line_max));
            let whole: Vec<_> = { let mut lines = Lines::of(&text, line_max); std::iter::from_fn(|| lines.next()).collect() };
            prop_assert_eq!(whole, expected(&text, line_max));
        }
    }

    #[test]
    fn blank_lines_that_fill_the_room_are_read_without_a_line() {
        let text = [b"a\nb\nc\nd\n\n".to_vec(), vec![b'f'; 34_811]].concat();
        assert_eq!(read(&text, 40_000, 32_776, 1), expected(&text, 40_000));
    }

    #[test]
    fn blank_lines_count_and_hold_nothing() {
        let lines = read(b"\n  \r\na\r\n\n\tb", 10, 3, 9);
        assert_eq!(lines, [(3, Line::Text(b"a\r".to_vec())), (5, Line::Text(b"\tb".to_vec()))]);
    }
}
