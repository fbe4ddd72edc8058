//! The checker for plain schemas, which reads the stored document: an object whose fields have types, enums, bounds, lengths.
//!
//! Supported: at the top `type: object`, `properties`, `required`, `additionalProperties: true|false`; for a field `type`,
//! `enum` and `const` of plain values, `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `minLength`, `maxLength`;
//! annotations (`title`, `description`, `$comment`, `default`, `examples`) anywhere. A schema with anything else is not plain.

use std::cmp::Ordering;

use binjson::JsonValue;
use serde_json::{Map, Value as Json};

use super::Misfit;
use super::integer::{exact_integer, integer_of};
use super::promise::Promise;
use super::row::{NAMES_MAX, Names, Row};
use super::types::{ANY, ARRAY, BOOLEAN, INTEGER, NULL, OBJECT, REAL, STRING, type_names, types};

pub(super) const REMARKS: [&str; 5] = ["title", "description", "$comment", "default", "examples"];

#[derive(Debug)]
pub(crate) struct PlainRules {
    /// In the order of the schema's fields.
    pub(super) rules: Vec<Rule>,
    pub(super) closed: bool,
}

/// The rule for one field.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) required: bool,
    pub(super) types: u8,
    pub(super) values: Option<Vec<Constant>>,
    pub(super) min: Option<Bound>,
    pub(super) max: Option<Bound>,
    pub(super) length_min: usize,
    pub(super) length_max: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) number: Numeric,
    pub(super) exclusive: bool,
}

/// A number in a schema or a document; integers within 64 bits are compared exactly.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numeric {
    Integer(i64),
    Real(f64),
}

#[derive(Debug)]
pub(super) enum Constant {
    Null,
    Boolean(bool),
    Number(Numeric),
    Text(String),
}

impl PlainRules {
    /// `None` if the schema has keywords that this checker does not support.
    pub(crate) fn compile(schema: &Json, promise: &Promise) -> Option<PlainRules> {
        let schema = schema.as_object()?;
        let known = ["type", "properties", "required", "additionalProperties"];
        let remark = |key: &str| REMARKS.contains(&key);
        if !schema.keys().all(|key| known.contains(&key.as_str()) || remark(key)) {
            return None;
        }
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return None;
        }
        let closed = match schema.get("additionalProperties") {
            None | Some(Json::Bool(true)) => false,
            Some(Json::Bool(false)) => true,
            Some(_) => return None,
        };
        let empty = Map::new();
        let properties = schema.get("properties").map_or(Some(&empty), Json::as_object)?;
        let required = required_names(schema)?;
        // A required name without an entry in `properties` has no position in the row, and of duplicate keys in the text one
        // definition is lost.
        let described = promise.fields.len() == properties.len() && properties.len() <= NAMES_MAX;
        if !described || !required.iter().all(|name| properties.contains_key(*name)) {
            return None;
        }
        let rules = promise.fields.iter().map(|field| {
            let required = required.contains(&field.name.as_str());
            Rule::compile(properties.get(&field.name)?, required)
        });
        Some(PlainRules { rules: rules.collect::<Option<_>>()?, closed })
    }

    #[inline]
    pub(crate) fn check(&self, row: &Row<'_, '_>, names: &Names) -> Result<(), Misfit> {
        for (number, rule) in self.rules.iter().enumerate() {
            if !rule.holds(row.get(number)) {
                return Err(rule.misfit(names.name(number), row.get(number)));
            }
        }
        if self.closed {
            self.check_unknown(row, names)?;
        }
        Ok(())
    }

    fn check_unknown(&self, row: &Row<'_, '_>, names: &Names) -> Result<(), Misfit> {
        // Names after the schema's own are those of indexes and rules. A document with such a field has a field that the schema
        // does not name.
        let is_extra = |number: usize| row.get(number).is_some() && !names.is_mark(number);
        let extra = (self.rules.len()..names.len()).find(|&number| is_extra(number));
        let unknown = match extra {
            Some(number) => Some(names.name(number).to_string()),
            None => row.unknown.map(|name| name.as_str().unwrap_or_default().into_owned()),
        };
        match unknown {
            None => Ok(()),
            Some(name) => Err(Misfit { why: format!("the field \"{name}\" is not allowed"), pointer: pointer(&name) }),
        }
    }
}

fn required_names(schema: &Map<String, Json>) -> Option<Vec<&str>> {
    match schema.get("required") {
        None => Some(Vec::new()),
        Some(names) => names.as_array()?.iter().map(Json::as_str).collect(),
    }
}

