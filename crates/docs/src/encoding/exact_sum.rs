//! Exact sums of reals, in any order: a fixed-point number wide enough for every finite double.
//!
//! Every double is a whole multiple of 2^-1074, and the largest is below 2^1024. So a two's complement integer of
//! [`LIMBS`] words, in units of 2^-1074, holds any sum of fewer than 2^63 doubles exactly (Kulisch's long accumulator,
//! "Computer Arithmetic and Validity", 2008, chapter 8). Addition is commutative and associative, subtracting undoes
//! adding to the last bit, and [`ExactSum::round`] rounds once, to nearest, ties to even.
//!
//! In the stored form the words that are only sign or zero are left out. A sum has one encoding, so equal sums are equal bytes:
//!
//! ```text
//!  zero           00
//!  anything else  length n (varint) | place p of the lowest nonzero byte (varint) | n bytes, little-endian,
//!                 two's complement, without trailing bytes that only repeat the sign
//! ```

use super::varint;

/// 2,098 bits for the doubles themselves, 63 for their number and one for the sign, rounded up to whole words.
const LIMBS: usize = 34;
const BYTES: usize = LIMBS * 8;
/// The bit of 1: 2^0 in units of 2^-1074.
pub(crate) const ONE_BIT: usize = 1074;
/// Bits of a double's fraction.
const FRACTION_BITS: usize = 52;
const EXPONENT_MAX: u64 = 0x7ff;

const _: () = assert!(LIMBS * 64 > 2098 + 63, "any sum must fit");

/// An exact sum of finite doubles and integers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ExactSum {
    limbs: [u64; LIMBS],
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum { limbs: [0; LIMBS] }
    }
}

impl std::fmt::Debug for ExactSum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ExactSum({})", self.round())
    }
}

