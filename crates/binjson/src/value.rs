//! One JSON value inside a stored document.

use crate::document::{self, Document};
use crate::escape;
use crate::table::{ElementTable, FieldTable, INNER_TEXT_MIN};
use crate::walk::{Fields, Items};
use std::borrow::Cow;

/// What a value is. A number of digits alone is an `Integer` whatever its magnitude, also `-0`; with a fraction or an
/// exponent it is a `Number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Digits, perhaps with a minus.
    Integer,
    /// A number with a fraction or an exponent.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A value inside a document: a view, cheap to copy.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    document: Document<'a>,
    /// Its range in the text; checked when the value was made.
    start: u32,
    end: u32,
}

impl<'a> Value<'a> {
    /// The value at `start..end` of the text.
    #[inline]
    pub(crate) fn new(document: Document<'a>, start: usize, end: usize) -> Self {
        Self { document, start: start as u32, end: end as u32 }
    }

    /// Its minified JSON text.
    #[inline]
    pub fn raw(&self) -> &'a [u8] {
        self.document.text().get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// What it is. Damaged bytes count as null.
    #[inline]
    pub fn kind(&self) -> Kind {
        let raw = self.raw();
        match raw.first() {
            Some(b'"') => Kind::String,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') if raw[1..].iter().all(u8::is_ascii_digit) => Kind::Integer,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// Whether it is `null`.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.raw().first() == Some(&b'n')
    }

    /// An integer of 64 bits. `None` for larger ones, and for anything with a fraction or exponent.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        let raw = self.raw();
        let (negative, digits) = match raw.split_first()? {
            (b'-', digits) => (true, digits),
            _ => (false, raw),
        };
        // Nineteen digits cannot overflow 64 bits without a sign, and JSON has no leading zeros that could make more.
        if digits.is_empty() || digits.len() > 19 {
            return None;
        }
        let mut magnitude = 0u64;
        for &digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            magnitude = magnitude * 10 + u64::from(digit - b'0');
        }
        if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
    }

    /// Any number, rounded to the nearest double; beyond the largest it is infinite.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        let raw = self.raw();
        if !matches!(raw.first(), Some(b'-' | b'0'..=b'9')) {
            return None;
        }
        std::str::from_utf8(raw).ok()?.parse().ok()
    }

    /// `true` or `false`.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match self.raw() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// A string's characters; borrowed unless an escape remains in the stored form.
    #[inline]
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        escape::unescape(self.stored_string()?)
    }

    /// A string in its stored form, without the quotes: equal strings are equal bytes here, and UTF-8 is not checked again.
    #[inline]
    pub fn stored_string(&self) -> Option<&'a [u8]> {
        self.raw().strip_prefix(b"\"")?.strip_suffix(b"\"")
    }

    /// The value of field `name`, if this is an object that has it.
    #[inline]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        if self.raw().first() != Some(&b'{') {
            return None;
        }
        if let Some(table) = self.table() {
            return document::find(self.document, table, name, self.start as usize, self.end as usize)
                .map(|(_, value)| value);
        }
        if document::is_plain(name.as_bytes()) && crate::scan::string_stop(name.as_bytes(), 0) == name.len() {
            return self.walk_to(name.as_bytes());
        }
        let mut stored = Vec::with_capacity(name.len() + 8);
        escape::append_escaped(&mut stored, name);
        self.walk_to(&stored)
    }

    fn walk_to(&self, key: &[u8]) -> Option<Value<'a>> {
        let mut fields = Fields::new(self.document, None, self.start as usize, self.end as usize);
        loop {
            let (found, start, end) = fields.next_range()?;
            if found == key {
                return Some(Value::new(self.document, start, end));
            }
        }
    }

    /// An object's fields in the order sent; none for any other value.
    pub fn fields(&self) -> Fields<'a> {
        let (start, end) = (self.start as usize, self.end as usize);
        let is_object = self.raw().first() == Some(&b'{');
        Fields::new(self.document, self.table(), start, if is_object { end } else { 0 })
    }

    /// The table of this object, if it has one.
    #[inline]
    fn table(&self) -> Option<FieldTable<'a>> {
        match (self.start, self.end - self.start) {
            (0, _) => self.document.root_table(),
            (_, len) if (len as usize) < INNER_TEXT_MIN => None,
            (start, _) => self.document.nested_tables().object(start as usize),
        }
    }

    /// An array's element `index`, from 0.
    pub fn element(&self, index: usize) -> Option<Value<'a>> {
        if self.raw().first() != Some(&b'[') {
            return None;
        }
        let first = (0, self.start as usize + 1);
        let (known, at) = match self.element_table() {
            Some(table) if index >= table.count => return None,
            Some(table) => table.nearest(index).unwrap_or(first),
            None => first,
        };
        Items::new(self.document, at, self.end as usize).nth(index - known)
    }

    /// The table of this array, if it has one.
    fn element_table(&self) -> Option<ElementTable<'a>> {
        let is_long = (self.end - self.start) as usize >= INNER_TEXT_MIN;
        is_long.then(|| self.document.nested_tables().array(self.start as usize)).flatten()
    }

    /// An array's elements; none for any other value.
    pub fn elements(&self) -> Items<'a> {
        let is_array = self.raw().first() == Some(&b'[');
        Items::new(self.document, self.start as usize + 1, if is_array { self.end as usize } else { 0 })
    }

    /// How many elements an array has, or fields an object; 0 for any other value.
    pub fn len(&self) -> usize {
        match self.raw().first() {
            Some(b'{') => self.table().map_or_else(|| self.fields().count(), |table| table.count),
            Some(b'[') => self.element_table().map_or_else(|| self.elements().count(), |table| table.count),
            _ => 0,
        }
    }

    /// Whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.fields().next().is_none() && self.elements().next().is_none()
    }
}

/// A key, in its stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Str<'a> {
    stored: &'a [u8],
}

impl<'a> Str<'a> {
    #[inline]
    pub(crate) fn new(stored: &'a [u8]) -> Self {
        Self { stored }
    }

    /// The stored form, without the quotes.
    #[inline]
    pub fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// The characters; borrowed unless an escape remains. `None` for damaged bytes.
    #[inline]
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        escape::unescape(self.stored)
    }
}

impl PartialEq<str> for Str<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str().as_deref() == Some(other)
    }
}

impl PartialEq<&str> for Str<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}
