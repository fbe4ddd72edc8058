//! Result rows: the trait [`RowSink`], and sinks that write JSON or drop the rows.

use binjson::{append_string, append_text};

use crate::sql::limits::QueryError;
use crate::sql::values::{FieldValue, Value};

/// Receives result rows, column by column.
pub trait RowSink {
    /// A row starts. The default does nothing.
    #[inline(always)]
    fn begin_row(&mut self) {}
    /// The row's next column, by its number. Real numbers are finite.
    fn field(&mut self, column: usize, field: FieldValue<'_>);
    /// The row ends.
    fn end_row(&mut self);
    /// The row ends. The number is the count of rows that the execution has read by then. The default calls [`Self::end_row`].
    #[inline(always)]
    fn end_row_at(&mut self, _rows_read: u64) {
        self.end_row();
    }
    /// Bytes received so far, for the limit of a result's size.
    fn bytes(&self) -> usize;
    /// Whether more rows are wanted. Called after each row.
    #[inline(always)]
    fn is_wanted(&self) -> bool {
        true
    }
    /// Whether the sink accepts infinite reals. A sink does if the query processes its rows further.
    #[inline(always)]
    fn takes_infinite(&self) -> bool {
        false
    }
    /// Whether [`Self::note_read`] and [`Self::note_row`] are to be called. Asked once for an execution.
    #[inline(always)]
    fn counts_levels(&self) -> bool {
        false
    }
    /// A level of the plan has scanned an entry.
    #[inline(always)]
    fn note_read(&mut self, _level: usize) {}
    /// A row has passed a level's predicates.
    #[inline(always)]
    fn note_row(&mut self, _level: usize) {}
    /// `_rows` rows of a subquery were kept.
    #[inline(always)]
    fn note_kept(&mut self, _inner: usize, _rows: usize) {}
    /// How often a correlated query's rows were requested, and how often it ran.
    #[inline(always)]
    fn note_asked(&mut self, _inner: usize, _asked: u64, _runs: u64) {}
}

/// Drops rows: for statements without rows, and for callers that need only [`crate::sql::ExecutionCounts::rows`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRows;

impl RowSink for NoRows {
    fn field(&mut self, _column: usize, _field: FieldValue<'_>) {}
    fn end_row(&mut self) {}
    fn bytes(&self) -> usize {
        0
    }
}

/// The JSON text around the values of a row, made once for a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowShape {
    /// The text before each column's value: `{"name":` or `,"name":`.
    before: Vec<Piece>,
}

impl RowShape {
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let before = names.enumerate().map(|(number, name)| {
            let mut text = vec![if number == 0 { b'{' } else { b',' }];
            append_string(&mut text, name);
            text.push(b':');
            Piece::new(text)
        });
        RowShape { before: before.collect() }
    }
}

/// Bytes of one fixed-size copy: two words or one vector register.
const WINDOW: usize = 16;

/// A text that is written often. A short one is copied as a whole window and truncated: two moves, while a copy of variable
/// length is a function call.
#[derive(Clone, Debug)]
struct Piece {
    window: [u8; WINDOW],
    length: usize,
    /// The text, if it is longer than the window.
    long: Box<[u8]>,
}

impl Piece {
    fn new(text: Vec<u8>) -> Self {
        let (mut window, length) = ([0; WINDOW], text.len());
        if length > WINDOW {
            return Piece { window, length, long: text.into_boxed_slice() };
        }
        window[..length].copy_from_slice(&text);
        Piece { window, length, long: Box::default() }
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if self.length > WINDOW {
            return out.extend_from_slice(&self.long);
        }
        push_window(&self.window, self.length, out);
    }
}

/// Appends the first `length` bytes of the window.
#[inline]
fn push_window<const N: usize>(window: &[u8; N], length: usize, out: &mut Vec<u8>) {
    let end = out.len() + length;
    out.extend_from_slice(window);
    out.truncate(end);
}

