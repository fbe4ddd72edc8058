//! PRINTF and FORMAT: SQLite's own, the conversions `%d %i %u %f %s %%` (with width, precision, and the flags but `!`); any
//! other conversion is refused where the query is prepared, if the format stands in its text, else the result is NULL.
//!
//! `%!f` shows up to twenty digits of a real, where those behind the seventeenth are whatever SQLite's own arithmetic
//! leaves there: nobody can equal them who does not repeat its roundings.

use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;

use super::error::{Fault, TEXT_BYTES_MAX};
use super::number::{Digits, Rounding};
use super::value::Value;

/// Most digits after the point that are computed.
const PRECISION_MAX: usize = 1000;
/// Widest field; more is refused as too long.
const WIDTH_MAX: usize = TEXT_BYTES_MAX;
/// Digits of a real that mean something to printf.
const REAL_DIGITS_MAX: usize = 16;

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
    fn is_supported(&self) -> bool {
        matches!(self.conversion, b'd' | b'i' | b'u' | b'f' | b's' | b'z' | b'%')
            && !(self.full && self.conversion == b'f')
    }
}

/// Whether a format has a conversion that this version lacks: which.
pub(crate) fn unsupported(format: &[u8]) -> Option<String> {
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        let (spec, after) = parse(&rest[at + 1..])?;
        if !spec.is_supported() {
            let flag = if spec.full { "!" } else { "" };
            return Some(format!("{flag}{}", char::from(spec.conversion)));
        }
        rest = after;
    }
    None
}

/// One conversion behind its `%`, and what follows it. `None`: the text ends first.
fn parse(mut rest: &[u8]) -> Option<(Spec, &[u8])> {
    let mut spec = Spec::default();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'-' => spec.left = true,
            b'+' | b' ' => spec.sign = Some(byte),
            b'#' => spec.alternate = true,
            b'!' => spec.full = true,
            b'0' => spec.zero = true,
            b',' => spec.thousands = true,
            b'l' => {}
            b'1'..=b'9' => {
                let (width, after) = number(usize::from(byte - b'0'), rest);
                (spec.width, rest) = (width, after);
            }
            b'.' => {
                let (precision, after) = number(0, rest);
                (spec.precision, rest) = (Some(precision), after);
            }
            conversion => {
                spec.conversion = conversion;
                return Some((spec, rest));
            }
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
pub(crate) fn printf<'a>(format: &[u8], arguments: &[Value<'a>], arena: &'a Bump) -> Result<Value<'a>, Fault> {
    let mut out = BumpVec::new_in(arena);
    let mut arguments = arguments.iter().copied();
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        out.extend_from_slice(&rest[..at]);
        let Some((spec, after)) = parse(&rest[at + 1..]) else {
            if at + 1 == rest.len() {
                out.push(b'%');
            }
            rest = b"";
            break;
        };
        rest = after;
        if spec.width > WIDTH_MAX || spec.precision.is_some_and(|precision| precision > WIDTH_MAX) {
            return Err(Fault::TextTooLong);
        }
        if !spec.is_supported() {
            return Ok(Value::Null);
        }
        match spec.conversion {
            b'%' => pad(b"%", &spec, &mut out),
            b'd' | b'i' | b'u' => integer(arguments.next().unwrap_or(Value::Null), &spec, &mut out, arena),
            b'f' => real(arguments.next().unwrap_or(Value::Null), &spec, &mut out, arena),
            _ => text(arguments.next().unwrap_or(Value::Null), &spec, &mut out, arena),
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(Fault::TextTooLong);
        }
    }
    out.extend_from_slice(rest);
    Ok(Value::Text(out.into_bump_slice()))
}

fn pad(text: &[u8], spec: &Spec, out: &mut BumpVec<'_, u8>) {
    let fill = spec.width.saturating_sub(text.len());
    if !spec.left {
        out.extend(std::iter::repeat_n(b' ', fill));
    }
    out.extend_from_slice(text);
    if spec.left {
        out.extend(std::iter::repeat_n(b' ', fill));
    }
}

fn text(value: Value<'_>, spec: &Spec, out: &mut BumpVec<'_, u8>, arena: &Bump) {
    let text = match value {
        Value::Text(text) => text,
        other => {
            let copy = other.to_text(arena).unwrap_or_default();
            return pad(&copy[..spec.precision.unwrap_or(copy.len()).min(copy.len())], spec, out);
        }
    };
    let text = &text[..spec.precision.unwrap_or(text.len()).min(text.len())];
    pad(text, spec, out);
}

