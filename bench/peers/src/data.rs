//! What is stored: JSON documents of 400 bytes under keys in random order.
//!
//! A record is a number. Its key is a bijection of the number, so keys are distinct and numbers that follow one another
//! lie far apart; its document is made from the number and a revision, so an update changes it. Text is drawn from a
//! small vocabulary: engines that compress find what they would find in real JSON, not random bytes and not one letter.

use std::sync::LazyLock;

/// Bytes of a document.
pub(crate) const DOCUMENT_BYTES: usize = 400;
/// Bytes of the longest key.
pub(crate) const KEY_BYTES_MAX: usize = 64;
/// What long keys begin with: 48 bytes, then 16 hexadecimal digits.
const LONG_PREFIX: &[u8; 48] = b"documents/of/one/collection/with/a/shared/prefix";
/// The text that documents are cut from.
const POOL_BYTES: usize = 1 << 20;

/// Which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// 8 bytes.
    Short,
    /// 64 bytes, the first 48 the same in all.
    Long,
}

/// A key on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl Key {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Shape {
    /// Bytes of each key.
    pub(crate) fn key_bytes(self) -> usize {
        match self {
            Shape::Short => 8,
            Shape::Long => KEY_BYTES_MAX,
        }
    }

    /// The key of a record.
    pub(crate) fn key(self, number: u64) -> Key {
        let mut bytes = [0; KEY_BYTES_MAX];
        let scrambled = scramble(number);
        match self {
            Shape::Short => bytes[..8].copy_from_slice(&scrambled.to_be_bytes()),
            Shape::Long => {
                bytes[..48].copy_from_slice(LONG_PREFIX);
                for (digit, byte) in bytes[48..].iter_mut().enumerate() {
                    *byte = b"0123456789abcdef"[(scrambled >> (60 - 4 * digit) & 15) as usize];
                }
            }
        }
        Key { bytes, len: self.key_bytes() }
    }
}

/// A bijection of 64 bits without any visible order (the finaliser of splitmix64).
pub(crate) fn scramble(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

static POOL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut pool = Vec::with_capacity(POOL_BYTES + 16);
    let mut dice = Dice::new(1);
    while pool.len() < POOL_BYTES {
        // A vocabulary of 2,048 words of 3 to 10 letters.
        let mut letters = Dice::new(dice.below(2_048) + 7);
        let len = 3 + letters.below(8);
        pool.extend((0..len).map(|_| b"etaoinshrdlucmfwypvbgkjqxz"[letters.below(26) as usize]));
        pool.push(b' ');
    }
    pool.truncate(POOL_BYTES);
    pool
});

/// Writes the document of a record at a revision.
pub(crate) fn document(number: u64, revision: u64, out: &mut [u8; DOCUMENT_BYTES]) {
    const HEAD: &[u8; 7] = b"{\"id\": ";
    const MIDDLE: &[u8; 10] = b",\"text\": \"";
    const TEXT_START: usize = 7 + 20 + 10;
    out[..7].copy_from_slice(HEAD);
    let mut rest = number;
    for digit in out[7..27].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out[27..TEXT_START].copy_from_slice(MIDDLE);
    let text_bytes = DOCUMENT_BYTES - TEXT_START - 2;
    let start = scramble(number ^ revision.rotate_left(40)) as usize % (POOL_BYTES - text_bytes);
    out[TEXT_START..DOCUMENT_BYTES - 2].copy_from_slice(&POOL[start..start + text_bytes]);
    out[DOCUMENT_BYTES - 2..].copy_from_slice(b"\"}");
}

/// Reads one byte of every cache line of a value, as whoever sends it would.
#[inline]
pub(crate) fn touch(value: &[u8]) -> u64 {
    value.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>() + value.len() as u64
}

/// A fast pseudo-random sequence.
pub(crate) struct Dice(u64);

impl Dice {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(scramble(seed) | 1)
    }

    /// The next number below `bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(scramble(self.0)) * u128::from(bound)) >> 64) as u64
    }
}

/// Records laid out in memory one behind the other, for loads.
pub(crate) struct Records {
    shape: Shape,
    bytes: Vec<u8>,
}

impl Records {
    /// The records of these numbers, in the order of the numbers: no order of keys.
    pub(crate) fn make(shape: Shape, count: u64) -> Records {
        let mut bytes = Vec::with_capacity(count as usize * (shape.key_bytes() + DOCUMENT_BYTES));
        let mut text = [0; DOCUMENT_BYTES];
        for number in 0..count {
            document(number, 0, &mut text);
            bytes.extend_from_slice(shape.key(number).bytes());
            bytes.extend_from_slice(&text);
        }
        Records { shape, bytes }
    }

    /// Keys and documents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let key_bytes = self.shape.key_bytes();
        self.bytes.chunks_exact(key_bytes + DOCUMENT_BYTES).map(move |record| record.split_at(key_bytes))
    }

    /// The records in the order of their keys, sorted in memory: the way of an application whose engine wants its
    /// input in order.
    pub(crate) fn sorted(&self) -> Vec<(&[u8], &[u8])> {
        // The bytes that differ, as one integer: long keys are told apart by their last sixteen.
        let differing = |key: &[u8]| {
            let mut last = [0; 16];
            last[16 - key.len().min(16)..].copy_from_slice(&key[key.len().saturating_sub(16)..]);
            u128::from_be_bytes(last)
        };
        let mut sorted: Vec<_> = self.iter().map(|(key, document)| (differing(key), key, document)).collect();
        sorted.sort_unstable_by_key(|record| record.0);
        sorted.into_iter().map(|(_, key, document)| (key, document)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_the_order_of_their_keys_each_once() {
        for shape in [Shape::Short, Shape::Long] {
            let records = Records::make(shape, 5_000);
            let sorted = records.sorted();
            assert_eq!(sorted.len(), 5_000);
            assert!(sorted.is_sorted_by(|one, next| one.0 < next.0));
        }
    }

    #[test]
    fn a_document_is_json_of_400_bytes_that_an_update_changes() {
        let (mut first, mut second) = ([0; DOCUMENT_BYTES], [0; DOCUMENT_BYTES]);
        document(7, 0, &mut first);
        document(7, 1, &mut second);
        assert!(first.starts_with(b"{\"id\": 00000000000000000007,\"text\": \""));
        assert!(first.ends_with(b"\"}"));
        assert_ne!(first, second);
    }
}
