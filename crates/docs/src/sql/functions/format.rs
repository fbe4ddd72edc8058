//! PRINTF and FORMAT: SQLite's own conversions, with width, precision and flags. Unsupported conversions (`%j`, `%J`, and `%!f`
//! and the like) are refused when the query is prepared if the format is a literal, otherwise when it is executed.
//!
//! - `%!f` is unsupported. SQLite shows up to twenty digits of a real there; those after the seventeenth are artefacts of its
//!   arithmetic, and only the same roundings would give the same digits.
//! - A precision counts bytes, as in SQLite, and characters with `!`. A character that would be split is left out, because a
//!   text is always UTF-8.
//! - An unknown conversion ends the output.

use super::pattern::{self, until_nul};
use crate::sql::limits::{Fault, TEXT_BYTES_MAX};
use crate::sql::values::{Digits, Rounding, TextBuilder, Value, Workspace};

/// Widest field; a wider one is refused as too long.
const WIDTH_MAX: usize = TEXT_BYTES_MAX;
/// Significant digits of a real in printf.
const REAL_DIGITS_MAX: usize = 16;
/// Units of work of a conversion, besides its output.
const CONVERSION_UNITS: u64 = 8;
/// Digits after the point without a precision.
const PRECISION: usize = 6;

#[derive(Clone, Copy, Default)]
struct Spec {
    left: bool,
    sign: Option<u8>,
    alternate: bool,
    full: bool,
    zero: bool,
    thousands: bool,
    width: usize,
    precision: Option<usize>,
    conversion: u8,
}

impl Spec {
    /// Whether SQLite has this conversion.
    fn is_known(&self) -> bool {
        b"diuxXoprfeEgGszcqQwjJ%n".contains(&self.conversion)
    }

    /// Whether this version supports it.
    fn is_supported(&self) -> bool {
        match self.conversion {
            b'j' | b'J' => false,
            b'f' | b'e' | b'E' | b'g' | b'G' => !self.full,
            b'q' | b'Q' => !self.alternate,
            _ => true,
        }
    }

    /// Whether a width or precision exceeds any text. A precision that truncates a text is never too long.
    fn is_too_long(&self) -> bool {
        let cuts = b"szqQwgG".contains(&self.conversion);
        self.width > WIDTH_MAX || (!cuts && self.precision.is_some_and(|precision| precision > WIDTH_MAX))
    }
}

/// The first conversion in a format that this version does not support.
pub(crate) fn unsupported(format: &[u8]) -> Option<String> {
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        let (spec, after) = parse(&rest[at + 1..], &mut std::iter::empty())?;
        if !spec.is_known() {
            return None;
        }
        if !spec.is_supported() {
            let flag = if spec.full { "!" } else { "" };
            let flag = if spec.alternate { "#" } else { flag };
            return Some(format!("{flag}{}", char::from(spec.conversion)));
        }
        rest = after;
    }
    None
}

/// Parses one conversion after its `%`; returns it and the rest. `*` takes a width or precision from the arguments. `None`: the
/// text ends before it is complete.
fn parse<'f, 'a>(mut rest: &'f [u8], arguments: &mut dyn Iterator<Item = Value<'a>>) -> Option<(Spec, &'f [u8])> {
    let mut spec = Spec::default();
    let mut given = || arguments.next().unwrap_or(Value::Null).to_integer();
    loop {
        let (&byte, after) = rest.split_first()?;
        let mut ends = false;
        rest = after;
        match byte {
            b'-' => spec.left = true,
            b'+' | b' ' => spec.sign = Some(byte),
            b'#' => spec.alternate = true,
            b'!' => spec.full = true,
            b'0' => spec.zero = true,
            b',' => spec.thousands = true,
            b'l' => {
                rest = rest.strip_prefix(b"l").unwrap_or(rest);
                ends = true;
            }
            b'1'..=b'9' => {
                (spec.width, rest) = number(usize::from(byte - b'0'), rest);
                ends = !matches!(rest.first(), Some(b'.' | b'l'));
            }
            b'*' => {
                let width = given() as i32;
                spec.left |= width < 0;
                spec.width = if width == i32::MIN { 0 } else { width.unsigned_abs() as usize };
                ends = !matches!(rest.first(), Some(b'.' | b'l'));
            }
            b'.' => {
                if let Some(after) = rest.strip_prefix(b"*") {
                    let precision = given() as i32;
                    spec.precision = (precision != i32::MIN).then_some(precision.unsigned_abs() as usize);
                    rest = after;
                } else {
                    let (precision, after) = number(0, rest);
                    (spec.precision, rest) = (Some(precision), after);
                }
                ends = rest.first() != Some(&b'l');
            }
            conversion => {
                spec.conversion = conversion;
                return Some((spec, rest));
            }
        }
        if ends {
            let (&conversion, after) = rest.split_first()?;
            spec.conversion = conversion;
            return Some((spec, after));
        }
    }
}