fn integer(value: Value<'_>, spec: &Spec, out: &mut BumpVec<'_, u8>, arena: &Bump) {
    let value = value.to_integer();
    let signed = spec.conversion != b'u';
    let prefix = if signed && value < 0 { Some(b'-') } else { spec.sign.filter(|_| signed) };
    let magnitude = if signed { value.unsigned_abs() } else { value as u64 };
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(magnitude).as_bytes();
    let mut least = spec.precision.unwrap_or(0);
    if spec.zero {
        least = least.max(spec.width.saturating_sub(usize::from(prefix.is_some())));
    }
    let mut field = BumpVec::with_capacity_in(least.max(digits.len()) + 8, arena);
    field.extend(prefix);
    let start = field.len();
    field.extend(std::iter::repeat_n(b'0', least.saturating_sub(digits.len())));
    field.extend_from_slice(digits);
    if spec.thousands {
        thousands(&mut field, start);
    }
    pad(&field, spec, out);
}

fn thousands(field: &mut BumpVec<'_, u8>, start: usize) {
    let mut at = field.len();
    while at > start + 3 {
        at -= 3;
        field.insert(at, b',');
    }
}

fn real(value: Value<'_>, spec: &Spec, out: &mut BumpVec<'_, u8>, arena: &Bump) {
    let value = value.to_real();
    let precision = spec.precision.unwrap_or(6).min(PRECISION_MAX);
    if !value.is_finite() {
        let text: &[u8] = match value {
            v if v.is_nan() => b"NaN",
            v if v < 0.0 => b"-Inf",
            _ if spec.sign == Some(b'+') => b"+Inf",
            _ => b"Inf",
        };
        return pad(text, spec, out);
    }
    let digits = Digits::of(value, Rounding::Places(precision as i32), REAL_DIGITS_MAX);
    let mut field = BumpVec::new_in(arena);
    let shown_zero = spec.alternate && spec.sign.is_none() && digits.point <= -(precision as i32);
    match (digits.negative, spec.sign) {
        (true, _) if !shown_zero => field.push(b'-'),
        (false, Some(sign)) => field.push(sign),
        _ => {}
    }
    let signed = field.len();
    let point = spec.alternate || precision > 0;
    fixed(&digits, precision, point, &mut field);
    if spec.thousands {
        let end = field.iter().position(|&b| b == b'.').unwrap_or(field.len());
        let mut at = end;
        while at > signed + 3 {
            at -= 3;
            field.insert(at, b',');
        }
    }
    if spec.zero && !spec.left {
        let fill = spec.width.saturating_sub(field.len());
        for _ in 0..fill {
            field.insert(signed, b'0');
        }
    }
    pad(&field, spec, out);
}

/// Digits with `precision` places after the point.
fn fixed(digits: &Digits, precision: usize, point: bool, field: &mut BumpVec<'_, u8>) {
    let ascii = digits.ascii();
    let whole = digits.point.max(0) as usize;
    if whole == 0 {
        field.push(b'0');
    } else {
        field.extend_from_slice(&ascii[..whole.min(ascii.len())]);
        field.extend(std::iter::repeat_n(b'0', whole.saturating_sub(ascii.len())));
    }
    if point {
        field.push(b'.');
    }
    let end = field.len() + precision;
    let zeros = if digits.point < 0 { digits.point.unsigned_abs() as usize } else { 0 };
    field.extend(std::iter::repeat_n(b'0', zeros.min(precision)));
    let rest = ascii.get(whole..).unwrap_or_default();
    field.extend_from_slice(&rest[..rest.len().min(end - field.len())]);
    let missing = end - field.len();
    field.extend(std::iter::repeat_n(b'0', missing));
}

/// `%.Ng` of a positive number in plain range, as strftime's `%J` needs it.
pub(crate) fn general(value: f64, significant: usize, arena: &Bump) -> &[u8] {
    let digits = Digits::of(value, Rounding::Significant(significant as i32), REAL_DIGITS_MAX);
    let mut field = BumpVec::new_in(arena);
    let places = (significant as i32 - digits.point).max(0) as usize;
    fixed(&digits, places, places > 0, &mut field);
    while places > 0 && field.last() == Some(&b'0') {
        field.pop();
    }
    if field.last() == Some(&b'.') {
        field.pop();
    }
    field.into_bump_slice()
}
