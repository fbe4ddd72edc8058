//! Values as SQL computes with them: NULL, integer, real, text. Borrowed from stored bytes, parameters or an arena.
//!
//! Text is bytes: stored documents are UTF-8, so comparing, concatenating and searching texts need not validate it again.

use std::cmp::Ordering;

use bumpalo::Bump;

use super::number::{self, IntegerText};
use super::workspace::{TextBuilder, Workspace};
use crate::encoding::Scalar;
use crate::sql::limits::{Fault, Meter};

/// A value, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// NULL: also a missing field.
    Null,
    /// An integer within 64 bits.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// Text.
    Text(&'a [u8]),
}

/// An owned value.
#[derive(Clone, Debug)]
pub enum OwnedValue {
    /// NULL.
    Null,
    /// An integer within 64 bits.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// Text.
    Text(Box<[u8]>),
}

impl PartialEq for OwnedValue {
    /// Whether both are the same to the last bit: 1 and 1.0 are not, NULL and NULL are.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (OwnedValue::Null, OwnedValue::Null) => true,
            (OwnedValue::Integer(a), OwnedValue::Integer(b)) => a == b,
            (OwnedValue::Real(a), OwnedValue::Real(b)) => a.to_bits() == b.to_bits(),
            (OwnedValue::Text(a), OwnedValue::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl OwnedValue {
    /// Copies a borrowed value.
    pub fn new(value: &Value<'_>) -> OwnedValue {
        match *value {
            Value::Null => OwnedValue::Null,
            Value::Integer(integer) => OwnedValue::Integer(integer),
            Value::Real(real) => OwnedValue::Real(real),
            Value::Text(text) => OwnedValue::Text(text.into()),
        }
    }

    /// The value, borrowed.
    #[inline]
    pub fn value(&self) -> Value<'_> {
        match self {
            OwnedValue::Null => Value::Null,
            OwnedValue::Integer(integer) => Value::Integer(*integer),
            OwnedValue::Real(real) => Value::Real(*real),
            OwnedValue::Text(text) => Value::Text(text),
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        if let OwnedValue::Text(text) = self { text.len() } else { 0 }
    }
}

/// A value of the enclosing query's row that a subquery refers to: as a field and as a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OuterValue<'a> {
    pub(crate) field: FieldValue<'a>,
    pub(crate) value: Value<'a>,
}

/// A field as it is read: stored JSON, or a value that was decoded already.
#[derive(Clone, Copy, Debug)]
pub enum FieldValue<'a> {
    /// JSON text as stored.
    Json(&'a [u8]),
    /// A value.
    Value(Value<'a>),
}

impl<'a> FieldValue<'a> {
    /// Its value. Stored JSON is decoded, a text with escapes into the workspace.
    #[inline]
    pub(crate) fn decode(self, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
        match self {
            FieldValue::Json(json) => of_json(json, workspace),
            FieldValue::Value(value) => Ok(value),
        }
    }

    /// The same for a field of a kept row, whose size is bounded already.
    pub(crate) fn decode_kept(self, arena: &'a Bump) -> Result<Value<'a>, Fault> {
        match self {
            FieldValue::Json(json) => of_json(json, Workspace::new(arena, arena.alloc(Meter::unbounded()))),
            FieldValue::Value(value) => Ok(value),
        }
    }
}

impl<'a> Value<'a> {
    /// A text value.
    pub fn text(text: &'a str) -> Self {
        Value::Text(text.as_bytes())
    }

    /// Whether it is NULL.
    #[inline]
    pub fn is_null(self) -> bool {
        matches!(self, Value::Null)
    }

    /// True, false, or unknown.
    #[inline]
    pub(crate) fn truth(self) -> Option<bool> {
        match self {
            Value::Null => None,
            Value::Integer(integer) => Some(integer != 0),
            Value::Real(real) => Some(real != 0.0),
            Value::Text(text) => Some(number::real_prefix(text).real != 0.0),
        }
    }

    #[inline]
    pub(crate) fn of_truth(truth: Option<bool>) -> Value<'static> {
        truth.map_or(Value::Null, |truth| Value::Integer(i64::from(truth)))
    }

    /// A REAL result: NaN becomes NULL.
    #[inline]
    pub(crate) fn real(real: f64) -> Value<'static> {
        if real.is_nan() { Value::Null } else { Value::Real(real) }
    }

    /// As a real: text by its numeric prefix, NULL as 0.
    pub(crate) fn to_real(self) -> f64 {
        match self {
            Value::Null => 0.0,
            Value::Integer(integer) => integer as f64,
            Value::Real(real) => real,
            Value::Text(text) => number::real_prefix(text).real,
        }
    }

    /// As an integer: text by its integer prefix, NULL as 0.
    pub(crate) fn to_integer(self) -> i64 {
        match self {
            Value::Null => 0,
            Value::Integer(integer) => integer,
            Value::Real(real) => number::real_to_integer(real),
            Value::Text(text) => number::integer_prefix(text).0,
        }
    }

    /// As a number for arithmetic: text by its numeric prefix.
    #[inline]
    pub(crate) fn to_number(self) -> Value<'a> {
        let Value::Text(text) = self else { return self };
        let prefix = number::real_prefix(text);
        let (integer, kind) = number::integer_prefix(text);
        let integral =
            if prefix.any && prefix.whole { kind == IntegerText::Whole } else { kind != IntegerText::Overflow };
        if !prefix.fraction && integral { Value::Integer(integer) } else { Value::Real(prefix.real) }
    }

