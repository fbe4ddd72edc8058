//! Scalar functions: one table of names, and their implementations.

use std::cmp::Ordering;

use memchr::memmem;

use super::dates::{self, DateFunction};
use super::json_edits::Edit;
use super::mathematics::{self, Mathematics};
use super::{format, pattern};
use crate::sql::limits::Fault;
use crate::sql::values::sort::sort_in_pieces;
use crate::sql::values::value::compare;
use crate::sql::values::{Value, Workspace, number};

/// A scalar function. COALESCE, IFNULL and IIF are expressions of their own, because they evaluate only the arguments they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Char,
    /// CONCAT: NULL counts as an empty text.
    Concat,
    /// The same with a separator between the values that are not NULL.
    ConcatWith,
    Hex,
    Instr,
    Length,
    Lower,
    Ltrim,
    Max,
    Min,
    NullIf,
    OctetLength,
    Printf,
    Quote,
    Replace,
    Round,
    Rtrim,
    Sign,
    Substr,
    Trim,
    TypeOf,
    Unicode,
    Upper,
    Date(DateFunction),
    Mathematics(Mathematics),
    /// Evaluated by `expressions/json_calls.rs`, which examines its arguments' expressions.
    Json(JsonFunction),
}

/// The JSON functions; see `expressions/json_calls.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonFunction {
    Array,
    ArrayLength,
    /// The argument in its stored form or as JSON, for a field of a document. Only the resolver makes it.
    AsStored,
    Extract,
    /// A name with its value, as in an object's text; only for json_group_object.
    Member,
    Minify,
    Object,
    /// A merge patch.
    Patch,
    /// Puts values at paths.
    Put(Edit),
    Quote,
    /// A text of JSON as the value that it denotes. Made only for `excluded`.
    Raw,
    Remove,
    Type,
    Valid,
}

