//! Deserializes the fields of a form or a query: into a struct with a field for each name, or into a map.
//!
//! Why not `serde_urlencoded` or `serde_html_form`: both decode leniently (an invalid escape or byte is silently
//! replaced), and neither says which field has the wrong value.
//!
//! | type of a field | allowed values |
//! |---|---|
//! | text, `char`, number | one value |
//! | `bool` | one of `on`, `true`, `1`, and `off`, `false`, `0`; a checkbox that is off is not sent: `#[serde(default)]` |
//! | `Option<T>` | no value or one empty value, both `None`; or a `T` |
//! | a sequence | the values of all fields of this name, in their order; without any: `#[serde(default)]` |
//! | an enum without data | one value: the name of a variant |
//!
//! Names that the type does not have are ignored, or are an error under `#[serde(deny_unknown_fields)]`.

use http::forms::FormField;
use serde::Deserialize;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt::{self, Display};

/// Most bytes of a name or value that an error quotes.
const SHOWN_BYTES_MAX: usize = 64;

/// Deserializes the fields into a `T`.
pub(crate) fn read<'de, T: Deserialize<'de>>(fields: &'de [FormField<'de>]) -> Result<T, FieldsError> {
    T::deserialize(FieldList(fields))
}

/// Why the fields do not fit the type, and the field at fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FieldsError {
    field: Option<String>,
    what: String,
}

impl FieldsError {
    fn new(what: impl Display) -> FieldsError {
        FieldsError { field: None, what: what.to_string() }
    }

    /// Attributes the error to this field, unless it names one already.
    fn of(mut self, field: &str) -> FieldsError {
        self.field.get_or_insert_with(|| shown(field));
        self
    }
}

