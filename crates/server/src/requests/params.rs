//! Declared query parameters: from the query of a request to typed values.
//!
//! The rules are the same for every endpoint: of repeated ones the first counts; a declared one that is empty, badly escaped or not
//! of its type is refused. Undeclared names are ignored, whatever their values, except where they could ask for another part of a
//! list ([`check_names`]).

use crate::config::DECLARED_MAX;
use crate::failure::{Failure, FailureKind};
use docs::config::{Parameter, ParameterDefault, ParameterKind, ParameterValue};
use docs::order::Scalar;
use docs::sql::Value;
use http::{Params, query};
use std::borrow::Cow;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// The values of a request's declared parameters, in their order, without allocation.
#[derive(Debug)]
pub(crate) struct ParamValues<'v> {
    values: [Scalar<'v>; DECLARED_MAX],
    count: usize,
}

impl Default for ParamValues<'_> {
    fn default() -> Self {
        ParamValues { values: [Scalar::Null; DECLARED_MAX], count: 0 }
    }
}

impl<'v> ParamValues<'v> {
    fn push(&mut self, value: Scalar<'v>) {
        if let Some(place) = self.values.get_mut(self.count) {
            *place = value;
            self.count += 1;
        }
    }

    /// The value of the parameter at this place.
    pub(crate) fn get(&self, place: usize) -> Scalar<'v> {
        self.values.get(place).copied().unwrap_or(Scalar::Null)
    }
}

/// Refuses a query with a parameter that is none of these: for an answer that is one part of a longer one, since a client that asks
/// in vain for another part would read the same one for ever.
pub(crate) fn check_names(known: &[impl AsRef<str>], query: &str) -> Result<(), Failure> {
    let mut scratch = Vec::new();
    for (name, _) in query::pairs(query) {
        let decoded = query::decode(name, &mut scratch).unwrap_or(name);
        if known.iter().all(|known| known.as_ref() != decoded) {
            let allowed: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
            let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
            let detail = format!("unknown parameter `{}`; allowed: {allowed}", echo(decoded));
            return Err(Failure::new(FailureKind::Invalid, detail));
        }
    }
    Ok(())
}

/// Location of a parameter's text.
#[derive(Clone)]
enum SentText<'q> {
    Absent,
    Sent(&'q str),
    Decoded(Range<usize>),
}

/// Reads the declared parameters in their order; a missing one is its default or `Null`. `text` holds decoded texts.
pub(crate) fn read<'v>(
    declared: &'v [Parameter],
    query: &'v str,
    text: &'v mut Vec<u8>,
    values: &mut ParamValues<'v>,
) -> Result<(), Failure> {
    if read_plain(declared, query, values).is_none() {
        read_any(declared, query, text, values)?;
    }
    Ok(())
}

/// Fast path for the usual query, in one pass: only declared names, each once, unescaped, integers of a few digits and texts
/// without an escape. `None`: the query is of another form, or something is wrong with it; the values read so far are then
/// invalid.
fn read_plain<'v>(declared: &'v [Parameter], query: &'v str, given: &mut ParamValues<'v>) -> Option<()> {
    const { assert!(DECLARED_MAX <= u32::BITS as usize) };
    given.count = declared.len().min(DECLARED_MAX);
    let values = given.values.get_mut(..given.count)?;
    let mut seen = 0u32;
    let mut rest = query;
    while !rest.is_empty() {
        let (index, parameter) = declared.iter().enumerate().find(|(_, parameter)| is_named(rest, &parameter.name))?;
        let (bit, text) = (1 << index, rest.get(parameter.name.len() + 1..)?);
        let (value, after) = match parameter.kind {
            ParameterKind::Integer => plain_integer(text)?,
            ParameterKind::Text => plain_text(text)?,
            ParameterKind::Number | ParameterKind::Boolean => return None,
        };
        if seen & bit != 0 || !is_within(parameter, value) {
            return None;
        }
        seen |= bit;
        *values.get_mut(index)? = value;
        rest = after;
    }
    for (index, (parameter, value)) in declared.iter().zip(values).enumerate() {
        if seen >> index & 1 == 0 {
            if parameter.required {
                return None;
            }
            *value = default_of(parameter);
        }
    }
    Some(())
}