impl Rule {
    pub(super) fn compile(schema: &Json, required: bool) -> Option<Rule> {
        let mut rule =
            Rule { required, types: ANY, values: None, min: None, max: None, length_min: 0, length_max: usize::MAX };
        for (keyword, value) in schema.as_object()? {
            match keyword.as_str() {
                "type" => rule.types = types(value)?,
                "enum" => rule.values = intersect(rule.values, value.as_array()?)?,
                "const" => rule.values = intersect(rule.values, std::slice::from_ref(value))?,
                "minimum" => rule.min = Some(tighter(rule.min, bound(value, false)?, Ordering::Greater)),
                "exclusiveMinimum" => rule.min = Some(tighter(rule.min, bound(value, true)?, Ordering::Greater)),
                "maximum" => rule.max = Some(tighter(rule.max, bound(value, false)?, Ordering::Less)),
                "exclusiveMaximum" => rule.max = Some(tighter(rule.max, bound(value, true)?, Ordering::Less)),
                "minLength" => rule.length_min = length(value)?,
                "maxLength" => rule.length_max = length(value)?,
                remark if REMARKS.contains(&remark) => {}
                _ => return None,
            }
        }
        Some(rule)
    }

    #[inline]
    fn holds(&self, value: Option<JsonValue<'_>>) -> bool {
        let Some(value) = value else {
            return !self.required;
        };
        let holds = match value.raw().first() {
            Some(b'"') => self.types & STRING != 0 && self.length_fits(value),
            Some(b'-' | b'0'..=b'9') => self.number_fits(value),
            Some(b'{') => self.types & OBJECT != 0,
            Some(b'[') => self.types & ARRAY != 0,
            Some(b'n') => self.types & NULL != 0,
            _ => self.types & BOOLEAN != 0,
        };
        holds && self.values.as_ref().is_none_or(|values| values.iter().any(|constant| constant.equals(value)))
    }

    #[inline]
    fn number_fits(&self, value: JsonValue<'_>) -> bool {
        let (number, kind) = match value.as_i64() {
            Some(integer) => (Numeric::Integer(integer), INTEGER),
            None => (Numeric::Real(value.as_f64().unwrap_or_default().clamp(f64::MIN, f64::MAX)), REAL),
        };
        let is_of_type = self.types & kind != 0 || self.types & INTEGER != 0 && integer_of(value).is_some();
        is_of_type
            && self.min.is_none_or(|min| min.admits(number, Ordering::Greater))
            && self.max.is_none_or(|max| max.admits(number, Ordering::Less))
    }

    #[inline]
    fn length_fits(&self, value: JsonValue<'_>) -> bool {
        if self.length_min == 0 && self.length_max == usize::MAX {
            return true;
        }
        let stored = value.stored_string().unwrap_or_default();
        // A character takes at least one byte, escaped or not: a short string needs no counting.
        if self.length_min == 0 && stored.len() <= self.length_max {
            return true;
        }
        let characters = if stored.contains(&b'\\') {
            value.as_str().unwrap_or_default().chars().count()
        } else {
            stored.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
        };
        (self.length_min..=self.length_max).contains(&characters)
    }

    #[cold]
    fn misfit(&self, name: &str, value: Option<JsonValue<'_>>) -> Misfit {
        let pointer = pointer(name);
        let Some(value) = value else {
            return Misfit { why: format!("the field \"{name}\" is missing"), pointer };
        };
        let mut wanted: Vec<String> = Vec::new();
        if self.types != ANY {
            wanted.push(type_names(self.types));
        }
        if let Some(values) = &self.values {
            wanted.push(format!("one of {}", values.iter().map(Constant::text).collect::<Vec<_>>().join(", ")));
        }
        for (bound, word) in [(&self.min, "at least"), (&self.max, "at most")] {
            if let Some(bound) = bound {
                wanted.push(bound.text(word));
            }
        }
        if self.length_min > 0 {
            wanted.push(format!("at least {} characters", self.length_min));
        }
        if self.length_max < usize::MAX {
            wanted.push(format!("at most {} characters", self.length_max));
        }
        let hint = if self.types & (INTEGER | REAL) == INTEGER { spelling(value) } else { String::new() };
        Misfit { why: format!("{} does not fit \"{name}\": {}{hint}", shown(value), wanted.join(", ")), pointer }
    }
}

impl Bound {
    #[inline]
    fn admits(&self, number: Numeric, side: Ordering) -> bool {
        let order = number.compare(self.number);
        order == side || (order == Ordering::Equal && !self.exclusive)
    }

