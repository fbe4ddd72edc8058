//! Heads of keys: the first 8 bytes as an integer, compared instead of the keys themselves wherever that decides.

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 8;

/// The first 8 bytes, zero-padded, as an integer in byte order.
#[inline]
pub(crate) fn head(suffix: &[u8]) -> u64 {
    if let Some(bytes) = suffix.first_chunk::<HEAD_BYTES>() {
        return u64::from_be_bytes(*bytes);
    }
    // Copying a variable number of bytes would be a call of memcpy, which costs more than the search of a node: two
    // overlapping loads yield 4 to 7 bytes, three loads 1 to 3.
    let padding = 8 * (HEAD_BYTES - suffix.len()) as u32;
    match (suffix.first_chunk::<4>(), suffix.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << padding
        }
        _ => match *suffix {
            [a, b, c] => u64::from_be_bytes([a, b, c, 0, 0, 0, 0, 0]),
            [a, b] => u64::from_be_bytes([a, b, 0, 0, 0, 0, 0, 0]),
            [a] => u64::from(a) << 56,
            _ => 0,
        },
    }
}

/// Length of the common prefix of two keys.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