/// Writes rows as JSON objects, separated by commas or line ends.
pub struct JsonRows<'o> {
    shape: &'o RowShape,
    out: &'o mut Vec<u8>,
    separator: u8,
    start: usize,
    rows: u64,
}

impl<'o> JsonRows<'o> {
    pub(crate) fn new(shape: &'o RowShape, out: &'o mut Vec<u8>, separator: u8) -> Self {
        let start = out.len();
        JsonRows { shape, out, separator, start, rows: 0 }
    }

    /// The output so far. The caller may take it between two rows; the next rows are appended to the rest.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl RowSink for JsonRows<'_> {
    #[inline(always)]
    fn begin_row(&mut self) {
        if self.rows > 0 {
            self.out.push(self.separator);
        }
    }

    // Inlined, so that the kind of the field is known at compile time.
    #[inline(always)]
    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        self.shape.before[column].write(self.out);
        write_field(field, self.out);
    }

    #[inline(always)]
    fn end_row(&mut self) {
        self.out.push(b'}');
        self.rows += 1;
    }

    fn bytes(&self) -> usize {
        self.out.len().saturating_sub(self.start)
    }
}

/// Appends a field as JSON.
#[inline(always)]
pub fn write_field(field: FieldValue<'_>, out: &mut Vec<u8>) {
    match field {
        FieldValue::Json(&[digit]) => out.push(digit),
        FieldValue::Json(json) => out.extend_from_slice(json),
        FieldValue::Value(Value::Integer(integer)) => write_integer(integer, out),
        FieldValue::Value(value) => write_other(value, out),
    }
}

fn write_other(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Integer(integer) => write_integer(integer, out),
        Value::Real(real) => write_real(real, out),
        Value::Text(text) => append_text(out, text),
    }
}

/// A finite real's shortest digits. A real of few decimals, such as a result of ROUND, needs no search. An integer below 2^53
/// divided by a power of ten is the real nearest to these decimals. Different decimals of at most 15 digits are different
/// reals, so no shorter text denotes this one.
fn write_real(real: f64, out: &mut Vec<u8>) {
    const DECIMALS: usize = 6;
    const SCALE: f64 = 1e6;
    const SCALED_MAX: f64 = 1e15;
    /// Smaller reals are written with an exponent.
    const SCALED_MIN: f64 = 10.0;
    let scaled = (real.abs() * SCALE).round_ties_even();
    if scaled >= SCALED_MAX || scaled / SCALE != real.abs() || real.is_sign_negative() || scaled < SCALED_MIN {
        return out.extend_from_slice(ryu::Buffer::new().format(real).as_bytes());
    }
    let scaled = scaled as u64;
    write_integer((scaled / SCALE as u64) as i64, out);
    let (mut rest, mut digits) = ((scaled % SCALE as u64) as u32, [b'0'; DECIMALS]);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // At least one decimal is written: 1.0 is a real.
    let kept = digits.iter().rposition(|&digit| digit != b'0').unwrap_or(0) + 1;
    out.push(b'.');
    out.extend_from_slice(&digits[..kept]);
}

#[inline]
fn write_integer(integer: i64, out: &mut Vec<u8>) {
    match u32::try_from(integer) {
        Ok(small) => write_small(small, out),
        Err(_) => out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes()),
    }
}

/// A number up to 32 bits: the last eight digits at once, then the two that may precede them.
#[inline]
fn write_small(number: u32, out: &mut Vec<u8>) {
    let (high, low) = (number / EIGHT_DIGITS_END, number % EIGHT_DIGITS_END);
    let digits = eight_digits(low);
    let text = digits | ZEROS;
    if high == 0 {
        // Leading zeros are dropped, but the last digit is always written.
        let zeros = (digits.trailing_zeros() / 8).min(7);
        return push_window(&(text >> (8 * zeros)).to_le_bytes(), 8 - zeros as usize, out);
    }
    let (tens, ones) = (high / 10, high % 10);
    let whole = u128::from(text) << 16 | u128::from(tens | ones << 8 | 0x3030);
    let zeros = u32::from(tens == 0);
    push_window(&(whole >> (8 * zeros)).to_le_bytes(), 10 - zeros as usize, out);
}