/// Name, function, fewest and most arguments.
pub(crate) const FUNCTIONS: &[(&str, Function, usize, usize)] = &[
    ("abs", Function::Abs, 1, 1),
    ("acos", Function::Mathematics(Mathematics::Acos), 1, 1),
    ("acosh", Function::Mathematics(Mathematics::Acosh), 1, 1),
    ("asin", Function::Mathematics(Mathematics::Asin), 1, 1),
    ("asinh", Function::Mathematics(Mathematics::Asinh), 1, 1),
    ("atan", Function::Mathematics(Mathematics::Atan), 1, 1),
    ("atan2", Function::Mathematics(Mathematics::Atan2), 2, 2),
    ("atanh", Function::Mathematics(Mathematics::Atanh), 1, 1),
    ("ceil", Function::Mathematics(Mathematics::Ceil), 1, 1),
    ("ceiling", Function::Mathematics(Mathematics::Ceil), 1, 1),
    ("char", Function::Char, 0, ARGUMENTS_MAX),
    ("concat", Function::Concat, 1, ARGUMENTS_MAX),
    ("concat_ws", Function::ConcatWith, 2, ARGUMENTS_MAX),
    ("cos", Function::Mathematics(Mathematics::Cos), 1, 1),
    ("cosh", Function::Mathematics(Mathematics::Cosh), 1, 1),
    ("date", Function::Date(DateFunction::Date), 0, ARGUMENTS_MAX),
    ("datetime", Function::Date(DateFunction::DateTime), 0, ARGUMENTS_MAX),
    ("degrees", Function::Mathematics(Mathematics::Degrees), 1, 1),
    ("exp", Function::Mathematics(Mathematics::Exp), 1, 1),
    ("floor", Function::Mathematics(Mathematics::Floor), 1, 1),
    ("format", Function::Printf, 1, ARGUMENTS_MAX),
    ("hex", Function::Hex, 1, 1),
    ("instr", Function::Instr, 2, 2),
    ("json", Function::Json(JsonFunction::Minify), 1, 1),
    ("json_array", Function::Json(JsonFunction::Array), 0, ARGUMENTS_MAX),
    ("json_array_length", Function::Json(JsonFunction::ArrayLength), 1, 2),
    ("json_extract", Function::Json(JsonFunction::Extract), 2, ARGUMENTS_MAX),
    ("json_insert", Function::Json(JsonFunction::Put(Edit::Insert)), 1, ARGUMENTS_MAX),
    ("json_object", Function::Json(JsonFunction::Object), 0, ARGUMENTS_MAX),
    ("json_patch", Function::Json(JsonFunction::Patch), 2, 2),
    ("json_quote", Function::Json(JsonFunction::Quote), 1, 1),
    ("json_remove", Function::Json(JsonFunction::Remove), 1, ARGUMENTS_MAX),
    ("json_replace", Function::Json(JsonFunction::Put(Edit::Replace)), 1, ARGUMENTS_MAX),
    ("json_set", Function::Json(JsonFunction::Put(Edit::Set)), 1, ARGUMENTS_MAX),
    ("json_type", Function::Json(JsonFunction::Type), 1, 2),
    ("json_valid", Function::Json(JsonFunction::Valid), 1, 1),
    ("julianday", Function::Date(DateFunction::JulianDay), 0, ARGUMENTS_MAX),
    ("length", Function::Length, 1, 1),
    ("ln", Function::Mathematics(Mathematics::Ln), 1, 1),
    ("log", Function::Mathematics(Mathematics::Log), 1, 2),
    ("log10", Function::Mathematics(Mathematics::Log), 1, 1),
    ("log2", Function::Mathematics(Mathematics::Log2), 1, 1),
    ("lower", Function::Lower, 1, 1),
    ("ltrim", Function::Ltrim, 1, 2),
    ("max", Function::Max, 2, ARGUMENTS_MAX),
    ("min", Function::Min, 2, ARGUMENTS_MAX),
    ("mod", Function::Mathematics(Mathematics::Mod), 2, 2),
    ("nullif", Function::NullIf, 2, 2),
    ("octet_length", Function::OctetLength, 1, 1),
    ("pi", Function::Mathematics(Mathematics::Pi), 0, 0),
    ("pow", Function::Mathematics(Mathematics::Pow), 2, 2),
    ("power", Function::Mathematics(Mathematics::Pow), 2, 2),
    ("printf", Function::Printf, 1, ARGUMENTS_MAX),
    ("quote", Function::Quote, 1, 1),
    ("radians", Function::Mathematics(Mathematics::Radians), 1, 1),
    ("replace", Function::Replace, 3, 3),
    ("round", Function::Round, 1, 2),
    ("rtrim", Function::Rtrim, 1, 2),
    ("sign", Function::Sign, 1, 1),
    ("sin", Function::Mathematics(Mathematics::Sin), 1, 1),
    ("sinh", Function::Mathematics(Mathematics::Sinh), 1, 1),
    ("sqrt", Function::Mathematics(Mathematics::Sqrt), 1, 1),
    ("strftime", Function::Date(DateFunction::Strftime), 1, ARGUMENTS_MAX),
    ("substr", Function::Substr, 2, 3),
    ("substring", Function::Substr, 2, 3),
    ("tan", Function::Mathematics(Mathematics::Tan), 1, 1),
    ("tanh", Function::Mathematics(Mathematics::Tanh), 1, 1),
    ("time", Function::Date(DateFunction::Time), 0, ARGUMENTS_MAX),
    ("timediff", Function::Date(DateFunction::TimeDiff), 2, 2),
    ("trim", Function::Trim, 1, 2),
    ("trunc", Function::Mathematics(Mathematics::Trunc), 1, 1),
    ("typeof", Function::TypeOf, 1, 1),
    ("unicode", Function::Unicode, 1, 1),
    ("unixepoch", Function::Date(DateFunction::UnixEpoch), 0, ARGUMENTS_MAX),
    ("upper", Function::Upper, 1, 1),
];

/// Units of work of a date function, besides the length of its texts.
const DATE_UNITS: u64 = 16;
/// Most arguments of one call.
pub(crate) const ARGUMENTS_MAX: usize = 32;

/// Calls a function; the number of arguments was checked against the table. Long arguments count as work, whatever the function
/// does with them.
pub(crate) fn call<'a>(
    function: Function,
    arguments: &[Value<'a>],
    workspace: Workspace<'a>,
    now_ms: i64,
) -> Result<Value<'a>, Fault> {
    arguments.iter().try_for_each(|argument| workspace.meter.weigh(*argument))?;
    let first = arguments.first().copied().unwrap_or(Value::Null);
    let text = || first.to_text(workspace);
    Ok(match function {
        Function::Abs => return abs(first),
        Function::Char => return characters(arguments, workspace),
        Function::Concat => return joined(b"", arguments, workspace),
        Function::ConcatWith => match text()? {
            Some(separator) => return joined(separator, &arguments[1..], workspace),
            None => Value::Null,
        },
        Function::Date(function) => return date(function, arguments, workspace, now_ms),
        Function::Hex => return hex(first, workspace),
        // JSON functions are evaluated by the caller, which needs their arguments' expressions.
        Function::Json(_) => Value::Null,
        Function::Mathematics(function) => mathematics::call(function, arguments),
        Function::OctetLength => text()?.map_or(Value::Null, |text| Value::Integer(text.len() as i64)),
        Function::Quote => return quote(first, workspace),
        Function::Instr => return instr(first, arguments[1], workspace),
        Function::Length => {
            text()?.map_or(Value::Null, |text| Value::Integer(pattern::length(pattern::until_nul(text))))
        }
        Function::Lower => return fold(first, workspace, |byte| byte.to_ascii_lowercase()),
        Function::Upper => return fold(first, workspace, |byte| byte.to_ascii_uppercase()),
        Function::Trim => return trim(arguments, true, true, workspace),
        Function::Ltrim => return trim(arguments, true, false, workspace),
        Function::Rtrim => return trim(arguments, false, true, workspace),
        Function::Max => extreme(arguments, |best, next| compare(best, next) == Ordering::Less),
        Function::Min => extreme(arguments, |best, next| compare(best, next) != Ordering::Less),
        Function::NullIf => {
            let equal = !first.is_null() && compare(first, arguments[1]) == Ordering::Equal;
            if equal { Value::Null } else { first }
        }
        Function::Printf => match text()? {
            None => Value::Null,
            Some(text) => return format::printf(pattern::until_nul(text), &arguments[1..], workspace),
        },
        Function::Replace => return replace(arguments, workspace),
        Function::Round => match (first, arguments.get(1)) {
            (Value::Null, _) | (_, Some(Value::Null)) => Value::Null,
            (value, places) => Value::Real(number::round(value.to_real(), places.map_or(0, |p| p.to_integer()))),
        },
        Function::Sign => sign(first),
        Function::Substr => return substr(arguments, workspace),
        Function::TypeOf => Value::text(first.type_name()),
        Function::Unicode => match text()?.and_then(first_character) {
            Some(character) => Value::Integer(i64::from(u32::from(character))),
            None => Value::Null,
        },
    })
}

