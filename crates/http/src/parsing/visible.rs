//! Runs of visible ASCII, found eight bytes at a time, and in targets sixteen if the processor has such registers.
//!
//! A request target of visible ASCII is text by construction; a check by `str::from_utf8` would cost as much as the search. That,
//! and reading sixteen bytes into a register, are the uses of `unsafe` here.
#![allow(unsafe_code)] // text that was just checked to be ASCII is not checked again; vector registers

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

/// At least eight bytes, so that a word can be read anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'i>(&'i [u8]);

/// A target in origin form.
pub(crate) struct Target<'i> {
    pub(crate) path: &'i str,
    /// Without its `?`; empty if there is none.
    pub(crate) query: &'i str,
    /// End of the target.
    pub(crate) end: usize,
}

impl<'i> Bytes<'i> {
    pub(crate) fn of(bytes: &'i [u8]) -> Option<Self> {
        (bytes.len() >= 8).then_some(Bytes(bytes))
    }

    pub(crate) fn all(self) -> &'i [u8] {
        self.0
    }

    /// The target that begins at `at` and ends before the first byte that is not visible ASCII. `None`: it holds a `#`,
    /// which no target may.
    #[inline]
    pub(crate) fn target(self, at: usize) -> Option<Target<'i>> {
        let path_end = self.visible_end(at, [b'#', b'?']);
        let path = self.text(at, path_end);
        match self.0.get(path_end) {
            Some(b'?') => {
                let end = self.visible_end(path_end + 1, [b'#'; 2]);
                let query = self.text(path_end + 1, end);
                (self.0.get(end) != Some(&b'#')).then_some(Target { path, query, end })
            }
            Some(b'#') => None,
            _ => Some(Target { path, query: "", end: path_end }),
        }
    }

    /// The first position from `at` on that is not visible ASCII, or is one of two marks, or is the end.
    #[inline]
    fn visible_end(self, mut at: usize, marks: [u8; 2]) -> usize {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        while let Some(Some(bytes)) = self.0.get(at..).map(<[u8]>::first_chunk) {
            let ends = ends_among(bytes, marks);
            if ends != 0 {
                return at + ends.trailing_zeros() as usize;
            }
            at += bytes.len();
        }
        self.end_of(at, |word| not_visible(word) | equal(word, marks[0]) | equal(word, marks[1]))
    }

    /// End of the value that begins at `at`: the first byte that is neither visible ASCII nor a blank.
    #[inline]
    pub(crate) fn value_end(self, at: usize) -> usize {
        self.end_of(at, |word| below(word, b' ') | equal(word, 0x7f) | word)
    }

    /// `from..to` as text; the caller has found only visible ASCII there.
    #[inline]
    fn text(self, from: usize, to: usize) -> &'i str {
        let bytes = self.0.get(from..to).unwrap_or_default();
        debug_assert!(bytes.is_ascii());
        // SAFETY: called only by `target`, with bounds between which `visible_end` has found only visible ASCII, and ASCII is
        // UTF-8. (Out of bounds the text is empty.)
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }

    /// The first position from `at` on whose byte is flagged, or the end. `flags` must flag a zero byte, with which the last word
    /// is padded, and must be exact for the lowest byte that it flags.
    #[inline]
    fn end_of(self, mut at: usize, flags: impl Fn(u64) -> u64) -> usize {
        loop {
            let flagged = flags(self.word(at)) & HIGHS;
            if flagged != 0 {
                return at + (flagged.trailing_zeros() / 8) as usize;
            }
            at += 8;
        }
    }

    /// Eight bytes from `at` on, the first one lowest; zeros after the end.
    #[inline]
    fn word(self, at: usize) -> u64 {
        if let Some(Some(bytes)) = self.0.get(at..).map(<[u8]>::first_chunk) {
            return u64::from_le_bytes(*bytes);
        }
        // The last eight bytes, shifted by those before `at`: avoids a copy of a small unknown length.
        let missing = (at + 8).saturating_sub(self.0.len());
        let last = self.0.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if missing < 8 { last >> (missing * 8) } else { 0 }
    }
}

/// A bit for each byte that is not visible ASCII or is one of two marks, the first byte lowest.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn ends_among(bytes: &[u8; 16], marks: [u8; 2]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };
    // SAFETY: these instructions belong to SSE2, which every x86-64 processor has; the load reads the 16 bytes of `bytes`, with
    // any alignment.
    unsafe {
        let word = _mm_loadu_si128(bytes.as_ptr().cast());
        let equal = |byte: u8| _mm_cmpeq_epi8(word, _mm_set1_epi8(byte.cast_signed()));
        // As signed numbers, bytes over 0x7f are below all others.
        let over_blank = _mm_cmpgt_epi8(word, _mm_set1_epi8(0x20));
        let others = _mm_or_si128(equal(0x7f), _mm_or_si128(equal(marks[0]), equal(marks[1])));
        let bits = |flags| _mm_movemask_epi8(flags).cast_unsigned();
        bits(over_blank) ^ 0xffff | bits(others)
    }
}

/// Flags (in their highest bits) bytes under `bound`, which is at most 0x80. A borrow only goes upwards, so the lowest flag is
/// exact; that holds for all these functions and for any union of them.
fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(bound)) & !word
}

fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * u64::from(byte)), 1)
}

fn not_visible(word: u64) -> u64 {
    below(word, 0x21) | equal(word, 0x7f) | word
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, one byte at a time.
    fn slow_target(bytes: &[u8], at: usize) -> Option<(&str, &str, usize)> {
        let stop = |from: usize| bytes[from..].iter().position(|byte| !(0x21..=0x7e).contains(byte));
        let end = stop(at).map_or(bytes.len(), |found| at + found);
        let text = std::str::from_utf8(&bytes[at..end]).ok()?;
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        (!text.contains('#')).then_some((path, query, end))
    }

    fn check(bytes: &[u8], at: usize) {
        let Some(eight) = Bytes::of(bytes) else { return };
        let target = eight.target(at).map(|target| (target.path, target.query, target.end));
        assert_eq!(target, slow_target(bytes, at));
        let value = bytes[at..].iter().position(|byte| !(0x20..=0x7e).contains(byte));
        assert_eq!(eight.value_end(at), value.map_or(bytes.len(), |found| at + found));
    }

    #[test]
    fn every_byte_at_every_place_of_a_word_is_seen() {
        for byte in 0..=255 {
            for place in 0..40 {
                let mut bytes = *b"abcdefghijklmnopqrstABCDEFGHIJKLMNOPQRST";
                bytes[place] = byte;
                (0..40).for_each(|at| check(&bytes, at));
            }
        }
    }

    proptest! {
        #[test]
        fn runs_end_where_a_slow_search_ends_them(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0usize..60) {
            check(&bytes, at.min(bytes.len()));
        }

        #[test]
        fn runs_of_text_end_where_a_slow_search_ends_them(text in "[a-p ?#\u{7f}\u{80}]{0,60}", at in 0usize..60) {
            check(text.as_bytes(), at.min(text.len()));
        }
    }
}
