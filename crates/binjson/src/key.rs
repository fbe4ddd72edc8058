//! A search key: its bytes, and the same as words, so that a comparison is two loads and no call.

use crate::escape;
use crate::hash::{key_hash, short_word};

/// Keys up to this length are covered by their first and their last eight bytes.
const WORDS_LEN_MAX: usize = 16;

/// A key in its stored form.
#[derive(Clone, Copy)]
pub(crate) struct Key<'k> {
    bytes: &'k [u8],
    /// Its first eight bytes, zero-padded.
    head: u64,
    /// Its last eight bytes; the same as `head` for keys shorter than eight.
    tail: u64,
}

impl<'k> Key<'k> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'k [u8]) -> Self {
        let word = |chunk: Option<&[u8; 8]>| chunk.map(|chunk| u64::from_le_bytes(*chunk));
        let (head, tail) = match (word(bytes.first_chunk()), word(bytes.last_chunk())) {
            (Some(head), Some(tail)) => (head, tail),
            _ => {
                let head = short_word(bytes);
                (head, head)
            }
        };
        Self { bytes, head, tail }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        key_hash(self.bytes)
    }

    /// Whether `field`, a text at a key's opening quote, has this key.
    #[inline(always)]
    pub(crate) fn begins(&self, field: &[u8]) -> bool {
        let len = self.bytes.len();
        let Some(behind) = field.get(len + 1..) else { return false };
        behind.first_chunk::<2>() == Some(b"\":") && self.equals(&field[1..], len)
    }

    /// Whether `found` begins with this key.
    #[inline(always)]
    fn equals(&self, found: &[u8], len: usize) -> bool {
        let Some(head) = found.first_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk)) else {
            return found.starts_with(self.bytes);
        };
        if len <= 8 {
            // Compares without the bytes after the key. The empty key is a special case: no shift moves 64 bits out.
            return len == 0 || (head ^ self.head) << (64 - 8 * len as u32) == 0;
        }
        if len <= WORDS_LEN_MAX {
            let tail = found[..len].last_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk));
            return head == self.head && tail == Some(self.tail);
        }
        head == self.head && &found[..len] == self.bytes
    }

    /// Whether a name that was found in a text has no escapes: keys in a text have no raw control characters.
    #[inline(always)]
    pub(crate) fn is_plain_where_found(&self) -> bool {
        if self.bytes.len() > WORDS_LEN_MAX {
            return memchr::memchr2(b'"', b'\\', self.bytes).is_none();
        }
        let special = |word| has_byte(word, b'"') | has_byte(word, b'\\');
        special(self.head) | special(self.tail) == 0
    }
}

/// The name of a field, prepared once for lookups in many documents: escaped and split into words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldName {
    stored: Box<[u8]>,
    head: u64,
    tail: u64,
}

impl FieldName {
    /// Prepares `name`.
    pub fn new(name: &str) -> Self {
        let mut stored = Vec::with_capacity(name.len());
        escape::append_escaped(&mut stored, name.as_bytes());
        let Key { head, tail, .. } = Key::new(&stored);
        Self { stored: stored.into_boxed_slice(), head, tail }
    }

    /// The name in the form it has between the quotes in a stored text.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> Key<'_> {
        Key { bytes: &self.stored, head: self.head, tail: self.tail }
    }
}

/// Nonzero if a byte of `word` is `byte`.
#[inline(always)]
fn has_byte(word: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let zeros = word ^ (LOW * byte as u64);
    zeros.wrapping_sub(LOW) & !zeros & (LOW << 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_only_where_it_stands_whole() {
        let letters: Vec<u8> = (0..40u8).map(|i| b'a' + i % 26).collect();
        for len in 0..40 {
            let key = &letters[..len];
            for behind in [b"\":1}".as_slice(), b"\":1,\"and much more behind it\":2}"] {
                let field = [b"\"".as_slice(), key, behind].concat();
                assert!(Key::new(key).begins(&field), "length {len}");
                assert!(!Key::new(&letters[..len + 1]).begins(&field), "longer than {len}");
                for place in 0..len {
                    let mut other = field.clone();
                    other[1 + place] ^= 1;
                    assert!(!Key::new(key).begins(&other), "length {len}, place {place}");
                }
                if len > 0 {
                    assert!(!Key::new(&letters[..len - 1]).begins(&field), "shorter than {len}");
                }
            }
        }
    }

    #[test]
    fn quotes_and_backslashes_are_seen_at_every_place() {
        for len in 0..40 {
            assert!(Key::new(&vec![b'a'; len]).is_plain_where_found());
            for place in 0..len {
                for special in [b'"', b'\\'] {
                    let mut key = vec![0xd0; len];
                    key[place] = special;
                    assert!(!Key::new(&key).is_plain_where_found(), "length {len}, place {place}");
                }
            }
        }
    }
}