/// The first character of a text that is valid UTF-8, unless it is NUL.
fn first_character(text: &[u8]) -> Option<char> {
    std::str::from_utf8(text).ok()?.chars().next().filter(|character| *character != '\0')
}

fn abs(value: Value<'_>) -> Result<Value<'_>, Fault> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Integer(integer) => integer.checked_abs().map(Value::Integer).ok_or(Fault::IntegerOverflow),
        other => Ok(Value::Real(match other.to_real() {
            real if real < 0.0 => -real,
            real => real,
        })),
    }
}

/// CHAR(code points…): an invalid code point becomes U+FFFD.
fn characters<'a>(codes: &[Value<'a>], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let mut out = workspace.text();
    for code in codes {
        let code = u32::try_from(code.to_integer()).ok().and_then(char::from_u32);
        let character = code.unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend(character.encode_utf8(&mut [0; 4]).as_bytes())?;
    }
    Ok(out.value())
}

fn joined<'a>(separator: &[u8], values: &[Value<'a>], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let mut out = workspace.text();
    let mut first = true;
    for value in values {
        let Some(text) = value.to_text(workspace)? else { continue };
        if !first {
            out.extend(separator)?;
        }
        first = false;
        out.extend(text)?;
    }
    Ok(out.value())
}

fn hex<'a>(value: Value<'a>, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let text = value.to_text(workspace)?.unwrap_or_default();
    let mut out = workspace.text_of(2 * text.len())?;
    for byte in text {
        out.extend(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])?;
    }
    Ok(out.value())
}

/// QUOTE: an SQL literal of the value.
fn quote<'a>(value: Value<'a>, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    Ok(match value {
        Value::Null => Value::Text(b"NULL"),
        Value::Real(real) if real.is_infinite() => Value::Text(number::infinite_text(real)),
        Value::Text(text) => {
            let mut out = workspace.text_of(text.len() + 2)?;
            out.push(b'\'')?;
            for &byte in pattern::until_nul(text) {
                out.fill(byte, if byte == b'\'' { 2 } else { 1 })?;
            }
            out.push(b'\'')?;
            out.value()
        }
        number => number.to_text(workspace)?.map_or(Value::Null, Value::Text),
    })
}

fn sign(value: Value<'_>) -> Value<'_> {
    let number = match value {
        Value::Text(_) => value.with_numeric_affinity(),
        other => other,
    };
    match number {
        Value::Integer(integer) => Value::Integer(integer.signum()),
        Value::Real(real) => Value::Integer(i64::from(real > 0.0) - i64::from(real < 0.0)),
        _ => Value::Null,
    }
}

fn extreme<'a>(values: &[Value<'a>], replaces: impl Fn(Value<'a>, Value<'a>) -> bool) -> Value<'a> {
    let mut best = values[0];
    for &next in values {
        if next.is_null() {
            return Value::Null;
        }
        if replaces(best, next) {
            best = next;
        }
    }
    best
}

fn fold<'a>(value: Value<'a>, workspace: Workspace<'a>, change: impl Fn(u8) -> u8) -> Result<Value<'a>, Fault> {
    let Some(text) = value.to_text(workspace)? else { return Ok(Value::Null) };
    let mut out = workspace.text_within(text.len())?;
    text.iter().try_for_each(|&byte| out.push(change(byte)))?;
    Ok(out.value())
}