    /// Numeric affinity: text that is a number as a whole becomes that number; any other value stays as it is.
    pub(crate) fn with_numeric_affinity(self) -> Value<'a> {
        let Value::Text(text) = self else { return self };
        let prefix = number::real_prefix(text);
        if !prefix.any || !prefix.whole {
            return self;
        }
        if !prefix.fraction
            && let (integer, IntegerText::Whole) = number::integer_prefix(text)
        {
            return Value::Integer(integer);
        }
        let integer = number::real_to_integer(prefix.real);
        let exact = prefix.real == integer as f64 && integer > i64::MIN && integer < i64::MAX;
        if exact { Value::Integer(integer) } else { Value::Real(prefix.real) }
    }

    /// As text; `None` for NULL.
    #[inline]
    pub(crate) fn to_text(self, workspace: Workspace<'a>) -> Result<Option<&'a [u8]>, Fault> {
        match self {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            Value::Integer(integer) => workspace.copy(itoa::Buffer::new().format(integer).as_bytes()).map(Some),
            Value::Real(real) => number::real_text(real, workspace).map(Some),
        }
    }

    /// As an index or a key represents it. `None`: the text is not UTF-8.
    #[inline]
    pub(crate) fn scalar(self) -> Option<Scalar<'a>> {
        Some(match self {
            Value::Null => Scalar::Null,
            Value::Integer(integer) => Scalar::Integer(integer),
            Value::Real(real) => Scalar::Real(real),
            Value::Text(text) => Scalar::Text(std::str::from_utf8(text).ok()?),
        })
    }

    /// The value's name in TYPEOF.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Integer(_) => "integer",
            Value::Real(_) => "real",
            Value::Text(_) => "text",
        }
    }
}

/// The order of values: NULL < numbers < text; numbers exactly, text by bytes.
#[inline]
pub(crate) fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(&b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Real(a), Value::Real(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Value::Integer(a), Value::Real(b)) => integer_to_real(a, b),
        (Value::Real(a), Value::Integer(b)) => integer_to_real(b, a).reverse(),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: Value<'_>) -> u8 {
    match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
    }
}

fn integer_to_real(integer: i64, real: f64) -> Ordering {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if real >= END {
        return Ordering::Less;
    }
    if real < -END {
        return Ordering::Greater;
    }
    // Both are in range: the integer parts decide exactly, then the real's fraction.
    integer.cmp(&(real as i64)).then_with(|| 0.0.partial_cmp(&real.fract()).unwrap_or(Ordering::Equal))
}