/// The least number with more than eight digits.
const EIGHT_DIGITS_END: u32 = 100_000_000;
/// Eight digits 0.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of a number below [`EIGHT_DIGITS_END`] as numbers, the first in the lowest byte: split into two fours,
/// these into pairs, and these into digits, in parallel. The multiplications with shifts are divisions by 100 and by 10 that
/// are exact for numbers of this size.
#[inline]
fn eight_digits(number: u32) -> u64 {
    let fours = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let pairs = ((fours - 100 * hundreds) << 16) | hundreds;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    ((pairs - 10 * tens) << 8) | tens
}

/// The error of a result that JSON cannot represent.
pub(crate) const INFINITE: &str = "a result is infinite";

/// Whether it is a real that JSON cannot represent.
#[inline(always)]
pub(crate) fn is_infinite(field: FieldValue<'_>) -> bool {
    matches!(field, FieldValue::Value(Value::Real(real)) if !real.is_finite())
}

/// An error for a real that JSON cannot represent, unless the sink accepts it.
#[inline(always)]
pub(crate) fn check_finite<S: RowSink + ?Sized>(field: FieldValue<'_>, sink: &S) -> Result<(), QueryError> {
    if is_infinite(field) && !sink.takes_infinite() { Err(QueryError::Value(INFINITE)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(integer: i64) {
        let mut out = b"x".to_vec();
        write_integer(integer, &mut out);
        assert_eq!(String::from_utf8(out), Ok(format!("x{integer}")));
    }

    #[test]
    fn integers_of_every_length_are_written_whole() {
        for power in 0..19 {
            let ten = 10i64.pow(power);
            [ten - 1, ten, ten + 1, -ten, ten * 3 / 2].into_iter().for_each(check);
        }
        (0..2_000).for_each(check);
        (0..1 << 20).for_each(|step| assert_eq!(eight_digits(step * 95).to_le_bytes(), digits_of(step * 95)));
        [i64::MIN, i64::MAX, i64::from(u32::MAX), i64::from(u32::MAX) + 1].into_iter().for_each(check);
    }

    /// Eight digits, one by one.
    fn digits_of(mut number: u32) -> [u8; 8] {
        let mut digits = [0; 8];
        for digit in digits.iter_mut().rev() {
            *digit = (number % 10) as u8;
            number /= 10;
        }
        digits
    }

    #[track_caller]
    fn check_real(real: f64) {
        let mut out = b"x".to_vec();
        write_real(real, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("x{}", ryu::Buffer::new().format(real)));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(20_000))]

        #[test]
        fn reals_are_written_with_their_shortest_digits(
            scaled in 0u64..3_000_000_000_000_000, power in 0i32..9, step in -2i64..3, any in proptest::num::f64::NORMAL,
        ) {
            let real = scaled as f64 / 10f64.powi(power);
            [real, f64::from_bits((real.to_bits() as i64 + step).max(0) as u64), -real, any].into_iter().for_each(check_real);
            check_real((scaled % 2_000_000) as f64 / 1e6);
        }
    }

    #[test]
    fn reals_at_the_edges_of_the_quick_way_are_written_with_their_shortest_digits() {
        [0.0, -0.0, 1.0, 0.00001, 0.000009, 0.000001, 2.5, 1e9, 999_999_999.999_999, 1e15, 1e16, 5e-324, 3.33333]
            .into_iter()
            .for_each(check_real);
    }

    #[test]
    fn names_are_written_whole_on_both_sides_of_the_window() {
        for length in 1..40 {
            let text: Vec<u8> = (0..length).map(|at| b'a' + at as u8 % 26).collect();
            let mut out = b"x".to_vec();
            Piece::new(text.clone()).write(&mut out);
            assert_eq!(out, [&b"x"[..], &text].concat(), "length {length}");
        }
    }
}