impl ExactSum {
    /// Adds a finite double.
    #[inline]
    pub(crate) fn add(&mut self, real: f64) {
        debug_assert!(real.is_finite());
        let bits = real.to_bits();
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        let exponent = bits >> FRACTION_BITS & EXPONENT_MAX;
        // A subnormal has no hidden bit, and the exponent of the smallest normal.
        let (mantissa, shift) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << FRACTION_BITS, exponent as usize - 1),
        };
        self.add_shifted(u128::from(mantissa), shift, bits >> 63 == 1);
    }

    /// Subtracts a finite double.
    #[cfg(test)]
    fn subtract(&mut self, real: f64) {
        self.add(-real);
    }

    /// Adds an integer.
    pub(crate) fn add_integer(&mut self, integer: i128) {
        self.add_scaled(integer, ONE_BIT);
    }

    /// Adds an integer whose lowest bit is at `bit`.
    pub(crate) fn add_scaled(&mut self, integer: i128, bit: usize) {
        let magnitude = integer.unsigned_abs();
        let negative = integer < 0;
        // In two parts, as the shift needs up to 63 more bits.
        self.add_shifted(magnitude & u128::from(u64::MAX), bit, negative);
        self.add_shifted(magnitude >> 64, bit + 64, negative);
    }

    /// Adds or subtracts up to 64 bits at a bit position.
    #[inline]
    fn add_shifted(&mut self, magnitude: u128, shift: usize, negative: bool) {
        let word = shift / 64;
        let moved = magnitude << (shift % 64);
        let parts = [moved as u64, (moved >> 64) as u64];
        let mut carry = false;
        for (limb, place) in self.limbs[word..].iter_mut().zip(0..) {
            let part = parts.get(place).copied().unwrap_or(0);
            if place >= parts.len() && !carry {
                return;
            }
            let (sum, first) = if negative { limb.overflowing_sub(part) } else { limb.overflowing_add(part) };
            let one = u64::from(carry);
            let (sum, second) = if negative { sum.overflowing_sub(one) } else { sum.overflowing_add(one) };
            *limb = sum;
            carry = first | second;
        }
    }

    /// Adds another sum.
    pub(crate) fn add_sum(&mut self, other: &ExactSum) {
        let mut carry = false;
        for (limb, part) in self.limbs.iter_mut().zip(&other.limbs) {
            let (sum, first) = limb.overflowing_add(*part);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = first | second;
        }
    }

    /// Negates the sum.
    pub(crate) fn negate(&mut self) {
        let mut carry = true;
        for limb in &mut self.limbs {
            let (sum, over) = (!*limb).overflowing_add(u64::from(carry));
            *limb = sum;
            carry = over;
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
    }

    /// The nearest double, ties to even; infinite beyond the range.
    pub(crate) fn round(&self) -> f64 {
        let negative = self.limbs[LIMBS - 1] >> 63 == 1;
        let mut magnitude = self.clone();
        if negative {
            magnitude.negate();
        }
        let magnitude = round_magnitude(&magnitude.limbs);
        if negative { -magnitude } else { magnitude }
    }

    /// Appends its unique encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Some(low) = self.limbs.iter().position(|limb| *limb != 0) else {
            out.push(0);
            return;
        };
        let fill = if self.limbs[LIMBS - 1] >> 63 == 1 { u64::MAX } else { 0 };
        let high = self.limbs.iter().rposition(|limb| *limb != fill).unwrap_or(0).max(low);
        let mut bytes = [fill as u8; BYTES];
        for (place, limb) in self.limbs[low..=high].iter().enumerate() {
            bytes[place * 8..place * 8 + 8].copy_from_slice(&limb.to_le_bytes());
        }
        // One sign byte may be needed after the last word.
        let all = &bytes[..((high - low + 1) * 8 + 1).min(BYTES)];
        let start = (self.limbs[low].trailing_zeros() / 8) as usize;
        let is_sign = |place: usize| all[place] == fill as u8 && all[place - 1] >> 7 == fill as u8 & 1;
        let mut end = all.len();
        while end > start + 1 && is_sign(end - 1) {
            end -= 1;
        }
        varint::push(out, (end - start) as u64);
        varint::push(out, (low * 8 + start) as u64);
        out.extend_from_slice(&all[start..end]);
    }

    /// Decodes a sum from the front of `bytes` and adds it. `None`: damaged.
    pub(crate) fn add_encoded(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let length = usize::try_from(varint::take(bytes)?).ok()?;
        if length == 0 {
            return Some(());
        }
        let start = usize::try_from(varint::take(bytes)?).ok()?;
        let (digits, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        if start.checked_add(length)? > BYTES {
            return None;
        }
        let fill = if digits[length - 1] >> 7 == 1 { 0xff } else { 0 };
        let mut carry = false;
        let first = start / 8;
        for (limb, word) in self.limbs[first..].iter_mut().zip(first..) {
            let at = word * 8;
            if at >= start + length && carry == (fill != 0) {
                return Some(()); // Adding zeros, or all ones and a carry, changes no further word.
            }
            let mut part = [fill; 8];
            for (place, byte) in part.iter_mut().enumerate() {
                match (at + place).checked_sub(start) {
                    None => *byte = 0,
                    Some(place) => *byte = digits.get(place).copied().unwrap_or(fill),
                }
            }
            let (sum, first) = limb.overflowing_add(u64::from_le_bytes(part));
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = first | second;
        }
        Some(())
    }
}