fn instr<'a>(text: Value<'a>, wanted: Value<'a>, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let (Some(text), Some(wanted)) = (text.to_text(workspace)?, wanted.to_text(workspace)?) else {
        return Ok(Value::Null);
    };
    if wanted.is_empty() {
        return Ok(Value::Integer(1));
    }
    let found = memmem::find(text, wanted);
    Ok(Value::Integer(found.map_or(0, |at| pattern::length(&text[..at]) + 1)))
}

fn trim<'a>(arguments: &[Value<'a>], left: bool, right: bool, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let Some(mut text) = arguments[0].to_text(workspace)? else { return Ok(Value::Null) };
    let set: &[u8] = match arguments.get(1) {
        None => b" ",
        Some(set) => match set.to_text(workspace)? {
            None => return Ok(Value::Null),
            Some(set) => pattern::until_nul(set),
        },
    };
    // The set is sorted, because both text and set may be long. A character's bytes are used as a number.
    let code = |character: &[u8]| character.iter().fold(0u32, |code, &byte| code << 8 | u32::from(byte));
    let mut characters = workspace.list(set.len())?;
    let mut rest = set;
    while let Some((character, length)) = pattern::character(rest) {
        characters.push(code(character));
        rest = &rest[length..];
    }
    // Merging needs a second copy.
    let merged = workspace.meter.take(size_of_val(&characters[..]), size_of_val(&characters[..]))?;
    sort_in_pieces(&mut characters, |character| *character, workspace.meter)?;
    workspace.meter.give_back(merged);
    let is_stripped = |character: &[u8]| characters.binary_search(&code(character)).is_ok();
    while left && let Some((_, length)) = pattern::character(text).filter(|(first, _)| is_stripped(first)) {
        text = &text[length..];
    }
    while right
        && let Some(start) = text.iter().rposition(|byte| byte & 0xc0 != 0x80)
        && is_stripped(&text[start..])
    {
        text = &text[..start];
    }
    Ok(Value::Text(text))
}

fn replace<'a>(arguments: &[Value<'a>], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let text = |place: usize| arguments[place].to_text(workspace);
    let texts = (text(0)?, text(1)?, text(2)?);
    let (Some(text), Some(from), Some(to)) = texts else {
        // Replacing an empty text changes nothing, even if the replacement is NULL.
        return Ok(match texts {
            (Some(text), Some([] | [0, ..]), None) => Value::Text(text),
            _ => Value::Null,
        });
    };
    if matches!(from, [] | [0, ..]) {
        return Ok(Value::Text(text));
    }
    let mut found = memmem::find_iter(text, from).peekable();
    if found.peek().is_none() {
        return Ok(Value::Text(text));
    }
    let (mut out, mut end) = (workspace.text(), 0);
    for at in found {
        out.extend(&text[end..at])?;
        out.extend(to)?;
        end = at + from.len();
    }
    out.extend(&text[end..])?;
    Ok(out.value())
}

/// SUBSTR(text, from[, count]): characters from 1, negative ones from the end; a negative count takes the characters before
/// `from`.
fn substr<'a>(arguments: &[Value<'a>], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let Some(text) = arguments[0].to_text(workspace)?.map(pattern::until_nul) else { return Ok(Value::Null) };
    if arguments[1..].iter().any(|value| value.is_null()) {
        return Ok(Value::Null);
    }
    let mut from = arguments[1].to_integer();
    let mut count = arguments.get(2).map_or(i64::MAX, |count| count.to_integer());
    if from < 0 {
        from = from.saturating_add(pattern::length(text));
        if from < 0 {
            count = if count < 0 { 0 } else { count.saturating_add(from) };
            from = 0;
        }
    } else if from > 0 {
        from -= 1;
    } else if count > 0 {
        count -= 1;
    }
    if count < 0 {
        count = if count < -from { from } else { -count };
        from -= count;
    }
    let start = skip_characters(text, from);
    let length = skip_characters(&text[start..], count);
    Ok(Value::Text(&text[start..start + length]))
}

fn skip_characters(text: &[u8], count: i64) -> usize {
    let mut at = 0;
    for _ in 0..count {
        match pattern::character(&text[at..]) {
            Some((_, length)) => at += length,
            None => break,
        }
    }
    at
}

fn date<'a>(
    function: DateFunction,
    arguments: &[Value<'a>],
    workspace: Workspace<'a>,
    now_ms: i64,
) -> Result<Value<'a>, Fault> {
    let mut texts = workspace.list(arguments.len())?;
    for argument in arguments {
        // A number is a time value as a number, but a format or modifier by its text.
        match argument.to_text(workspace)? {
            Some(text) => texts.push(pattern::until_nul(text)),
            None => return Ok(Value::Null),
        }
    }
    workspace.meter.tick(DATE_UNITS)?;
    dates::call(function, arguments, &texts, now_ms, workspace)
}