fn number(mut value: usize, mut rest: &[u8]) -> (usize, &[u8]) {
    while let Some((&digit, after)) = rest.split_first().filter(|(digit, _)| digit.is_ascii_digit()) {
        value = value.saturating_mul(10).saturating_add(usize::from(digit - b'0')).min(WIDTH_MAX + 1);
        rest = after;
    }
    (value, rest)
}

/// PRINTF(format, arguments…).
pub(crate) fn printf<'a>(format: &[u8], arguments: &[Value<'a>], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let mut out = workspace.text();
    let mut arguments = arguments.iter().copied();
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        workspace.meter.tick(CONVERSION_UNITS)?;
        out.extend(&rest[..at])?;
        let parsed = parse(&rest[at + 1..], &mut arguments).filter(|(spec, _)| spec.is_known());
        let Some((spec, after)) = parsed else {
            if at + 1 == rest.len() {
                out.push(b'%')?;
            }
            rest = b"";
            break;
        };
        rest = after;
        if !spec.is_supported() {
            return Err(Fault::Conversion);
        }
        if spec.is_too_long() {
            return Err(Fault::TextTooLong);
        }
        let mut next = || arguments.next().unwrap_or(Value::Null);
        match spec.conversion {
            b'n' => {}
            b'%' => pad(b"%", &spec, &mut out)?,
            b'f' | b'e' | b'E' | b'g' | b'G' => real(next().to_real(), &spec, &mut out, workspace)?,
            b's' | b'z' => text(until_nul(next().to_text(workspace)?.unwrap_or_default()), &spec, &mut out)?,
            b'c' => character(until_nul(next().to_text(workspace)?.unwrap_or_default()), &spec, &mut out, workspace)?,
            b'q' | b'Q' | b'w' => escaped(next().to_text(workspace)?.map(until_nul), &spec, &mut out, workspace)?,
            _ => integer(next().to_integer(), &spec, &mut out, workspace)?,
        }
    }
    out.extend(rest)?;
    Ok(out.value())
}

/// Appends a field. Its width counts bytes, or characters with `!`.
fn pad(text: &[u8], spec: &Spec, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    let length = if spec.full { text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count() } else { text.len() };
    let fill = spec.width.saturating_sub(length);
    out.reserve(fill.saturating_add(text.len()))?;
    if !spec.left {
        out.fill(b' ', fill)?;
    }
    out.extend(text)?;
    if spec.left { out.fill(b' ', fill) } else { Ok(()) }
}

/// The prefix of a text that the precision allows, in whole characters.
fn cut<'t>(text: &'t [u8], spec: &Spec) -> &'t [u8] {
    let Some(precision) = spec.precision else { return text };
    let mut end = 0;
    let mut count = 0;
    while let Some((character, length)) = pattern::character(&text[end..]) {
        count += if spec.full { 1 } else { character.len() };
        if count > precision {
            break;
        }
        end += length;
    }
    &text[..end]
}

fn text(text: &[u8], spec: &Spec, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    pad(cut(text, spec), spec, out)
}

