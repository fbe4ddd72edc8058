//! Numbers and their decimal text, as SQLite reads and writes them.
//!
//! - Reading: the longest numeric prefix of the text; at most 19 digits are used; the result is the nearest real to them.
//! - Writing: a real's first 18 or 19 digits, rounded half up, are the basis of every further rounding ([`Digits`]). SQLite's
//!   ROUND and printf round in the same two steps, so ties have the same result.

use super::workspace::{TextBuilder, Workspace};
use crate::sql::limits::Fault;

/// Beyond this magnitude a real has no fraction.
const NO_FRACTION: f64 = 4_503_599_627_370_496.0;
/// Above this another digit might not fit: further digits only count for the exponent.
const MANTISSA_MAX: u64 = (u64::MAX - 9) / 10;
/// Exponents in text are clamped to this: beyond it the value is zero or infinite anyway.
const EXPONENT_MAX: i32 = 10_000;

/// The number at the start of a text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prefix {
    /// The value as a real.
    pub(crate) real: f64,
    /// It has digits.
    pub(crate) any: bool,
    /// It has a decimal point or an exponent.
    pub(crate) fraction: bool,
    /// Only whitespace follows it.
    pub(crate) whole: bool,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn at(text: &[u8], index: usize) -> u8 {
    text.get(index).copied().unwrap_or(0)
}

/// Reads the real number that a text starts with.
pub(crate) fn real_prefix(text: &[u8]) -> Prefix {
    let mut i = 0;
    while is_space(at(text, i)) {
        i += 1;
    }
    let negative = at(text, i) == b'-';
    if matches!(at(text, i), b'-' | b'+') {
        i += 1;
    }
    let (mut mantissa, mut exponent, mut any, mut fraction) = (0u64, 0i32, false, false);
    while at(text, i).is_ascii_digit() {
        any = true;
        if mantissa < MANTISSA_MAX {
            mantissa = mantissa * 10 + u64::from(at(text, i) - b'0');
        } else {
            exponent += 1;
        }
        i += 1;
    }
    if at(text, i) == b'.' && (any || at(text, i + 1).is_ascii_digit()) {
        i += 1;
        fraction = true;
        while at(text, i).is_ascii_digit() {
            any = true;
            if mantissa < MANTISSA_MAX {
                mantissa = mantissa * 10 + u64::from(at(text, i) - b'0');
                exponent -= 1;
            }
            i += 1;
        }
    }
    if !any {
        return Prefix::default();
    }
    if matches!(at(text, i), b'e' | b'E') {
        let mut j = i + 1;
        let minus = at(text, j) == b'-';
        if matches!(at(text, j), b'-' | b'+') {
            j += 1;
        }
        if at(text, j).is_ascii_digit() {
            let mut value = 0;
            while at(text, j).is_ascii_digit() {
                value = if value < EXPONENT_MAX { value * 10 + i32::from(at(text, j) - b'0') } else { EXPONENT_MAX };
                j += 1;
            }
            exponent = exponent.saturating_add(if minus { -value } else { value });
            fraction = true;
            i = j;
        }
    }
    let whole = text[i..].iter().all(|&b| is_space(b));
    let real = scaled(mantissa, exponent);
    Prefix { real: if negative { -real } else { real }, any, fraction, whole }
}

/// The nearest real to `mantissa * 10^exponent`.
pub(crate) fn scaled(mantissa: u64, exponent: i32) -> f64 {
    const EXACT: u64 = 1 << 53;
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    ];
    if mantissa == 0 {
        return 0.0;
    }
    // Both numbers are exact, so one operation rounds only once.
    if mantissa <= EXACT && exponent.unsigned_abs() <= 22 {
        let power = POWERS[exponent.unsigned_abs() as usize];
        return if exponent < 0 { mantissa as f64 / power } else { mantissa as f64 * power };
    }
    let mut text = [0u8; 40];
    let mut digits = itoa::Buffer::new();
    let mut length = 0;
    for piece in [digits.format(mantissa).as_bytes(), b"e", itoa::Buffer::new().format(exponent).as_bytes()] {
        text[length..length + piece.len()].copy_from_slice(piece);
        length += piece.len();
    }
    std::str::from_utf8(&text[..length]).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Whether a text is an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerText {
    /// The whole text is an integer.
    Whole,
    /// Other text follows, or there are no digits.
    Prefix,
    /// The integer does not fit 64 bits.
    Overflow,
}

