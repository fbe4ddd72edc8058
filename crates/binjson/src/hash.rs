//! Hash of a key: part of the stored format, so it never changes within a format version.
//!
//! It only narrows a search: every hit is compared with the key itself, so collisions cost only time.

const LENGTH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD_MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash of a key in its stored form, without quotes.
#[inline]
pub(crate) fn key_hash(key: &[u8]) -> u32 {
    let Some((last, _)) = key.split_last_chunk::<8>().map(|(rest, last)| (u64::from_le_bytes(*last), rest)) else {
        return finish(short_word(key), key.len());
    };
    let mut mixed = 0;
    // The last word overlaps the previous one unless the length is a multiple of eight, so there is no tail to handle.
    for word in key[..key.len() - 1].as_chunks::<8>().0 {
        mixed = fold(mixed ^ u64::from_le_bytes(*word));
    }
    finish(mixed ^ last, key.len())
}

/// The hash of the first `len` bytes of `window`: one masked load for a key of up to eight bytes, without a branch on its
/// length.
#[inline]
pub(crate) fn key_hash_within(window: &[u8], len: usize) -> u32 {
    match window.first_chunk::<8>() {
        Some(word) if len.wrapping_sub(1) < 8 => {
            finish(u64::from_le_bytes(*word) & (u64::MAX >> (64 - 8 * len as u32)), len)
        }
        _ => key_hash(&window[..len]),
    }
}

/// Up to seven bytes, zero-padded.
#[inline]
pub(crate) fn short_word(key: &[u8]) -> u64 {
    let len = key.len();
    if let (Some(head), Some(tail)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let (head, tail) = (u32::from_le_bytes(*head), u32::from_le_bytes(*tail));
        return u64::from(head) | u64::from(tail) << (8 * (len - 4));
    }
    key.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[inline]
fn fold(word: u64) -> u64 {
    let wide = u128::from(word ^ LENGTH_MULTIPLIER) * u128::from(WORD_MULTIPLIER);
    wide as u64 ^ (wide >> 64) as u64
}

#[inline]
fn finish(word: u64, len: usize) -> u32 {
    (fold(word ^ (len as u64).wrapping_mul(LENGTH_MULTIPLIER)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_hash_a_key_agree_at_every_length() {
        let text: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(37)).collect();
        for len in 0..40 {
            assert_eq!(key_hash(&text[..len]), key_hash_within(&text, len), "length {len}");
            assert_eq!(key_hash(&text[..len]), key_hash_within(&text[..len], len), "length {len}, nothing behind");
        }
    }

    #[test]
    fn keys_that_differ_in_one_byte_or_in_length_hash_apart() {
        let mut seen = std::collections::HashSet::new();
        for len in 1..24 {
            assert!(seen.insert(key_hash(&vec![b'a'; len])));
            for place in 0..len {
                let mut key = vec![b'a'; len];
                key[place] = b'b';
                assert!(seen.insert(key_hash(&key)), "length {len}, place {place}");
            }
        }
    }
}