/// The value of a stored field, given as its JSON text.
#[inline]
pub(crate) fn of_json<'a>(json: &'a [u8], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    match json.first() {
        None => Ok(Value::Null),
        Some(b'0'..=b'9' | b'-') => of_json_number(json),
        Some(b'"') => {
            let inner = json.get(1..json.len().max(2) - 1).ok_or(Fault::Damaged("a string"))?;
            if memchr_backslash(inner) { unescape(inner, workspace).map(Value::Text) } else { Ok(Value::Text(inner)) }
        }
        Some(b't') => Ok(Value::Integer(1)),
        Some(b'f') => Ok(Value::Integer(0)),
        Some(b'n') => Ok(Value::Null),
        Some(_) => Ok(Value::Text(json)),
    }
}

/// The integer that stored JSON represents, if it has at most 16 digits. It needs no [`Value`], and reads long numbers eight
/// digits at a time.
#[inline]
pub(crate) fn plain_integer(json: &[u8]) -> Option<i64> {
    let (negative, digits) = match json {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, json),
    };
    let magnitude = match digits.len() {
        1..=3 => few_digits(digits)?,
        4..=8 => {
            let (first, last) = (digits.first_chunk::<4>()?, digits.last_chunk::<4>()?);
            let first = u64::from(u32::from_le_bytes(*first)) << (8 * (8 - digits.len()));
            let word = first | u64::from(u32::from_le_bytes(*last)) << 32;
            eight_digits(word | ZEROS & lowest_bytes(8 - digits.len()))?
        }
        9..=16 => {
            const POWERS: [i64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
            let (first, last) = (digits.first_chunk::<8>()?, digits.last_chunk::<8>()?);
            // Digits that the first eight include already become zeros in the last eight.
            let both = lowest_bytes(16 - digits.len());
            let last = u64::from_le_bytes(*last) & !both | ZEROS & both;
            eight_digits(u64::from_le_bytes(*first))? * POWERS[digits.len() - 8] + eight_digits(last)?
        }
        _ => return None,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// The number of one to three digits. All bytes are converted before any is checked.
#[inline]
fn few_digits(digits: &[u8]) -> Option<i64> {
    let digit = |byte: u8| u32::from(byte.wrapping_sub(b'0'));
    let (number, largest) = match *digits {
        [a] => (digit(a), digit(a)),
        [a, b] => (digit(a) * 10 + digit(b), digit(a).max(digit(b))),
        [a, b, c] => (digit(a) * 100 + digit(b) * 10 + digit(c), digit(a).max(digit(b)).max(digit(c))),
        _ => return None,
    };
    (largest < 10).then_some(i64::from(number))
}

/// Eight digits 0.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// A mask of the lowest `count` bytes, at most seven.
#[inline]
fn lowest_bytes(count: usize) -> u64 {
    (1 << (8 * count)) - 1
}

/// The number of eight digits, the first in the lowest byte: joined in pairs, then in fours, then all.
#[inline]
fn eight_digits(word: u64) -> Option<i64> {
    let digits = word ^ ZEROS;
    // The high bit is set in each byte that is 10 or more.
    if (digits | digits.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000 << 32 | 1) >> 32) as i64)
}

/// Whether stored JSON is this text. `None`: it is not a string, or its escapes must be decoded to decide.
#[inline]
pub(crate) fn is_text(json: &[u8], text: &[u8]) -> Option<bool> {
    let [b'"', inner @ .., b'"'] = json else { return None };
    match inner.len().cmp(&text.len()) {
        // A text is never longer than its escaped form.
        Ordering::Less => Some(false),
        Ordering::Equal => Some(inner == text && !memchr_backslash(text)),
        Ordering::Greater if memchr_backslash(inner) => None,
        Ordering::Greater => Some(false),
    }
}

fn memchr_backslash(text: &[u8]) -> bool {
    text.contains(&b'\\')
}

#[inline]
fn of_json_number(json: &[u8]) -> Result<Value<'static>, Fault> {
    let (negative, digits) = match json.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, json),
    };
    if digits.len() <= 18 {
        let mut value = 0i64; // 18 digits cannot overflow.
        let mut plain = !digits.is_empty();
        for &digit in digits {
            let digit = digit.wrapping_sub(b'0');
            plain &= digit < 10;
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        }
        if plain {
            return Ok(Value::Integer(if negative { -value } else { value }));
        }
    }
    long_json_number(json)
}