/// The value of one parameter in a usual query. A hint: only the first pair of that name is read, and its limits are not checked.
pub(crate) fn sent<'q>(parameter: &Parameter, query: &'q str) -> Option<Scalar<'q>> {
    let pair = query.split('&').find(|pair| is_named(pair, &parameter.name))?;
    let text = pair.get(parameter.name.len() + 1..)?;
    match parameter.kind {
        ParameterKind::Integer => plain_integer(text).map(|(value, _)| value),
        ParameterKind::Text => plain_text(text).map(|(value, _)| value),
        ParameterKind::Number | ParameterKind::Boolean => None,
    }
}

/// Whether a pair of this name begins the query.
#[inline]
fn is_named(query: &str, name: &str) -> bool {
    // The byte after the name distinguishes it from most others, without a call.
    query.as_bytes().get(name.len()) == Some(&b'=') && query.as_bytes().starts_with(name.as_bytes())
}

/// A short integer up to the end of its pair, and the rest of the query.
#[inline]
fn plain_integer(text: &str) -> Option<(Scalar<'_>, &str)> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (mut number, mut count) = (0i64, 0);
    for byte in digits.bytes().take(SHORT_DIGITS) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number * 10 + i64::from(digit);
        count += 1;
    }
    let rest = digits.get(count..).filter(|_| count > 0)?;
    let value = Scalar::Integer(if is_negative { -number } else { number });
    if rest.is_empty() { Some((value, rest)) } else { Some((value, rest.strip_prefix('&')?)) }
}

/// A text without an escape up to the end of its pair, and the rest of the query.
#[inline]
fn plain_text(text: &str) -> Option<(Scalar<'_>, &str)> {
    let end = text.bytes().position(|byte| matches!(byte, b'&' | b'%' | b'+')).unwrap_or(text.len());
    let (value, rest) = text.split_at_checked(end).filter(|(value, _)| !value.is_empty())?;
    if rest.is_empty() {
        Some((Scalar::Text(value), rest))
    } else {
        Some((Scalar::Text(value), rest.strip_prefix('&')?))
    }
}

/// Reads any query, or returns what is wrong with it.
fn read_any<'v>(
    declared: &'v [Parameter],
    query: &'v str,
    text: &'v mut Vec<u8>,
    values: &mut ParamValues<'v>,
) -> Result<(), Failure> {
    values.count = 0;
    text.clear();
    let mut places = [const { SentText::Absent }; DECLARED_MAX];
    if !query.is_empty() {
        find(declared, query, text, &mut places)?;
    }
    let text: &'v [u8] = text;
    for (parameter, place) in declared.iter().zip(&places) {
        let value = match place {
            SentText::Absent if parameter.required => return Err(refused(parameter, "is required")),
            SentText::Absent => default_of(parameter),
            SentText::Sent(sent) => typed(parameter, sent)?,
            SentText::Decoded(range) => {
                // Only complete decoded values were appended, each checked to be UTF-8.
                let decoded = text.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok());
                typed(parameter, decoded.unwrap_or_default())?
            }
        };
        values.push(value);
    }
    Ok(())
}

/// The value of a parameter that a request does not give.
pub(crate) fn default_of(parameter: &Parameter) -> Scalar<'_> {
    match &parameter.default {
        ParameterDefault::Missing => Scalar::Null,
        ParameterDefault::Clock => Scalar::Integer(unix_ms() / 1000),
        ParameterDefault::Value(value) => match value {
            ParameterValue::Integer(integer) => Scalar::Integer(*integer),
            ParameterValue::Number(number) => Scalar::Real(*number),
            ParameterValue::Text(text) => Scalar::Text(text),
            ParameterValue::Boolean(boolean) => Scalar::Integer(i64::from(*boolean)),
        },
    }
}

/// A typed value as a value of a statement.
pub(crate) fn value_of(scalar: Scalar<'_>) -> Value<'_> {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Integer(integer) => Value::Integer(integer),
        Scalar::Real(real) => Value::Real(real),
        Scalar::Text(text) => Value::text(text),
    }
}