/// `%c`: the first character, repeated by the precision. For an empty text it is NUL.
fn character(text: &[u8], spec: &Spec, out: &mut TextBuilder<'_>, workspace: Workspace<'_>) -> Result<(), Fault> {
    let character = pattern::character(text).map_or(&b"\0"[..], |(character, _)| character);
    let count = spec.precision.unwrap_or(1).max(1);
    let mut field = workspace.text_of(count * character.len())?;
    (0..count).try_for_each(|_| field.extend(character))?;
    pad(field.as_bytes(), &Spec { full: true, ..*spec }, out)
}

/// `%q` doubles single quotes, `%Q` also encloses the text in them, `%w` doubles double quotes.
fn escaped(text: Option<&[u8]>, spec: &Spec, out: &mut TextBuilder<'_>, workspace: Workspace<'_>) -> Result<(), Fault> {
    let quote = if spec.conversion == b'w' { b'"' } else { b'\'' };
    let encloses = spec.conversion == b'Q' && text.is_some();
    let null: &[u8] = if spec.conversion == b'Q' { b"NULL" } else { b"(NULL)" };
    let text = cut(text.unwrap_or(null), spec);
    let mut field = workspace.text_of(text.len() + 2)?;
    field.fill(quote, usize::from(encloses))?;
    for &byte in text {
        field.fill(byte, if byte == quote { 2 } else { 1 })?;
    }
    field.fill(quote, usize::from(encloses))?;
    pad(field.as_bytes(), spec, out)
}

fn integer(value: i64, spec: &Spec, out: &mut TextBuilder<'_>, workspace: Workspace<'_>) -> Result<(), Fault> {
    let signed = matches!(spec.conversion, b'd' | b'i' | b'r');
    let sign = if signed && value < 0 { Some(b'-') } else { spec.sign.filter(|_| signed) };
    let magnitude = if signed { value.unsigned_abs() } else { value as u64 };
    let (digits, prefix) = match spec.conversion {
        b'x' => (format!("{magnitude:x}"), "0x"),
        b'X' => (format!("{magnitude:X}"), "0X"),
        b'p' => (format!("{magnitude:X}"), "0x"),
        b'o' => (format!("{magnitude:o}"), "0"),
        b'r' => (format!("{magnitude}{}", ordinal(magnitude)), ""),
        _ => (format!("{magnitude}"), ""),
    };
    let mut least = spec.precision.unwrap_or(0);
    if spec.zero {
        least = least.max(spec.width.saturating_sub(usize::from(sign.is_some())));
    }
    let mut field = workspace.text_of(least.max(digits.len()) + 8)?;
    field.extend(if spec.alternate && magnitude != 0 { prefix.as_bytes() } else { b"" })?;
    sign.map_or(Ok(()), |sign| field.push(sign))?;
    let zeros = least.saturating_sub(digits.len());
    let all = std::iter::repeat_n(b'0', zeros).chain(digits.bytes());
    let is_decimal = matches!(spec.conversion, b'd' | b'i' | b'u');
    grouped(all, zeros + digits.len(), spec.thousands && is_decimal, &mut field)?;
    pad(field.as_bytes(), spec, out)
}

/// The suffix of an ordinal number.
fn ordinal(number: u64) -> &'static str {
    match number % 10 {
        _ if number / 10 % 10 == 1 => "th",
        1 => "st",
        2 => "nd",
        3 => "rd",
        _ => "th",
    }
}

/// Appends digits, grouped in threes by commas if wanted.
fn grouped(
    digits: impl Iterator<Item = u8>,
    count: usize,
    thousands: bool,
    field: &mut TextBuilder<'_>,
) -> Result<(), Fault> {
    for (place, digit) in digits.enumerate() {
        if thousands && place > 0 && (count - place).is_multiple_of(3) {
            field.push(b',')?;
        }
        field.push(digit)?;
    }
    Ok(())
}

