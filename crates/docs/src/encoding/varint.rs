//! Variable-length numbers (LEB128); signed ones in zigzag, so that small numbers of either sign are short.

/// Longest encoding: 128 bits, seven in a byte.
const BYTES_MAX: usize = 19;

/// Appends a number.
#[inline]
pub(crate) fn push(out: &mut Vec<u8>, number: u64) {
    // Most are lengths and counts of one byte, which this inlined path writes.
    if number < 0x80 { out.push(number as u8) } else { push_wide(out, u128::from(number)) }
}

/// Takes a number off the front of `bytes`. `None`: damaged.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Some(u64::from(byte))
        }
        _ => u64::try_from(take_wide(bytes)?).ok(),
    }
}

/// Appends a signed number.
#[inline]
pub(crate) fn push_signed(out: &mut Vec<u8>, number: i64) {
    push(out, (number << 1 ^ number >> 63) as u64);
}

/// Takes a signed number off the front. `None`: damaged.
#[inline]
pub(crate) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let number = take(bytes)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

/// Appends a signed number of 128 bits.
pub(crate) fn push_wide_signed(out: &mut Vec<u8>, number: i128) {
    push_wide(out, (number << 1 ^ number >> 127) as u128);
}

/// Takes a signed number of 128 bits off the front. `None`: damaged.
pub(crate) fn take_wide_signed(bytes: &mut &[u8]) -> Option<i128> {
    let number = take_wide(bytes)?;
    Some((number >> 1) as i128 ^ -((number & 1) as i128))
}

fn push_wide(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_wide(bytes: &mut &[u8]) -> Option<u128> {
    let mut number = 0u128;
    for (at, &byte) in bytes.iter().enumerate().take(BYTES_MAX) {
        let part = u128::from(byte & 0x7f);
        let moved = part << (7 * at);
        if moved >> (7 * at) != part {
            return None;
        }
        number |= moved;
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_leave_the_rest(a in any::<u64>(), b in any::<i64>(), c in any::<i128>(), small in -200i64..200) {
            let mut bytes = Vec::new();
            push(&mut bytes, a);
            push_signed(&mut bytes, b);
            push_wide_signed(&mut bytes, c);
            push_signed(&mut bytes, small);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(a));
            prop_assert_eq!(take_signed(&mut rest), Some(b));
            prop_assert_eq!(take_wide_signed(&mut rest), Some(c));
            prop_assert_eq!(take_signed(&mut rest), Some(small));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn damaged_bytes_are_none_or_a_number_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            take(&mut &bytes[..]);
            take_signed(&mut &bytes[..]);
            take_wide_signed(&mut &bytes[..]);
        }
    }

    #[test]
    fn the_edges_come_back() {
        for number in [i128::MIN, i128::MAX, 0, -1, 1] {
            let mut bytes = Vec::new();
            push_wide_signed(&mut bytes, number);
            assert_eq!(take_wide_signed(&mut &bytes[..]), Some(number));
        }
    }
}