    fn text(&self, word: &str) -> String {
        let number = match self.number {
            Numeric::Integer(integer) => integer.to_string(),
            Numeric::Real(real) => real.to_string(),
        };
        if self.exclusive { format!("{word} but not {number}") } else { format!("{word} {number}") }
    }
}

impl Numeric {
    #[inline]
    pub(super) fn compare(self, other: Numeric) -> Ordering {
        match (self, other) {
            (Numeric::Integer(a), Numeric::Integer(b)) => a.cmp(&b),
            (Numeric::Real(a), Numeric::Real(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Numeric::Integer(a), Numeric::Real(b)) => integer_to_real(a, b),
            (Numeric::Real(a), Numeric::Integer(b)) => integer_to_real(b, a).reverse(),
        }
    }

    fn of(value: &Json) -> Option<Numeric> {
        match value.as_i64() {
            Some(integer) => Some(Numeric::Integer(integer)),
            None => value.as_f64().map(Numeric::Real),
        }
    }
}

/// Compares exactly, although beyond 2^53 a double does not distinguish neighbouring integers.
fn integer_to_real(integer: i64, real: f64) -> Ordering {
    const I64_END: f64 = 9_223_372_036_854_775_808.0;
    if real >= I64_END {
        return Ordering::Less;
    }
    if real < -I64_END {
        return Ordering::Greater;
    }
    let floor = real.floor();
    integer.cmp(&(floor as i64)).then(if floor < real { Ordering::Less } else { Ordering::Equal })
}

impl Constant {
    fn of(value: &Json) -> Option<Constant> {
        Some(match value {
            Json::Null => Constant::Null,
            Json::Bool(boolean) => Constant::Boolean(*boolean),
            Json::Number(_) => Constant::Number(Numeric::of(value)?),
            Json::String(text) => Constant::Text(text.clone()),
            Json::Array(_) | Json::Object(_) => return None,
        })
    }

    #[inline]
    fn equals(&self, value: JsonValue<'_>) -> bool {
        match self {
            Constant::Null => value.is_null(),
            Constant::Boolean(boolean) => value.as_bool() == Some(*boolean),
            Constant::Number(number) => {
                let found = value.as_i64().map(Numeric::Integer).or_else(|| value.as_f64().map(Numeric::Real));
                found.is_some_and(|found| found.compare(*number) == Ordering::Equal)
            }
            Constant::Text(text) => match value.stored_string() {
                Some(stored) if !stored.contains(&b'\\') => stored == text.as_bytes(),
                Some(_) => value.as_str().as_deref() == Some(text),
                None => false,
            },
        }
    }

    fn text(&self) -> String {
        match self {
            Constant::Null => "null".to_string(),
            Constant::Boolean(boolean) => boolean.to_string(),
            Constant::Number(Numeric::Integer(integer)) => integer.to_string(),
            Constant::Number(Numeric::Real(real)) => real.to_string(),
            Constant::Text(text) => format!("\"{text}\""),
        }
    }
}

/// `enum` and `const` together are too rare to be supported.
fn intersect(before: Option<Vec<Constant>>, values: &[Json]) -> Option<Option<Vec<Constant>>> {
    if before.is_some() {
        return None;
    }
    values.iter().map(Constant::of).collect::<Option<Vec<_>>>().map(Some)
}

fn bound(value: &Json, exclusive: bool) -> Option<Bound> {
    Some(Bound { number: Numeric::of(value)?, exclusive })
}

/// The stricter of two bounds on one side; `side` is where admitted numbers lie.
fn tighter(before: Option<Bound>, bound: Bound, side: Ordering) -> Bound {
    match before {
        Some(before) if bound.number.compare(before.number) == side.reverse() => before,
        Some(before) if bound.number.compare(before.number) == Ordering::Equal => {
            Bound { exclusive: before.exclusive || bound.exclusive, ..bound }
        }
        _ => bound,
    }
}

fn length(value: &Json) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

/// The beginning of a value, for a message.
pub fn shown(value: JsonValue<'_>) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 40;
    let text = String::from_utf8_lossy(value.raw());
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// For a message about a number that is no `integer`, because a real would round it: the digits, which no real rounds.
pub(super) fn spelling(value: JsonValue<'_>) -> String {
    let integer = if integer_of(value).is_none() { exact_integer(value.raw()) } else { None };
    integer.map_or_else(String::new, |integer| format!("; write {integer}"))
}

/// The JSON pointer of a top-level field (RFC 6901).
pub fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}