/// Reads the integer that a text starts with, clamped to 64 bits.
pub(crate) fn integer_prefix(text: &[u8]) -> (i64, IntegerText) {
    let mut i = 0;
    while is_space(at(text, i)) {
        i += 1;
    }
    let negative = at(text, i) == b'-';
    if matches!(at(text, i), b'-' | b'+') {
        i += 1;
    }
    let (start, mut value, mut overflow) = (i, 0i64, false);
    while at(text, i).is_ascii_digit() {
        let digit = i64::from(at(text, i) - b'0');
        let next =
            value.checked_mul(10).and_then(|v| if negative { v.checked_sub(digit) } else { v.checked_add(digit) });
        overflow |= next.is_none();
        value = next.unwrap_or(if negative { i64::MIN } else { i64::MAX });
        if overflow {
            value = if negative { i64::MIN } else { i64::MAX };
        }
        i += 1;
    }
    let kind = match () {
        () if overflow => IntegerText::Overflow,
        () if i == start || !text[i..].iter().all(|&b| is_space(b)) => IntegerText::Prefix,
        () => IntegerText::Whole,
    };
    (value, kind)
}

/// A real as an integer: truncated towards zero, clamped to 64 bits.
#[inline]
pub(crate) fn real_to_integer(real: f64) -> i64 {
    const EDGE: f64 = 9_223_372_036_854_774_784.0;
    match real {
        r if r < -EDGE => i64::MIN,
        r if r > EDGE => i64::MAX,
        r => r as i64,
    }
}

/// Whether a real equals this integer, within the range in which every integer is exact as a real.
pub(crate) fn is_integer(real: f64, integer: i64) -> bool {
    const SAFE: i64 = 2_251_799_813_685_248;
    real == 0.0 || ((integer as f64).to_bits() == real.to_bits() && (-SAFE..SAFE).contains(&integer))
}

/// A finite real's decimal digits: `0.DIGITS * 10^point`.
#[derive(Clone, Debug)]
pub(crate) struct Digits {
    /// The sign; false for zero.
    pub(crate) negative: bool,
    /// ASCII digits; the first is 0 only for zero.
    bytes: [u8; 24],
    start: usize,
    end: usize,
    /// The place of the decimal point, counted from the first digit.
    pub(crate) point: i32,
}

/// Digits of a real before any further rounding; there may be one more.
const DIGITS: i32 = 18;