/// The wall clock in Unix milliseconds.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Sets the fixed value of one of the file's `[params]` by `--set NAME=VALUE`: the value is checked as a request's would be.
pub(crate) fn fix(declared: &mut [Parameter], given: &str) -> Result<(), String> {
    let (name, text) = given.split_once('=').ok_or("NAME=VALUE is expected")?;
    let known: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).collect();
    let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has: {}", known.join(", ")) };
    let parameter = declared.iter_mut().find(|parameter| parameter.name == name);
    let parameter = parameter.ok_or_else(|| format!("[params] has no `{name}`; {known}"))?;
    let value = typed(parameter, text).map_err(|failure| failure.detail.into_owned())?;
    let value = match value {
        Scalar::Integer(integer) if parameter.kind == ParameterKind::Boolean => ParameterValue::Boolean(integer != 0),
        Scalar::Integer(integer) => ParameterValue::Integer(integer),
        Scalar::Real(number) => ParameterValue::Number(number),
        Scalar::Text(text) => ParameterValue::Text(text.to_owned()),
        Scalar::Null => return Ok(()),
    };
    parameter.default = ParameterDefault::Value(value);
    Ok(())
}

fn find<'q>(
    declared: &[Parameter],
    query: &'q str,
    text: &mut Vec<u8>,
    places: &mut [SentText<'q>; DECLARED_MAX],
) -> Result<(), Failure> {
    let mut scratch = Vec::new();
    for (raw_name, raw_value) in query::pairs(query) {
        let Ok(name) = query::decode(raw_name, &mut scratch) else { continue };
        let Some(index) = declared.iter().position(|parameter| parameter.name == name) else { continue };
        if !matches!(places[index], SentText::Absent) {
            continue;
        }
        let decoded = query::decode(raw_value, &mut scratch);
        let decoded = decoded.map_err(|error| refused(&declared[index], error.to_string()))?;
        // Nothing is escaped: the sent text is the value.
        if decoded.as_ptr() == raw_value.as_ptr() {
            places[index] = SentText::Sent(raw_value);
            continue;
        }
        let start = text.len();
        text.extend_from_slice(decoded.as_bytes());
        places[index] = SentText::Decoded(start..text.len());
    }
    Ok(())
}

/// A parameter's text as a value of its type and within its bounds.
pub(crate) fn typed<'v>(parameter: &Parameter, text: &'v str) -> Result<Scalar<'v>, Failure> {
    if text.is_empty() {
        return Err(refused(parameter, "is empty: leave it out if it has no value"));
    }
    let value = match parameter.kind {
        ParameterKind::Integer => integer(text).map(Scalar::Integer),
        ParameterKind::Number => number(text).map(Scalar::Real),
        ParameterKind::Text => Some(Scalar::Text(text)),
        ParameterKind::Boolean => match text {
            "true" => Some(Scalar::Integer(1)),
            "false" => Some(Scalar::Integer(0)),
            _ => None,
        },
    };
    let value = value.ok_or_else(|| {
        refused(parameter, format!("is `{}`, which is not {}", echo(text), type_name(parameter.kind)))
    })?;
    check(parameter, value)?;
    Ok(value)
}

/// The value of a path parameter. Text that is not of its type names nothing: 404, as for keys.
pub(crate) fn of_path<'v>(
    parameter: &'v Parameter,
    params: &Params<'_, 'v>,
    text: &'v mut Vec<u8>,
) -> Result<Scalar<'v>, Failure> {
    let text = params.get(&parameter.name, text).and_then(Result::ok);
    let value = text.and_then(|text| typed(parameter, text).ok());
    value.ok_or_else(|| no_such_path(parameter))
}

/// The failure of a path parameter whose text is invalid.
#[cold]
pub(crate) fn no_such_path(parameter: &Parameter) -> Failure {
    let Parameter { name, kind, values, min, max, .. } = parameter;
    let permitted = if values.is_empty() && min.is_none() && max.is_none() { "" } else { " that the endpoint permits" };
    Failure::new(
        FailureKind::NotFound,
        format!("`{name}` in the path is not {}{permitted}: nothing has this path", type_name(*kind)),
    )
}

fn type_name(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::Integer => "an integer within 64 bits",
        ParameterKind::Number => "a number",
        ParameterKind::Text => "text",
        ParameterKind::Boolean => "true or false",
    }
}