fn round_magnitude(limbs: &[u64; LIMBS]) -> f64 {
    let Some(top) = limbs.iter().rposition(|limb| *limb != 0) else { return 0.0 };
    let highest = top * 64 + 63 - limbs[top].leading_zeros() as usize;
    if highest <= FRACTION_BITS {
        return f64::from_bits(limbs[0]); // Exact: a subnormal, or the smallest exponent, whose hidden bit is bit 52.
    }
    let shift = highest - FRACTION_BITS;
    let (word, bit) = (shift / 64, shift % 64);
    let above = limbs.get(word + 1).copied().unwrap_or(0);
    let mut mantissa = limbs[word] >> bit;
    if bit > 0 {
        mantissa |= above << (64 - bit);
    }
    mantissa &= (1 << (FRACTION_BITS + 1)) - 1;
    let half = shift - 1;
    let is_half = limbs[half / 64] >> (half % 64) & 1 == 1;
    let below = limbs[half / 64] & ((1 << (half % 64)) - 1) != 0 || limbs[..half / 64].iter().any(|limb| *limb != 0);
    let up = is_half && (below || mantissa & 1 == 1);
    // The hidden bit adds one to the exponent, as a carry out of the fraction does.
    let exponent = shift as u64;
    if exponent > EXPONENT_MAX - 2 {
        return f64::INFINITY;
    }
    f64::from_bits((exponent << FRACTION_BITS) + mantissa + u64::from(up))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(reals: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        reals.iter().for_each(|real| sum.add(*real));
        sum
    }

    fn encoded(sum: &ExactSum) -> Vec<u8> {
        let mut out = Vec::new();
        sum.encode(&mut out);
        out
    }

    #[track_caller]
    fn check(reals: &[f64], expected: f64) {
        assert_eq!(of(reals).round().to_bits(), expected.to_bits(), "{reals:?}: {} {expected}", of(reals).round());
    }

    /// Any finite double, with special values often.
    fn real() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |real| real.is_finite()),
            (-1000i32..1000).prop_map(|tenths| f64::from(tenths) / 10.0),
            prop_oneof![Just(f64::MAX), Just(f64::MIN), Just(5e-324), Just(-5e-324), Just(-0.0), Just(1e16), Just(1.0)],
            (0i32..2046).prop_map(|power| f64::from_bits((power as u64) << 52)),
        ]
    }

    /// A slow reference: the sum in units of 2^-1074 with 32-bit digits, rounded.
    fn naive(reals: &[f64]) -> f64 {
        // 32-bit digits with room for carries.
        let mut digits = [0i64; 80];
        for real in reals {
            let bits = real.to_bits();
            let exponent = (bits >> 52 & 0x7ff) as usize;
            let fraction = bits & ((1 << 52) - 1);
            let (mantissa, shift) = if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
            for bit in (0..53).filter(|bit| mantissa >> bit & 1 == 1) {
                let place = shift + bit;
                digits[place / 32] += if *real < 0.0 { -(1i64 << (place % 32)) } else { 1i64 << (place % 32) };
            }
        }
        let normalise = |digits: &mut [i64; 80]| {
            for at in 0..79 {
                let carry = digits[at].div_euclid(1 << 32);
                digits[at] -= carry << 32;
                digits[at + 1] += carry;
            }
        };
        normalise(&mut digits);
        let negative = digits[79] < 0;
        if negative {
            digits.iter_mut().for_each(|digit| *digit = -*digit);
            normalise(&mut digits);
        }
        let bit = |place: usize| digits[place / 32] >> (place % 32) & 1;
        let Some(top) = (0..80 * 32).rev().find(|place| bit(*place) == 1) else { return 0.0 };
        let shift = top.saturating_sub(52);
        let mut mantissa = (shift..=top).rev().fold(0u64, |mantissa, place| mantissa << 1 | bit(place) as u64);
        if shift > 0 && bit(shift - 1) == 1 && ((0..shift - 1).any(|place| bit(place) == 1) || mantissa & 1 == 1) {
            mantissa += 1;
        }
        // Each step is exact: powers of two; only the last one may reach a subnormal or overflow.
        let mut value = mantissa as f64;
        let mut left = shift as i32 - 1074;
        while left != 0 {
            let step = left.clamp(-1000, 1000);
            value *= 2f64.powi(step);
            left -= step;
        }
        if negative { -value } else { value }
    }

    #[test]
    fn known_sums_are_rounded_once() {
        check(&[], 0.0);
        check(&[-0.0, -0.0], 0.0);
        check(&[0.1; 10], 1.0);
        check(&[1e16, 1.0, -1e16], 1.0);
        check(&[1e308, 1e308, -1e308], 1e308);
        check(&[f64::MAX, f64::MAX], f64::INFINITY);
        check(&[f64::MAX, f64::MAX, f64::MIN], f64::MAX);
        check(&[f64::MAX, 2f64.powi(969)], f64::MAX);
        check(&[f64::MAX, 2f64.powi(970)], f64::INFINITY);
        check(&[5e-324, 5e-324], 1e-323);
        check(&[1.0, 2f64.powi(-53)], 1.0);
        check(&[1.0, 2f64.powi(-53), 5e-324], 1.0 + f64::EPSILON);
        check(&[-1.0, -(2f64.powi(-53)), -5e-324], -1.0 - f64::EPSILON);
        check(&[2.2250738585072014e-308, -5e-324], 2.225073858507201e-308);
    }

    #[test]
    fn integers_are_added_as_they_are() {
        for integer in [0, 1, -1, i128::from(i64::MAX), i128::from(i64::MIN), i128::MAX, i128::MIN, (1 << 53) + 1] {
            let mut sum = ExactSum::default();
            sum.add_integer(integer);
            assert_eq!(sum.round(), integer as f64, "{integer}");
            sum.add_integer(integer.wrapping_neg());
            assert_eq!(sum.is_zero(), integer != i128::MIN, "{integer}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_sum_is_the_nearest_double_to_the_true_one(reals in prop::collection::vec(real(), 0..12)) {
            let sum = of(&reals).round();
            // The naive way rounds twice only if the result is subnormal, and a subnormal sum is exact.
            prop_assert_eq!(sum.to_bits(), naive(&reals).to_bits(), "{} {}", sum, naive(&reals));
        }

        #[test]
        fn order_and_grouping_do_not_matter(reals in prop::collection::vec(real(), 0..12), cut in 0usize..12) {
            let mut backwards = reals.clone();
            backwards.reverse();
            prop_assert_eq!(of(&reals), of(&backwards));
            let cut = cut.min(reals.len());
            let (mut first, second) = (of(&reals[..cut]), of(&reals[cut..]));
            let mut third = first.clone();
            let bytes = encoded(&second);
            third.add_encoded(&mut &bytes[..]).unwrap();
            first.add_sum(&second);
            prop_assert_eq!(&first, &of(&reals));
            prop_assert_eq!(&third, &first);
        }

        #[test]
        fn taking_out_undoes_adding_to_the_last_bit(before in prop::collection::vec(real(), 0..6), reals in prop::collection::vec(real(), 0..12)) {
            let mut sum = of(&before);
            reals.iter().for_each(|real| sum.add(*real));
            reals.iter().rev().for_each(|real| sum.subtract(*real));
            prop_assert_eq!(sum, of(&before));
        }

        #[test]
        fn equal_sums_are_equal_bytes_and_come_back(reals in prop::collection::vec(real(), 0..8), other in real()) {
            let mut detour = of(&reals);
            detour.add(other);
            detour.subtract(other);
            let bytes = encoded(&of(&reals));
            prop_assert_eq!(&bytes, &encoded(&detour));
            let (mut back, mut rest) = (ExactSum::default(), &bytes[..]);
            back.add_encoded(&mut rest).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(back, detour);
        }

        #[test]
        fn the_encoding_has_no_byte_too_many(reals in prop::collection::vec(real(), 1..4)) {
            let bytes = encoded(&of(&reals));
            if bytes.len() > 1 {
                let mut rest = &bytes[..];
                let length = varint::take(&mut rest).unwrap() as usize;
                varint::take(&mut rest).unwrap();
                prop_assert_eq!(rest.len(), length);
                prop_assert!(rest[0] != 0);
                if let [.., before, last] = rest {
                    prop_assert!(!(*last == 0 && before >> 7 == 0 || *last == 0xff && before >> 7 == 1), "{:?}", rest);
                }
            }
        }

        #[test]
        fn damaged_bytes_are_none_or_a_sum_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut sum = ExactSum::default();
            sum.add(1.0);
            let _ = sum.add_encoded(&mut &bytes[..]);
        }
    }
}
