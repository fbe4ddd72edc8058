//! Appending JSON to a buffer: the parts of replies.

use crate::escape::append_escaped;
use crate::value::JsonValue;

/// Appends `string` as a JSON string, with its quotes.
#[inline]
pub fn append_string(out: &mut Vec<u8>, string: &str) {
    append_text(out, string.as_bytes());
}

/// The same for the bytes of a text.
#[inline]
pub fn append_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    append_escaped(out, text);
    out.push(b'"');
}

/// Appends an integer.
#[inline]
pub fn append_i64(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends an integer.
#[inline]
pub fn append_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a double in the shortest form that reads back as the same (`3.0`, `1e300`); JSON has no infinity and no NaN:
/// they become `null`.
#[inline]
pub fn append_f64(out: &mut Vec<u8>, number: f64) {
    if number.is_finite() {
        out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

/// Writes JSON values one after the other with commas between them. The caller must balance the brackets.
pub struct JsonWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Whether the next value or key follows another.
    comma: bool,
}

impl<'o> JsonWriter<'o> {
    /// Appends to `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, comma: false }
    }

    #[inline]
    fn separate(&mut self) {
        if self.comma {
            self.out.push(b',');
        }
        self.comma = true;
    }

    /// Opens an object.
    #[inline]
    pub fn begin_object(&mut self) -> &mut Self {
        self.open(b'{')
    }

    /// Closes an object.
    #[inline]
    pub fn end_object(&mut self) -> &mut Self {
        self.close(b'}')
    }

    /// Opens an array.
    #[inline]
    pub fn begin_array(&mut self) -> &mut Self {
        self.open(b'[')
    }

    /// Closes an array.
    #[inline]
    pub fn end_array(&mut self) -> &mut Self {
        self.close(b']')
    }

    #[inline]
    fn open(&mut self, bracket: u8) -> &mut Self {
        self.separate();
        self.out.push(bracket);
        self.comma = false;
        self
    }

    #[inline]
    fn close(&mut self, bracket: u8) -> &mut Self {
        self.out.push(bracket);
        self.comma = true;
        self
    }

    /// A key; its value must follow.
    #[inline]
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.separate();
        append_string(self.out, name);
        self.out.push(b':');
        self.comma = false;
        self
    }

    /// A string.
    #[inline]
    pub fn string(&mut self, string: &str) -> &mut Self {
        self.separate();
        append_string(self.out, string);
        self
    }

    /// An integer.
    #[inline]
    pub fn i64(&mut self, number: i64) -> &mut Self {
        self.separate();
        append_i64(self.out, number);
        self
    }

    /// An integer.
    #[inline]
    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.separate();
        append_u64(self.out, number);
        self
    }

    /// A double, as [`append_f64`] writes it.
    #[inline]
    pub fn f64(&mut self, number: f64) -> &mut Self {
        self.separate();
        append_f64(self.out, number);
        self
    }

    /// `true` or `false`.
    #[inline]
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.raw(if value { b"true" } else { b"false" })
    }

    /// `null`.
    #[inline]
    pub fn null(&mut self) -> &mut Self {
        self.raw(b"null")
    }

    /// A value that is already JSON text.
    #[inline]
    pub fn raw(&mut self, json: &[u8]) -> &mut Self {
        self.separate();
        self.out.extend_from_slice(json);
        self
    }

    /// A value of a stored document.
    #[inline]
    pub fn value(&mut self, value: JsonValue<'_>) -> &mut Self {
        self.raw(value.raw())
    }
}

/// Writes one object: `{` immediately, `}` in [`end`](Self::end).
pub struct ObjectWriter<'o> {
    writer: JsonWriter<'o>,
}

impl<'o> ObjectWriter<'o> {
    /// Opens an object in `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        let mut writer = JsonWriter::new(out);
        writer.begin_object();
        Self { writer }
    }

    /// A field with a string.
    #[inline]
    pub fn string(&mut self, name: &str, string: &str) -> &mut Self {
        self.writer.key(name).string(string);
        self
    }

    /// A field with an integer.
    #[inline]
    pub fn i64(&mut self, name: &str, number: i64) -> &mut Self {
        self.writer.key(name).i64(number);
        self
    }

    /// A field with a double.
    #[inline]
    pub fn f64(&mut self, name: &str, number: f64) -> &mut Self {
        self.writer.key(name).f64(number);
        self
    }

    /// A field with `true` or `false`.
    #[inline]
    pub fn bool(&mut self, name: &str, value: bool) -> &mut Self {
        self.writer.key(name).bool(value);
        self
    }

    /// A field with `null`.
    #[inline]
    pub fn null(&mut self, name: &str) -> &mut Self {
        self.writer.key(name).null();
        self
    }

    /// A field whose value is already JSON text.
    #[inline]
    pub fn raw(&mut self, name: &str, json: &[u8]) -> &mut Self {
        self.writer.key(name).raw(json);
        self
    }

    /// Closes the object.
    #[inline]
    pub fn end(mut self) {
        self.writer.end_object();
    }
}