/// This many digits cannot overflow.
const SHORT_DIGITS: usize = 18;

/// `-?[0-9]+` within 64 bits; `str::parse` would accept a plus as well.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.len() <= SHORT_DIGITS {
        let number = digits.bytes().try_fold(0, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then(|| number * 10 + i64::from(digit))
        });
        let number = number.filter(|_| !digits.is_empty())?;
        return Some(if digits.len() < text.len() { -number } else { number });
    }
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A JSON number; `str::parse` would accept `inf` and `nan` as well.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    plain.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

fn check(parameter: &Parameter, value: Scalar<'_>) -> Result<(), Failure> {
    if !is_allowed(parameter, value) {
        return Err(refused(parameter, format!("is none of {}", listed(&parameter.values))));
    }
    let Some(number) = number_of(value) else { return Ok(()) };
    if let Some(min) = parameter.min.filter(|min| number < *min) {
        return Err(refused(parameter, format!("is under {min}")));
    }
    if let Some(max) = parameter.max.filter(|max| number > *max) {
        return Err(refused(parameter, format!("is over {max}")));
    }
    Ok(())
}

/// Whether [`check`] accepts it.
#[inline]
fn is_within(parameter: &Parameter, value: Scalar<'_>) -> bool {
    let is_outside =
        |number: f64| parameter.min.is_some_and(|min| number < min) || parameter.max.is_some_and(|max| number > max);
    is_allowed(parameter, value) && !number_of(value).is_some_and(is_outside)
}

#[inline]
fn is_allowed(parameter: &Parameter, value: Scalar<'_>) -> bool {
    parameter.values.is_empty() || parameter.values.iter().any(|allowed| equal(allowed, value))
}

#[inline]
fn number_of(value: Scalar<'_>) -> Option<f64> {
    match value {
        Scalar::Integer(integer) => Some(integer as f64),
        Scalar::Real(real) => Some(real),
        Scalar::Null | Scalar::Text(_) => None,
    }
}

fn equal(allowed: &ParameterValue, value: Scalar<'_>) -> bool {
    match (allowed, value) {
        (ParameterValue::Integer(one), Scalar::Integer(other)) => *one == other,
        (ParameterValue::Number(one), Scalar::Real(other)) => *one == other,
        (ParameterValue::Text(one), Scalar::Text(other)) => one == other,
        (ParameterValue::Boolean(one), Scalar::Integer(other)) => i64::from(*one) == other,
        _ => false,
    }
}

/// Bytes of a sent text that a message quotes.
const ECHO_BYTES: usize = 100;
/// Allowed values that a message lists.
const LISTED_MAX: usize = 10;

/// A sent text, or its beginning.
pub(crate) fn echo(text: &str) -> Cow<'_, str> {
    if text.len() <= ECHO_BYTES {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(ECHO_BYTES)]).into()
}

/// Allowed values: all, or the first ones and the number of the others.
fn listed(values: &[ParameterValue]) -> String {
    let shown = |value: &ParameterValue| match value {
        ParameterValue::Integer(value) => value.to_string(),
        ParameterValue::Number(value) => value.to_string(),
        ParameterValue::Text(value) => format!("\"{}\"", echo(value)),
        ParameterValue::Boolean(value) => value.to_string(),
    };
    let first: Vec<String> = values.iter().take(LISTED_MAX).map(shown).collect();
    let more = values.len() - first.len();
    let behind = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{behind}", first.join(", "))
}

fn refused(parameter: &Parameter, why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Invalid, format!("parameter `{}` {why}", parameter.name))
}

#[cfg(test)]
mod contract {
    use super::{ParamValues, read};
    use docs::config::{Parameter, ParameterDefault, ParameterKind, ParameterValue};
    use docs::order::Scalar;

