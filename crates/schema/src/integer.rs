//! The integer that a JSON number equals.

use binjson::JsonValue;

/// The integer that a value of type `integer` is: within 64 bits, written in digits or otherwise (5.0, 1e2). A number that a real
/// would round, such as 9007199254740993.0, is none, because queries compute with the real.
#[inline]
pub fn integer_of(value: JsonValue<'_>) -> Option<i64> {
    value.as_i64().or_else(|| {
        let real = value.as_f64()?;
        exact_integer(value.raw()).filter(|integer| real as i128 == i128::from(*integer))
    })
}

/// The integer within 64 bits that a JSON number equals exactly: 5 for `5`, `5.0`, `500e-2`. A real would round some.
pub fn exact_integer(number: &[u8]) -> Option<i64> {
    let (is_negative, number) = match number {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, number),
    };
    let mut parts = number.splitn(2, |byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = (parts.next()?, parts.next().unwrap_or(b"0"));
    let fraction = mantissa.iter().position(|&byte| byte == b'.').map_or(0, |point| mantissa.len() - point - 1);
    let digits = mantissa.iter().copied().filter(|&byte| byte != b'.').skip_while(|&byte| byte == b'0');
    let digits: Vec<u8> = digits.collect();
    let Some(last) = digits.iter().rposition(|&byte| byte != b'0') else { return Some(0) };
    // The power of ten of the last digit that is not zero. An exponent that is no number of 64 bits is beyond every integer.
    let exponent: i64 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    let power = exponent.checked_sub(fraction as i64)?.checked_add((digits.len() - last - 1) as i64)?;
    let power = u32::try_from(power).ok()?;
    let significant: u64 = std::str::from_utf8(&digits[..=last]).ok()?.parse().ok()?;
    let magnitude = significant.checked_mul(10_u64.checked_pow(power)?)?;
    if is_negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(number: &str, expected: Option<i64>) {
        assert_eq!(exact_integer(number.as_bytes()), expected, "{number}");
    }

    #[test]
    fn a_number_is_the_integer_that_it_equals_however_it_is_written() {
        for (number, integer) in [
            ("0", 0),
            ("-0.000e7", 0),
            ("5", 5),
            ("5.0", 5),
            ("-5.00e0", -5),
            ("500e-2", 5),
            ("0.05E+2", 5),
            ("1e18", 1_000_000_000_000_000_000),
            ("100000000000000001.0", 100_000_000_000_000_001),
            ("9223372036854775807.0", i64::MAX),
            ("-9223372036854775808.0", i64::MIN),
        ] {
            check(number, Some(integer));
        }
    }

    #[test]
    fn what_equals_no_integer_of_64_bits_is_none() {
        let numbers = ["5.0000000000000000001", "0.5", "5e-1", "9223372036854775808", "-9223372036854775809", "1e19"];
        for number in numbers.into_iter().chain(["1e300", "5e9999999999999999999", "5e-9999999999999999999"]) {
            check(number, None);
        }
    }
}
