//! Access to stored documents for the `jsonschema` crate, in place. Each access is counted ([`super::meter`]).

use std::borrow::Cow;

use binjson::{FieldName, Fields, Items, JsonKind, JsonValue};
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object};
use serde_json::{Map, Number, Value as Parsed};

use super::{equality, meter};

/// Bytes of an object that are scanned to find a field; larger objects have a table.
const WALKED_BYTES_MAX: usize = 1024;
/// Size of a parsed value without its text.
const PARSED_BYTES: usize = 64;
/// Size of a parsed object, and of each field in it: nodes of a tree, which may be half full.
const PARSED_OBJECT_BYTES: usize = 640;
const PARSED_FIELD_BYTES: usize = 112;
/// Results for smaller values are computed again, which is faster than a cache lookup.
const REMEMBERED_BYTES_MIN: usize = 64;

/// The representation.
pub(super) struct Stored;

/// A value of a document, or the name of a field.
#[derive(Clone, Copy)]
pub(super) enum StoredNode<'a> {
    Value(JsonValue<'a>),
    Name(&'a str),
}

impl Json for Stored {
    type Node<'a> = StoredNode<'a>;
    type PreparedKey = FieldName;
    type StringBuffer = String;

    fn prepare_key(key: &str) -> FieldName {
        FieldName::new(key)
    }

    fn with_string_node<T>(buffer: &mut String, string: &str, f: impl FnOnce(StoredNode<'_>) -> T) -> T {
        meter::enter(string.len());
        buffer.clear();
        buffer.push_str(string);
        f(StoredNode::Name(buffer))
    }
}

impl<'a> StoredNode<'a> {
    fn value(&self) -> Option<JsonValue<'a>> {
        match self {
            StoredNode::Value(value) => Some(*value),
            StoredNode::Name(_) => None,
        }
    }
}

impl<'a> Node<'a, Stored> for StoredNode<'a> {
    type Object = StoredObject<'a>;
    type Array = StoredArray<'a>;
    type Number = Number;

    fn as_object(&self) -> Option<StoredObject<'a>> {
        (self.json_type() == JsonType::Object).then(|| self.value().map(StoredObject)).flatten()
    }

    fn as_array(&self) -> Option<StoredArray<'a>> {
        (self.json_type() == JsonType::Array).then(|| self.value().map(StoredArray)).flatten()
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            StoredNode::Name(name) => {
                meter::read(name.len());
                Some(Cow::Borrowed(name))
            }
            StoredNode::Value(value) => {
                let stored = value.stored_string()?;
                meter::read(stored.len());
                value.as_str()
            }
        }
    }

    fn as_number(&self) -> Option<Number> {
        let value = self.value()?;
        let is_number = self.json_type() == JsonType::Number;
        is_number.then(|| {
            meter::read(value.raw().len());
            equality::number(value)
        })
    }

    fn as_boolean(&self) -> Option<bool> {
        meter::read(0);
        self.value()?.as_bool()
    }

    fn is_null(&self) -> bool {
        self.json_type() == JsonType::Null
    }

    fn is_number(&self) -> bool {
        self.json_type() == JsonType::Number
    }

    fn json_type(&self) -> JsonType {
        meter::read(0);
        let Some(value) = self.value() else { return JsonType::String };
        match value.raw().first() {
            Some(b'"') => JsonType::String,
            Some(b'{') => JsonType::Object,
            Some(b'[') => JsonType::Array,
            Some(b't' | b'f') => JsonType::Boolean,
            Some(b'-' | b'0'..=b'9') => JsonType::Number,
            _ => JsonType::Null,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let string = match self {
            StoredNode::Name(name) => Cow::Borrowed(*name),
            StoredNode::Value(value) => value.as_str()?,
        };
        meter::read(string.len());
        Some(string.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Parsed) -> bool {
        match self {
            StoredNode::Value(value) => equality::is(*value, expected),
            StoredNode::Name(name) => {
                meter::read(name.len());
                expected.as_str() == Some(name)
            }
        }
    }

    /// For errors.
    fn to_value(&self) -> Cow<'a, Parsed> {
        match self {
            StoredNode::Name(name) => {
                meter::error(name.as_bytes());
                meter::take_bytes(name.len());
                Cow::Owned(Parsed::from(*name))
            }
            StoredNode::Value(value) => {
                meter::error(value.raw());
                Cow::Owned(parsed(*value))
            }
        }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        meter::enter(0);
        let address = match self {
            StoredNode::Value(value) => value.raw().as_ptr(),
            StoredNode::Name(name) => name.as_ptr(),
        };
        Some(NodeIdentity::new(address as usize))
    }

    /// The library caches results of recursive schemas by this identity. Its cache has no limit and may grow to dozens of times
    /// the document's size.
    fn container_identity(&self) -> Option<NodeIdentity> {
        let raw = self.value()?.raw();
        let is_container = matches!(raw.first(), Some(b'{' | b'['));
        let is_remembered = is_container && raw.len() >= REMEMBERED_BYTES_MIN && meter::remembers();
        is_remembered.then(|| NodeIdentity::new(raw.as_ptr() as usize))
    }
}

/// A stored value as the library reports it.
fn parsed(value: JsonValue<'_>) -> Parsed {
    let kind = value.kind();
    meter::enter(value.raw().len());
    meter::take_bytes(match kind {
        JsonKind::Object => PARSED_OBJECT_BYTES + PARSED_FIELD_BYTES * value.len() + value.raw().len(),
        JsonKind::String => PARSED_BYTES + value.raw().len(),
        _ => PARSED_BYTES,
    });
    match kind {
        JsonKind::Null => Parsed::Null,
        JsonKind::Bool => Parsed::Bool(value.as_bool().unwrap_or_default()),
        JsonKind::Integer | JsonKind::Number => Parsed::Number(equality::number(value)),
        JsonKind::String => Parsed::String(value.as_str().unwrap_or_default().into_owned()),
        JsonKind::Array => Parsed::Array(value.elements().map(parsed).collect()),
        JsonKind::Object => {
            let fields =
                value.fields().map(|(name, value)| (name.as_str().unwrap_or_default().into_owned(), parsed(value)));
            Parsed::Object(fields.collect::<Map<_, _>>())
        }
    }
}

pub(super) struct StoredObject<'a>(JsonValue<'a>);

impl<'a> Object<'a, Stored> for StoredObject<'a> {
    type Node = StoredNode<'a>;
    type MemberName = Cow<'a, str>;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        meter::read(self.0.raw().len());
        self.0.len()
    }

    fn get(&self, key: &FieldName) -> Option<StoredNode<'a>> {
        meter::enter(self.0.raw().len().min(WALKED_BYTES_MAX));
        self.0.field_named(key).map(StoredNode::Value)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.fields())
    }
}

pub(super) struct Members<'a>(Fields<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, StoredNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        meter::enter(value.raw().len());
        meter::name(name.stored().len());
        Some((name.as_str().unwrap_or_default(), StoredNode::Value(value)))
    }
}

pub(super) struct StoredArray<'a>(JsonValue<'a>);

impl<'a> Array<'a, Stored> for StoredArray<'a> {
    type Node = StoredNode<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        meter::read(self.0.raw().len());
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.elements())
    }

    fn is_unique(&self) -> bool {
        equality::are_unique(self.0)
    }
}

pub(super) struct Elements<'a>(Items<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = StoredNode<'a>;

    fn next(&mut self) -> Option<StoredNode<'a>> {
        let value = self.0.next()?;
        meter::enter(value.raw().len());
        Some(StoredNode::Value(value))
    }
}
