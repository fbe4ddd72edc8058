//! Decimal integers as Redis reads them (`string2ll`), one byte at a time, so that a number may be split anywhere.
//!
//! `0`, `17` and `-17` are numbers. Refused: an empty text, `+1`, `01`, `-0`, blanks, and numbers beyond 64 bits.

/// A number whose digits are still arriving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    magnitude: u64,
    bytes: usize,
    is_negative: bool,
    is_malformed: bool,
    /// Whether the first byte was `?`, which in RESP3 stands for an unknown length.
    begins_with_question_mark: bool,
}

impl Number {
    /// A number without any byte.
    pub(crate) const EMPTY: Number =
        Number { magnitude: 0, bytes: 0, is_negative: false, is_malformed: false, begins_with_question_mark: false };

    /// Adds the next byte of the line. A malformed number stays malformed, and [`Number::value`] reports it: Redis too
    /// reports the error at the end of the line.
    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => self.push_digit(u64::from(byte - b'0')),
            b'-' if self.bytes == 0 => self.is_negative = true,
            _ => {
                self.is_malformed = true;
                self.begins_with_question_mark |= byte == b'?' && self.bytes == 0;
            }
        }
        self.bytes += 1;
    }

    #[inline]
    fn push_digit(&mut self, digit: u64) {
        let has_leading_zero = self.magnitude == 0 && self.bytes > usize::from(self.is_negative);
        match self.magnitude.checked_mul(10).and_then(|tens| tens.checked_add(digit)) {
            Some(magnitude) if !has_leading_zero => self.magnitude = magnitude,
            _ => self.is_malformed = true,
        }
    }

    /// Number of bytes that were pushed.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the text is `?`.
    pub(crate) fn is_question_mark(&self) -> bool {
        self.begins_with_question_mark && self.bytes == 1
    }

    /// The number, if the bytes form one.
    #[inline]
    pub(crate) fn value(&self) -> Option<i64> {
        let is_empty = self.bytes == usize::from(self.is_negative);
        if self.is_malformed || is_empty {
            return None;
        }
        match self.is_negative {
            false => i64::try_from(self.magnitude).ok(),
            true if self.magnitude == 0 => None,
            true => 0i64.checked_sub_unsigned(self.magnitude),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Number;
    use proptest::prelude::*;

    fn parse(text: &[u8]) -> Option<i64> {
        let mut number = Number::EMPTY;
        text.iter().for_each(|&byte| number.push(byte));
        number.value()
    }

    #[test]
    fn only_the_shortest_form_of_a_number_is_one() {
        for text in ["0", "7", "10", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(parse(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in ["", "-", "+1", "01", "00", "-0", "-01", " 1", "1 ", "1.0", "--1", "1-", "a", "?"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        for text in ["9223372036854775808", "-9223372036854775809", "99999999999999999999"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_integer_survives_its_text(number: i64) {
            prop_assert_eq!(parse(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn what_is_accepted_is_what_the_number_prints_as(text in "[-0-9]{0,21}") {
            let expected = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
            prop_assert_eq!(parse(text.as_bytes()), expected);
        }
    }
}