fn long_json_number(json: &[u8]) -> Result<Value<'static>, Fault> {
    let text = std::str::from_utf8(json).map_err(|_| Fault::Damaged("a number"))?;
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(Value::Integer(integer));
    }
    text.parse::<f64>().map(Value::Real).map_err(|_| Fault::Damaged("a number"))
}

/// The text of a JSON string with its escapes decoded. In valid JSON an escape can only fail as half of a surrogate pair:
/// documents have none, but a text that a query reads as JSON may.
fn unescape<'a>(inner: &'a [u8], workspace: Workspace<'a>) -> Result<&'a [u8], Fault> {
    let mut out = workspace.text_within(inner.len())?;
    let mut bytes = inner.iter().copied();
    let fault = Fault::LoneSurrogate;
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte)?;
            continue;
        }
        match bytes.next().ok_or(fault)? {
            b'n' => out.push(b'\n')?,
            b't' => out.push(b'\t')?,
            b'r' => out.push(b'\r')?,
            b'b' => out.push(8)?,
            b'f' => out.push(12)?,
            b'u' => {
                let first = hex4(&mut bytes).ok_or(fault)?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    let low = (bytes.next() == Some(b'\\') && bytes.next() == Some(b'u')).then(|| hex4(&mut bytes));
                    let low = low.flatten().filter(|low| (0xdc00..0xe000).contains(low)).ok_or(fault)?;
                    0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    first
                };
                let character = char::from_u32(code).ok_or(fault)?;
                out.extend(character.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
            other => out.push(other)?,
        }
    }
    Ok(out.finish())
}

fn hex4(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut code = 0;
    for _ in 0..4 {
        code = code * 16 + (bytes.next()? as char).to_digit(16)?;
    }
    Some(code)
}

impl<'a> TextBuilder<'a> {
    /// The text as a value.
    pub(crate) fn value(self) -> Value<'a> {
        Value::Text(self.finish())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_integer(text: &str) {
        let (arena, meter) = (Bump::new(), Meter::unbounded());
        match (plain_integer(text.as_bytes()), of_json(text.as_bytes(), Workspace::new(&arena, &meter))) {
            (Some(plain), Ok(Value::Integer(integer))) => assert_eq!(plain, integer, "{text}"),
            (None, Ok(Value::Integer(_))) => {
                assert!(text.trim_start_matches('-').len() > 16, "{text} is short and plain")
            }
            (None, _) => {}
            (plain, value) => panic!("{text}: {plain:?}, not {value:?}"),
        }
    }

    #[test]
    fn plain_integers_of_every_length_are_read() {
        for power in 0..19 {
            let ten = 10i64.pow(power);
            [ten - 1, ten, ten + 1, -ten, ten / 7 * 5, 1 - ten].iter().for_each(|n| check_integer(&n.to_string()));
        }
        (-2_000..2_000).for_each(|n: i64| check_integer(&n.to_string()));
        ["1.5", "-0", "-", "1e3", "12345678901234567890", "0.1", "123456.78", "1234567e9"]
            .into_iter()
            .for_each(check_integer);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn bytes_that_are_no_digits_are_no_plain_integer(digits in "[0-9]{0,17}", byte in any::<u8>(), at in 0usize..17) {
            let mut bytes = digits.into_bytes();
            bytes.insert(at.min(bytes.len()), byte);
            let is_number = bytes.iter().all(u8::is_ascii_digit) || (bytes[0] == b'-' && bytes[1..].iter().all(u8::is_ascii_digit));
            prop_assert!(is_number || plain_integer(&bytes).is_none(), "{:?}", String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn a_stored_string_is_a_text_or_says_that_only_its_escapes_tell(text in "[a\"\\\\\n\u{e9}я]{0,5}", other in "[a\"\\\\\n\u{e9}я]{0,5}") {
            for other in [&text, &other] {
                let stored = serde_json::Value::from(text.as_str()).to_string();
                match is_text(stored.as_bytes(), other.as_bytes()) {
                    Some(equal) => prop_assert_eq!(equal, text == *other, "{} {}", stored, other),
                    None => prop_assert!(stored.contains('\\')),
                }
            }
        }
    }
}
