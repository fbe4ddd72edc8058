//! Searching for the significant bytes, sixteen at a time.
//!
//! `lanes.rs` compares one block; the rest after the last whole block is searched byte by byte.

use crate::lanes::{self, BLOCK, is_string_stop, is_structure_stop};

/// Offset of the first quote, backslash or control character at or after `from`; the text's length if there is none.
#[inline]
pub(crate) fn string_stop(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(block) = block_at(text, at) {
        let hits = lanes::string_stops(block);
        if hits != 0 {
            return at + hits.trailing_zeros() as usize;
        }
        at += BLOCK;
    }
    string_stop_plain(text, at)
}

fn string_stop_plain(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.iter().position(|&byte| is_string_stop(byte)).map_or(text.len(), |at| from + at)
}

/// Offset of the first quote or bracket at or after `from`.
#[inline]
pub(crate) fn structure_stop(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(block) = block_at(text, at) {
        let hits = lanes::structure_stops(block);
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize);
        }
        at += BLOCK;
    }
    text.get(at..)?.iter().position(|&byte| is_structure_stop(byte)).map(|found| at + found)
}

/// Bit `i` is set where byte `i` of the block at `at` equals `wanted`; `None` within sixteen bytes of the end.
#[inline]
pub(crate) fn equal_bytes(bytes: &[u8], at: usize, wanted: u8) -> Option<u32> {
    block_at(bytes, at).map(|block| lanes::equal(block, wanted))
}

#[inline]
fn block_at(text: &[u8], at: usize) -> Option<&[u8; BLOCK]> {
    text.get(at..)?.first_chunk::<BLOCK>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_scans_agree_with_the_plain_ones_for_every_byte_at_every_place() {
        // Miri tests all special bytes, and few of the others.
        for byte in (0..=255u8).filter(|byte| !cfg!(miri) || b"\"\\{}[],:\0\x1f\x7f\x80".contains(byte)) {
            for place in 0..40 {
                let mut text = [b'x'; 40];
                text[place] = byte;
                assert_eq!(string_stop(&text, 0), string_stop_plain(&text, 0), "byte {byte} at {place}");
                let structure = text.iter().position(|&byte| is_structure_stop(byte));
                assert_eq!(structure_stop(&text, 0), structure, "byte {byte} at {place}");
                if byte != b'x' && place < BLOCK {
                    assert_eq!(equal_bytes(&text, 0, byte), Some(1 << place));
                }
            }
        }
    }

    #[test]
    fn a_search_from_behind_the_end_finds_nothing() {
        assert_eq!(string_stop(b"abc", 7), 3);
        assert_eq!(structure_stop(b"abc", 7), None);
        assert_eq!(equal_bytes(b"abc", 7, b'a'), None);
    }
}