fn real(value: f64, spec: &Spec, out: &mut TextBuilder<'_>, workspace: Workspace<'_>) -> Result<(), Fault> {
    if !value.is_finite() {
        let text: &[u8] = match value {
            v if v.is_nan() => b"NaN",
            v if v < 0.0 => b"-Inf",
            _ if spec.sign == Some(b'+') => b"+Inf",
            _ => b"Inf",
        };
        return pad(text, spec, out);
    }
    let mut precision = spec.precision.unwrap_or(PRECISION);
    let is_general = matches!(spec.conversion, b'g' | b'G');
    let rounding = match spec.conversion {
        b'f' => Rounding::Places(precision as i32),
        b'e' | b'E' => Rounding::Significant(precision as i32 + 1),
        _ => {
            precision = precision.clamp(1, WIDTH_MAX);
            Rounding::Significant(precision as i32)
        }
    };
    let mut digits = Digits::of(value, rounding, REAL_DIGITS_MAX);
    let exponent = digits.point - 1;
    let mut has_exponent = matches!(spec.conversion, b'e' | b'E');
    if is_general {
        precision -= 1;
        has_exponent = exponent < -4 || exponent > precision as i32;
        if !has_exponent {
            precision = (precision as i32 - exponent) as usize;
        }
    }
    let shown_zero =
        spec.conversion == b'f' && spec.alternate && spec.sign.is_none() && digits.point <= -(precision as i32);
    let sign = if digits.negative { (!shown_zero).then_some(b'-') } else { spec.sign };
    let mut field = workspace.text();
    let point = spec.alternate || precision > 0;
    if has_exponent {
        digits.point = 1;
    }
    fixed(&digits, (precision, point), spec.thousands, &mut field)?;
    if is_general && !spec.alternate && point {
        trim_zeros(&mut field);
    }
    if has_exponent {
        field.push(if spec.conversion.is_ascii_uppercase() { b'E' } else { b'e' })?;
        field.push(if exponent < 0 { b'-' } else { b'+' })?;
        field.extend(format!("{:02}", exponent.unsigned_abs()).as_bytes())?;
    }
    let zeros = if spec.zero && !spec.left { spec.width } else { 0 };
    let zeros = zeros.saturating_sub(field.len() + usize::from(sign.is_some()));
    let mut whole = workspace.text_of(zeros + field.len() + 1)?;
    sign.map_or(Ok(()), |sign| whole.push(sign))?;
    whole.fill(b'0', zeros)?;
    whole.extend(field.as_bytes())?;
    pad(whole.as_bytes(), spec, out)
}

/// Removes trailing zeros of a number with a point, and the point if nothing follows it.
fn trim_zeros(field: &mut TextBuilder<'_>) {
    while field.as_bytes().last() == Some(&b'0') {
        field.pop();
    }
    if field.as_bytes().last() == Some(&b'.') {
        field.pop();
    }
}

/// Digits with `precision` places after the point.
fn fixed(
    digits: &Digits,
    (precision, point): (usize, bool),
    thousands: bool,
    field: &mut TextBuilder<'_>,
) -> Result<(), Fault> {
    let ascii = digits.ascii();
    let whole = digits.point.max(0) as usize;
    if whole == 0 {
        field.push(b'0')?;
    } else {
        let all = ascii.iter().copied().chain(std::iter::repeat(b'0')).take(whole);
        grouped(all, whole, thousands, field)?;
    }
    if point {
        field.push(b'.')?;
    }
    let end = field.len() + precision;
    let zeros = if digits.point < 0 { digits.point.unsigned_abs() as usize } else { 0 };
    field.fill(b'0', zeros.min(precision))?;
    let rest = ascii.get(whole..).unwrap_or_default();
    field.extend(&rest[..rest.len().min(end - field.len())])?;
    field.fill(b'0', end - field.len())
}

/// `%.Ng` of a positive number without an exponent, for strftime's `%J`.
pub(crate) fn general<'a>(value: f64, significant: usize, workspace: Workspace<'a>) -> Result<&'a [u8], Fault> {
    let digits = Digits::of(value, Rounding::Significant(significant as i32), REAL_DIGITS_MAX);
    let mut field = workspace.text();
    let places = (significant as i32 - digits.point).max(0) as usize;
    fixed(&digits, (places, places > 0), false, &mut field)?;
    if places > 0 {
        trim_zeros(&mut field);
    }
    Ok(field.finish())
}