/// A real's magnitude as `mantissa * 10^exponent`, with `digits` digits or one more. With 18 digits the last one is rounded
/// half up. Fewer digits are truncated: the caller requests one more digit than it keeps, and rounds by that.
fn decimal(real: f64, digits: i32) -> (u64, i32) {
    let bits = real.to_bits() & !(1 << 63);
    let (fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let (mantissa, binary) = if biased == 0 {
        let shift = fraction.leading_zeros();
        (fraction << shift, -1074 - shift as i32)
    } else {
        ((fraction << 11) | (1 << 63), biased - 1086)
    };
    // floor(log10(2^(binary+63))), with a ratio exact enough for every exponent of a real.
    let power = digits - 1 - (((binary + 63) * 78_913) >> 18);
    if (0..=27).contains(&power) {
        // 10^p = 5^p * 2^p, and 5^27 has 63 bits: the product is exact, only the shift rounds.
        let product = u128::from(mantissa) * 5u128.pow(power as u32);
        let shift = -(binary + power);
        if (1..128).contains(&shift) {
            let half = product >> (shift - 1);
            let up = if digits == DIGITS { half & 1 } else { 0 };
            return (((half >> 1) + up) as u64, -power);
        }
    }
    // As in SQLite: with only the 64 highest bits of the power. The last digit is wrong where the digits after it are nearly a 5.
    let product = u128::from(mantissa) * u128::from(power_mantissa(power));
    let high = (product >> 64) as u64;
    // floor(log2(10^power)), with a ratio exact enough for these exponents.
    let shift = -(binary + ((power * 108_853) >> 15) + 1);
    let value = match digits {
        DIGITS => {
            let half = high >> (shift - 1);
            (half >> 1) + (half & 1)
        }
        _ => high >> shift,
    };
    (value, -power)
}

/// The 64 highest bits of `10^power`, truncated. Used for very large and very small reals.
#[cold]
fn power_mantissa(power: i32) -> u64 {
    // 10^p is 5^p times a power of two. Limbs of 64 bits, the lowest first: 5^347 has 806 bits.
    let (mut five, mut left) = (vec![1u64], power.unsigned_abs());
    while left > 0 {
        // 5^27 is the largest power of 5 that fits one limb.
        let (by, mut carry) = (u128::from(5u64.pow(left.min(27))), 0);
        for limb in &mut five {
            let product = u128::from(*limb) * by + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        if carry > 0 {
            five.push(carry as u64);
        }
        left -= left.min(27);
    }
    if power < 0 { inverse_mantissa(&five) } else { highest_bits(&five) }
}

fn highest_bits(number: &[u64]) -> u64 {
    let last = number.len() - 1;
    let (high, low) = (number[last], if last > 0 { number[last - 1] } else { 0 });
    let pair = u128::from(high) << 64 | u128::from(low);
    (pair << pair.leading_zeros() >> 64) as u64
}

/// The 64 highest bits of the reciprocal of an odd number above 1, by long division.
fn inverse_mantissa(number: &[u64]) -> u64 {
    // The dividend is the smallest power of two above the number: the first bit is one, and the remainder stays below twice the
    // number.
    let bits = 64 * number.len() - number[number.len() - 1].leading_zeros() as usize;
    let mut rest = vec![0u64; number.len() + 1];
    rest[bits / 64] = 1 << (bits % 64);
    let mut inverse = 0;
    for _ in 0..64 {
        let fits = rest[number.len()] > 0 || rest[..number.len()].iter().rev().ge(number.iter().rev());
        inverse = inverse << 1 | u64::from(fits);
        if fits {
            let mut borrow = false;
            for (place, limb) in rest.iter_mut().enumerate() {
                let (less, first) = limb.overflowing_sub(number.get(place).copied().unwrap_or(0));
                let (less, second) = less.overflowing_sub(u64::from(borrow));
                (*limb, borrow) = (less, first || second);
            }
        }
        let mut carry = 0;
        for limb in &mut rest {
            (*limb, carry) = (*limb << 1 | carry, *limb >> 63);
        }
    }
    inverse
}

/// SQLite's text for an infinite real, where the text must parse as one again.
pub(crate) fn infinite_text(real: f64) -> &'static [u8] {
    if real > 0.0 { b"9.0e+999" } else { b"-9.0e+999" }
}

/// How to round digits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rounding {
    /// To this many digits after the decimal point.
    Places(i32),
    /// To this many digits in all.
    Significant(i32),
}