/// The first [`SHOWN_BYTES_MAX`] bytes of a text.
fn shown(text: &str) -> String {
    match text.char_indices().find(|(at, letter)| at + letter.len_utf8() > SHOWN_BYTES_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Display for FieldsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "the field \"{field}\": {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for FieldsError {}

impl de::Error for FieldsError {
    fn custom<T: Display>(text: T) -> FieldsError {
        FieldsError::new(text)
    }

    fn missing_field(field: &'static str) -> FieldsError {
        FieldsError::new("it is missing").of(field)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> FieldsError {
        FieldsError::new(format!("there is no such field; there are: {}", expected.join(", "))).of(field)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> FieldsError {
        FieldsError::new(format!("\"{}\" is none of: {}", shown(variant), expected.join(", ")))
    }
}

/// All fields.
struct FieldList<'de>(&'de [FormField<'de>]);

impl<'de> Deserializer<'de> for FieldList<'de> {
    type Error = FieldsError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_map(ByName { fields: self.0, next: 0, first: 0 })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        if self.0.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldsError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string bytes byte_buf unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

/// Each name once, in the order of the first fields. Searching for earlier fields of a name takes time quadratic in the
/// number of fields, which is bounded ([`http::forms::FieldLimits::fields_max`]).
struct ByName<'de> {
    fields: &'de [FormField<'de>],
    next: usize,
    /// Index of the first field of the current name.
    first: usize,
}

impl<'de> MapAccess<'de> for ByName<'de> {
    type Error = FieldsError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldsError> {
        while let Some(field) = self.fields.get(self.next) {
            let first = self.next;
            self.next += 1;
            if self.fields[..first].iter().all(|earlier| earlier.name != field.name) {
                self.first = first;
                return seed.deserialize(BorrowedStrDeserializer::new(&field.name)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, FieldsError> {
        let Some((first, rest)) = self.fields.get(self.first..).and_then(<[_]>::split_first) else {
            return Err(FieldsError::new("a value without a name"));
        };
        let value = Value { name: &first.name, first: &first.value, rest };
        seed.deserialize(value).map_err(|error| error.of(&first.name))
    }
}

/// The values of one name.
struct Value<'de> {
    name: &'de str,
    first: &'de str,
    /// The fields after the first one.
    rest: &'de [FormField<'de>],
}

impl<'de> Value<'de> {
    fn further(&self) -> impl Iterator<Item = &'de str> + use<'de> {
        let name = self.name;
        self.rest.iter().filter(move |field| field.name == name).map(|field| &*field.value)
    }

    /// The value, if there is exactly one.
    fn single(&self) -> Result<&'de str, FieldsError> {
        match self.further().count() {
            0 => Ok(self.first),
            more => Err(FieldsError::new(format!("it is given {} times, and has one value", more + 1))),
        }
    }
}

/// The error for a text that is not a number. Infinity and NaN, which Rust parses, are refused too.
fn no_number(text: &str) -> FieldsError {
    FieldsError::new(format!("\"{}\" is no number", shown(text)))
}

macro_rules! numbers {
    ($($method:ident $visit:ident $number:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
            let text = self.single()?;
            match text.parse::<$number>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => {
                    let (min, max) = ($number::MIN, $number::MAX);
                    Err(FieldsError::new(format!("\"{}\" is no whole number from {min} to {max}", shown(text))))
                }
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = FieldsError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        if self.further().next().is_some() {
            return self.deserialize_seq(visitor);
        }
        visitor.visit_borrowed_str(self.first)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_borrowed_str(self.single()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_borrowed_bytes(self.single()?.as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        match self.single()? {
            "on" | "true" | "1" => visitor.visit_bool(true),
            "off" | "false" | "0" => visitor.visit_bool(false),
            other => Err(FieldsError::new(format!("\"{}\" is none of: on, true, 1, off, false, 0", shown(other)))),
        }
    }

    numbers! {
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
        deserialize_u128 visit_u128 u128, deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_i128 visit_i128 i128
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        let text = self.single()?;
        let number = text.parse().ok().filter(|number: &f32| number.is_finite());
        visitor.visit_f32(number.ok_or_else(|| no_number(text))?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        let text = self.single()?;
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        visitor.visit_f64(number.ok_or_else(|| no_number(text))?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        // An empty input sends an empty value.
        if self.first.is_empty() && self.further().next().is_none() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldsError> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldsError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldsError> {
        visitor.visit_seq(Values { name: self.name, first: Some(self.first), rest: self.rest })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, FieldsError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, FieldsError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldsError> {
        visitor.visit_enum(BorrowedStrDeserializer::new(self.single()?))
    }

    forward_to_deserialize_any! { map struct }
}

/// The values of one name, one after the other.
struct Values<'de> {
    name: &'de str,
    first: Option<&'de str>,
    rest: &'de [FormField<'de>],
}

impl<'de> SeqAccess<'de> for Values<'de> {
    type Error = FieldsError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, FieldsError> {
        let first = match self.first.take() {
            Some(first) => first,
            None => {
                let Some(place) = self.rest.iter().position(|field| field.name == self.name) else { return Ok(None) };
                let found = &*self.rest[place].value;
                self.rest = &self.rest[place + 1..];
                found
            }
        };
        seed.deserialize(Value { name: self.name, first, rest: &[] }).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::forms::{FieldLimits, fields};
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Short(u8);

    #[derive(Debug, Default, Deserialize, PartialEq)]
    struct Person {
        name: String,
        age: Option<u8>,
        #[serde(default)]
        is_member: bool,
        #[serde(default)]
        tags: Vec<String>,
        height: Option<f32>,
        colour: Option<Colour>,
        code: Option<Short>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        a: i8,
    }

    fn read_form<T: de::DeserializeOwned>(form: &str) -> Result<T, FieldsError> {
        let fields: Vec<_> = fields(form.as_bytes(), &FieldLimits::default()).unwrap().map(Result::unwrap).collect();
        read(&fields)
    }

    #[track_caller]
    fn check<T: de::DeserializeOwned + Debug + PartialEq>(form: &str, expected: T) {
        assert_eq!(read_form(form), Ok(expected), "{form}");
    }

    #[track_caller]
    fn check_error<T: de::DeserializeOwned + Debug>(form: &str, message: &str) {
        assert_eq!(read_form::<T>(form).expect_err("a wrong form").to_string(), message, "{form}");
    }

    #[test]
    fn fields_become_a_struct_or_a_map() {
        let ann = || Person { name: "Ann Lee".to_owned(), ..Person::default() };
        check("name=Ann+Lee", ann());
        check("other=x&name=Ann+Lee&age=&colour=&tags=", Person { tags: vec![String::new()], ..ann() });
        check(
            "tags=a&name=Ann+Lee&age=30&tags=b&is_member=on&height=1.7&colour=green&code=7",
            Person {
                age: Some(30),
                is_member: true,
                tags: vec!["a".to_owned(), "b".to_owned()],
                height: Some(1.7),
                colour: Some(Colour::Green),
                code: Some(Short(7)),
                ..ann()
            },
        );
        check("b=2&a=1", BTreeMap::from([("a".to_owned(), 1u8), ("b".to_owned(), 2)]));
        check("a=1&a=2", BTreeMap::from([("a".to_owned(), vec![1u8, 2])]));
        check("a=1&a=x", BTreeMap::from([("a".to_owned(), ('1', "x".to_owned()))]));
        check("", BTreeMap::<String, String>::new());
        check::<Option<Strict>>("", None);
        check("a=1", Some(Strict { a: 1 }));
        check("", ());
    }

    #[test]
    fn an_error_names_its_field() {
        check_error::<Person>("age=3", "the field \"name\": it is missing");
        check_error::<Person>("name=a&name=b", "the field \"name\": it is given 2 times, and has one value");
        check_error::<Person>("name=a&age=300", "the field \"age\": \"300\" is no whole number from 0 to 255");
        check_error::<Person>("name=a&age=3&age=4", "the field \"age\": it is given 2 times, and has one value");
        check_error::<Person>("name=a&height=NaN", "the field \"height\": \"NaN\" is no number");
        check_error::<Person>("name=a&code=+1", "the field \"code\": \" 1\" is no whole number from 0 to 255");
        check_error::<Person>(
            "name=a&is_member=maybe",
            "the field \"is_member\": \"maybe\" is none of: on, true, 1, off, false, 0",
        );
        check_error::<Person>("name=a&colour=blue", "the field \"colour\": \"blue\" is none of: red, green");
        check_error::<Strict>("a=1&b=2", "the field \"b\": there is no such field; there are: a");
        check_error::<Strict>("a=1&a=2", "the field \"a\": it is given 2 times, and has one value");
        let long = "9".repeat(100);
        let message = format!("the field \"a\": \"{}…\" is no whole number from -128 to 127", "9".repeat(64));
        check_error::<Strict>(&format!("a={long}"), &message);
        check_error::<BTreeMap<String, BTreeMap<String, String>>>(
            "a=1",
            "the field \"a\": invalid type: string \"1\", expected a map",
        );
    }
}