    fn declared() -> Vec<Parameter> {
        let parameter = |name: &str, kind| Parameter {
            name: name.to_owned(),
            kind,
            values: Vec::new(),
            min: None,
            max: None,
            default: ParameterDefault::Missing,
            required: false,
            from: docs::config::ParameterPlace::Query,
        };
        let mut all = vec![
            parameter("from", ParameterKind::Integer),
            parameter("country", ParameterKind::Text),
            parameter("gender", ParameterKind::Text),
            parameter("age", ParameterKind::Integer),
        ];
        all[2].values = vec![ParameterValue::Text("m".to_owned()), ParameterValue::Text("f".to_owned())];
        (all[3].min, all[3].max) = (Some(0.0), Some(1000.0));
        all
    }

    #[track_caller]
    fn check(query: &str, expected: Option<[Scalar<'_>; 4]>) {
        let (declared, mut text, mut values) = (declared(), Vec::new(), ParamValues::default());
        let outcome = read(&declared, query, &mut text, &mut values);
        assert_eq!(outcome.is_ok(), expected.is_some(), "{query}: {outcome:?}");
        if let Some(expected) = expected {
            assert_eq!(values.values[..4], expected, "{query}");
        }
    }

    const NONE: Scalar<'static> = Scalar::Null;

    #[test]
    fn declared_names_are_read_and_others_ignored() {
        check("", Some([NONE, NONE, NONE, NONE]));
        check("x=1&%zz=2&y=%ff&=&&q", Some([NONE, NONE, NONE, NONE]));
        check("from=-5&age=0", Some([Scalar::Integer(-5), NONE, NONE, Scalar::Integer(0)]));
        check("country=%D0%A0%d1%83+a%20b&gender=m", Some([NONE, Scalar::Text("Ру a b"), Scalar::Text("m"), NONE]));
        check("fr%6fm=7", Some([Scalar::Integer(7), NONE, NONE, NONE]));
    }

    #[test]
    fn one_value_is_found_early_where_it_is_written_plainly() {
        let declared = declared();
        for (query, at, expected) in [
            ("from=7", 0, Some(Scalar::Integer(7))),
            ("x=1&from=-7&from=8&age=1", 0, Some(Scalar::Integer(-7))),
            ("xfrom=1&country=a-b&", 1, Some(Scalar::Text("a-b"))),
            ("xfrom=1", 0, None),
            ("from=7x", 0, None),
            ("from=", 0, None),
            ("from", 0, None),
            ("", 0, None),
            ("country=a%20b", 1, None),
        ] {
            assert_eq!(super::sent(&declared[at], query), expected, "{query}");
        }
    }

    #[test]
    fn a_fixed_value_is_checked_and_stands_in_for_an_absent_one() {
        let mut declared = declared();
        assert!(super::fix(&mut declared, "from").is_err());
        assert!(super::fix(&mut declared, "nobody=1").is_err_and(|message| message.contains("from, country")));
        assert!(super::fix(&mut declared, "age=1001").is_err());
        super::fix(&mut declared, "from=-7").expect("an integer");
        let (mut text, mut values) = (Vec::new(), ParamValues::default());
        read(&declared, "", &mut text, &mut values).expect("nothing given");
        assert_eq!(values.get(0), Scalar::Integer(-7));
    }

    #[test]
    fn of_repeated_names_the_first_counts() {
        check("from=1&from=x", Some([Scalar::Integer(1), NONE, NONE, NONE]));
        check("from=x&from=1", None);
        check("country=&country=a", None);
    }

    #[test]
    fn what_is_empty_badly_escaped_or_of_another_type_is_refused() {
        for query in [
            "from=",
            "from",
            "from=1.0",
            "from=+1",
            "from=%201",
            "from=1e3",
            "from=--1",
            "from=-",
            "from=9223372036854775808",
            "country=%",
            "country=%4",
            "country=%zz",
            "country=%ff",
            "gender=x",
            "gender=M",
            "age=-1",
            "age=1001",
        ] {
            check(query, None);
        }
    }

    #[test]
    fn an_integer_takes_all_of_64_bits_and_bounds_are_met_exactly() {
        let [min, max] = [i64::MIN, i64::MAX];
        check(&format!("from={min}&age=1000"), Some([Scalar::Integer(min), NONE, NONE, Scalar::Integer(1000)]));
        check(&format!("from={max}"), Some([Scalar::Integer(max), NONE, NONE, NONE]));
        check("from=-9223372036854775809", None);
    }

    /// Reads one parameter of this kind; `None`: refused.
    #[track_caller]
    fn check_kind(kind: ParameterKind, text: &str, expected: Option<Scalar<'_>>) {
        let mut declared = declared();
        declared.truncate(1);
        declared[0].kind = kind;
        let (query, mut scratch, mut values) = (format!("from={text}"), Vec::new(), ParamValues::default());
        let outcome = read(&declared, &query, &mut scratch, &mut values);
        assert_eq!(outcome.is_ok().then(|| values.get(0)), expected, "{text}: {outcome:?}");
    }

    #[test]
    fn a_number_is_finite_and_written_in_digits() {
        for (text, number) in [("1.5", 1.5), ("-2e3", -2000.0), ("7", 7.0), ("1E-2", 0.01)] {
            check_kind(ParameterKind::Number, text, Some(Scalar::Real(number)));
        }
        for text in ["inf", "-inf", "nan", "1e999", "infinity", "e", "1.5x", "0x1"] {
            check_kind(ParameterKind::Number, text, None);
        }
    }

    #[test]
    fn a_boolean_is_one_of_two_words() {
        check_kind(ParameterKind::Boolean, "true", Some(Scalar::Integer(1)));
        check_kind(ParameterKind::Boolean, "false", Some(Scalar::Integer(0)));
        for text in ["1", "0", "True", "yes"] {
            check_kind(ParameterKind::Boolean, text, None);
        }
    }

    #[test]
    fn what_is_absent_is_its_default_unless_it_is_required() {
        let mut declared = declared();
        let default = |parameter: &mut Parameter, value| parameter.default = ParameterDefault::Value(value);
        default(&mut declared[0], ParameterValue::Boolean(true));
        default(&mut declared[1], ParameterValue::Text("Russia".to_owned()));
        default(&mut declared[2], ParameterValue::Number(0.5));
        declared[3].default = ParameterDefault::Clock;
        let read_all = |declared: &[Parameter]| {
            let (mut text, mut values) = (Vec::new(), ParamValues::default());
            read(declared, "other=1", &mut text, &mut values).map_err(|failure| failure.detail.into_owned())?;
            assert!(matches!(values.get(3), Scalar::Integer(seconds) if (1_700_000_000..1 << 34).contains(&seconds)));
            Ok(format!("{:?} {:?} {:?}", values.get(0), values.get(1), values.get(2)))
        };
        assert_eq!(read_all(&declared), Ok("Integer(1) Text(\"Russia\") Real(0.5)".to_owned()));
        declared[1].required = true;
        assert_eq!(read_all(&declared), Err("parameter `country` is required".to_owned()));
    }

    #[test]
    fn only_an_allowed_value_of_each_kind_is_taken() {
        let mut declared = declared();
        declared[0].values = vec![ParameterValue::Integer(3)];
        declared[1].kind = ParameterKind::Number;
        declared[1].values = vec![ParameterValue::Number(0.5)];
        declared[3].kind = ParameterKind::Boolean;
        (declared[3].min, declared[3].max, declared[3].values) = (None, None, vec![ParameterValue::Boolean(true)]);
        let is_taken = |query: &str| read(&declared, query, &mut Vec::new(), &mut ParamValues::default()).is_ok();
        assert!(is_taken("from=3&country=0.5&gender=m&age=true"));
        for query in ["from=4", "country=0.6", "gender=n", "age=false"] {
            assert!(!is_taken(query), "{query}");
        }
    }

    #[test]
    fn a_fixed_value_keeps_its_kind() {
        for (kind, text, expected) in [
            (ParameterKind::Boolean, "true", ParameterValue::Boolean(true)),
            (ParameterKind::Boolean, "false", ParameterValue::Boolean(false)),
            (ParameterKind::Number, "0.5", ParameterValue::Number(0.5)),
            (ParameterKind::Text, "a=b", ParameterValue::Text("a=b".to_owned())),
            (ParameterKind::Integer, "1", ParameterValue::Integer(1)),
        ] {
            let mut declared = declared();
            declared[0].kind = kind;
            super::fix(&mut declared, &format!("from={text}")).expect(text);
            assert!(matches!(&declared[0].default, ParameterDefault::Value(value) if *value == expected), "{text}");
        }
    }
}