impl Digits {
    /// The digits of a finite real, at most `digits_max` of them.
    pub(crate) fn of(real: f64, rounding: Rounding, digits_max: usize) -> Digits {
        if real == 0.0 {
            let mut bytes = [0; 24];
            bytes[0] = b'0';
            return Digits { negative: false, bytes, start: 0, end: 1, point: 1 };
        }
        let wanted = match rounding {
            Rounding::Significant(keep) if keep + 1 < DIGITS => keep + 1,
            _ => DIGITS,
        };
        let (value, exponent) = decimal(real, wanted);
        let mut bytes = [b'0'; 24];
        let mut start = bytes.len();
        let mut rest = value;
        while rest > 0 {
            start -= 1;
            bytes[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let end = bytes.len();
        let mut digits = Digits { negative: real < 0.0, bytes, start, end, point: (end - start) as i32 + exponent };
        digits.round(real.abs(), rounding, digits_max, exponent);
        while digits.end - digits.start > 1 && digits.bytes[digits.end - 1] == b'0' {
            digits.end -= 1;
        }
        digits
    }

    fn round(&mut self, real: f64, rounding: Rounding, digits_max: usize, exponent: i32) {
        let count = (self.end - self.start) as i32;
        let mut keep = match rounding {
            Rounding::Significant(keep) => keep,
            Rounding::Places(places) => self.point + places,
        };
        if keep == 0 && self.bytes[self.start] >= b'5' {
            self.start -= 1;
            self.bytes[self.start] = b'0';
            self.point += 1;
            keep = 1;
        }
        let count = count.max((self.end - self.start) as i32);
        if keep <= 0 || (keep >= count && count <= digits_max as i32) {
            return;
        }
        let mut keep = (keep as usize).min(digits_max);
        if keep == 17 {
            keep = self.shorter(real, exponent).unwrap_or(17);
        }
        self.cut(keep);
    }

    /// The number of digits to keep, fewer than 17, if the 17 digits end in nines or zeros and fewer still parse as the same
    /// real.
    fn shorter(&self, real: f64, exponent: i32) -> Option<usize> {
        let digits = &self.bytes[self.start..self.end];
        let count = digits.len();
        let value = |length: usize| digits[..length].iter().fold(0u64, |v, &d| v * 10 + u64::from(d - b'0'));
        if digits.get(15) == Some(&b'9') && digits[14] == b'9' {
            let length = digits[..14].iter().rposition(|&d| d != b'9').map_or(0, |last| last + 1);
            let rounded = if length == 0 { 1 } else { value(length) + 1 };
            return (scaled(rounded, exponent + (count - length) as i32) == real).then_some(length + 1);
        }
        let zeros = digits.get(13..16).is_some_and(|d| d == b"000");
        if self.point >= count as i32 || zeros {
            let length = digits[..13].iter().rposition(|&d| d != b'0').map_or(1, |last| last + 1);
            return (scaled(value(length), exponent + (count - length) as i32) == real).then_some(length + 1);
        }
        None
    }

    /// Keeps the first `keep` digits, rounding half up.
    fn cut(&mut self, keep: usize) {
        let (start, next) = (self.start, self.start + keep);
        let up = self.bytes.get(next).is_some_and(|&digit| digit >= b'5') && next < self.end;
        self.end = next.min(self.end);
        if !up {
            return;
        }
        for place in (start..self.end).rev() {
            if self.bytes[place] < b'9' {
                self.bytes[place] += 1;
                return;
            }
            self.bytes[place] = b'0';
        }
        self.start -= 1;
        self.bytes[self.start] = b'1';
        self.point += 1;
    }

    /// The digits as ASCII.
    pub(crate) fn ascii(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

/// ROUND(real, places).
pub(crate) fn round(real: f64, places: i64) -> f64 {
    let places = places.clamp(0, 30) as u32;
    if !(-NO_FRACTION..=NO_FRACTION).contains(&real) || real == 0.0 {
        return if real == 0.0 { 0.0 } else { real };
    }
    if places == 0 {
        return (real + if real < 0.0 { -0.5 } else { 0.5 }) as i64 as f64;
    }
    round_quickly(real, places).unwrap_or_else(|| round_by_digits(real, places))
}

/// The same from the real's decimal digits, for `places` of at least 1.
fn round_by_digits(real: f64, places: u32) -> f64 {
    let (value, exponent) = decimal(real, DIGITS);
    let drop = -exponent - places as i32;
    if drop <= 0 {
        return real; // All its digits are kept.
    }
    // 10^drop exceeds the largest number of 19 digits: the result is zero with the sign.
    let rounded = if drop > 19 {
        0
    } else {
        ((u128::from(value) + 10u128.pow(drop as u32) / 2) / 10u128.pow(drop as u32)) as u64
    };
    let magnitude = scaled(rounded, -(places as i32));
    if real < 0.0 { -magnitude } else { magnitude }
}

/// The same where one multiplication is exact enough. The product is off by less than 2^-12, so a fraction farther than 2^-10
/// from a half rounds to the same side as the digits do. The quotient is the real nearest to the decimals.
fn round_quickly(real: f64, places: u32) -> Option<f64> {
    const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
    const PRODUCT_MAX: f64 = 1_099_511_627_776.0; // 2^40
    const DOUBT: f64 = 1.0 / 1024.0;
    let power = *POWERS.get(places as usize)?;
    let product = real.abs() * power;
    if product >= PRODUCT_MAX {
        return None;
    }
    let floor = product.floor();
    let fraction = product - floor;
    if (fraction - 0.5).abs() < DOUBT {
        return None;
    }
    let magnitude = if fraction > 0.5 { floor + 1.0 } else { floor } / power;
    Some(if real < 0.0 { -magnitude } else { magnitude })
}

/// A real as text: at most 17 digits that parse as the same number, always with a point or an exponent.
pub(crate) fn real_text<'a>(real: f64, workspace: Workspace<'a>) -> Result<&'a [u8], Fault> {
    if real.is_nan() {
        return Ok(b"");
    }
    if real.is_infinite() {
        return Ok(if real > 0.0 { b"Inf" } else { b"-Inf" });
    }
    let digits = Digits::of(real, Rounding::Significant(17), 20);
    let mut out = workspace.text();
    if digits.negative {
        out.push(b'-')?;
    }
    let ascii = digits.ascii();
    let exponent = digits.point - 1;
    if (-4..=16).contains(&exponent) {
        plain(ascii, digits.point, &mut out)?;
    } else {
        out.push(ascii[0])?;
        out.push(b'.')?;
        out.extend(if ascii.len() > 1 { &ascii[1..] } else { b"0" })?;
        out.extend(if exponent < 0 { b"e-" } else { b"e+" })?;
        let magnitude = exponent.unsigned_abs();
        if magnitude < 10 {
            out.push(b'0')?;
        }
        out.extend(itoa::Buffer::new().format(magnitude).as_bytes())?;
    }
    Ok(out.finish())
}

fn plain(ascii: &[u8], point: i32, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    let whole = point.max(0) as usize;
    if whole == 0 {
        out.extend(b"0.")?;
        out.fill(b'0', point.unsigned_abs() as usize)?;
        return out.extend(ascii);
    }
    out.extend(&ascii[..whole.min(ascii.len())])?;
    out.fill(b'0', whole.saturating_sub(ascii.len()))?;
    out.push(b'.')?;
    out.extend(if ascii.len() > whole { &ascii[whole..] } else { b"0" })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(real: f64, places: u32) {
        if let Some(quick) = round_quickly(real, places) {
            assert_eq!(quick.to_bits(), round_by_digits(real, places).to_bits(), "{real:e} to {places}");
        }
    }

    #[test]
    fn powers_have_their_64_highest_bits() {
        // Powers with fewer bits are padded with zeros.
        assert_eq!(power_mantissa(0), 1 << 63);
        assert_eq!(power_mantissa(1), 0xa000_0000_0000_0000);
        assert_eq!(power_mantissa(27), 5u64.pow(27) << 1);
        assert_eq!(power_mantissa(28), ((u128::from(5u64.pow(27)) * 5) << 62 >> 64) as u64);
        assert_eq!(power_mantissa(-1), 0xcccc_cccc_cccc_cccc);
        assert_eq!(power_mantissa(-2), 0xa3d7_0a3d_70a3_d70a);
        // 10^100 and 10^-100 in the tables of other conversions.
        assert_eq!(power_mantissa(100), 0x924d_692c_a61b_e758);
        assert_eq!(power_mantissa(-100), 0xdff9_7724_7029_7ebd);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_quick_way_rounds_as_the_digits_do(
            real in prop_oneof![any::<f64>(), -1e12..1e12, -10.0..10.0, (-1i64 << 40..1 << 40).prop_map(|n| n as f64 / 1e6)],
            sum in 0u32..1000,
            count in 1u32..200,
            places in 1u32..10,
        ) {
            if real.abs() <= NO_FRACTION && real != 0.0 {
                check(real, places);
            }
            check(f64::from(sum + 1) / f64::from(count), places);
        }

        #[test]
        fn ties_and_their_neighbours_round_as_the_digits_do(half in 0u32..2_000_000, places in 1u32..7, by in -3i64..4) {
            let tie = (f64::from(half) + 0.5) / 10f64.powi(places as i32);
            check(f64::from_bits((tie.to_bits() as i64 + by) as u64), places);
        }
    }

    #[test]
    fn averages_of_few_marks_are_rounded_quickly() {
        assert_eq!(round_quickly(10.0 / 3.0, 5), Some(3.33333));
        assert_eq!(round_quickly(-0.000_004, 5).map(f64::to_bits), Some((-0.0f64).to_bits()));
    }
}
