//! Where result rows go: JSON text, or whatever implements [`RowSink`].

use super::error::QueryError;
pub use super::row::Field;
use super::value::Value;

/// Takes result rows, column by column.
pub trait RowSink {
    /// A row starts.
    fn begin_row(&mut self);
    /// The row's next column, by its number. Real numbers are finite.
    fn field(&mut self, column: usize, field: Field<'_>);
    /// The row is complete.
    fn end_row(&mut self);
    /// Bytes taken so far: what the limit on a result's size counts.
    fn bytes(&self) -> usize;
}

/// Pieces of JSON around the values of a row, made once for a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowShape {
    /// What goes before each column's value: `{"name":` or `,"name":`.
    pub(crate) before: Vec<Box<[u8]>>,
}

impl RowShape {
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let before = names.enumerate().map(|(number, name)| {
            let mut text = vec![if number == 0 { b'{' } else { b',' }];
            write_text(name.as_bytes(), &mut text);
            text.push(b':');
            text.into_boxed_slice()
        });
        RowShape { before: before.collect() }
    }
}

/// Writes rows as JSON objects, separated by commas or line ends.
pub struct JsonRows<'o> {
    shape: &'o RowShape,
    out: &'o mut Vec<u8>,
    separator: u8,
    start: usize,
    rows: u64,
}

impl<'o> JsonRows<'o> {
    pub(crate) fn new(shape: &'o RowShape, out: &'o mut Vec<u8>, separator: u8) -> Self {
        let start = out.len();
        JsonRows { shape, out, separator, start, rows: 0 }
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl RowSink for JsonRows<'_> {
    #[inline]
    fn begin_row(&mut self) {
        if self.rows > 0 {
            self.out.push(self.separator);
        }
    }

    #[inline]
    fn field(&mut self, column: usize, field: Field<'_>) {
        self.out.extend_from_slice(&self.shape.before[column]);
        write_field(field, self.out);
    }

    #[inline]
    fn end_row(&mut self) {
        self.out.push(b'}');
        self.rows += 1;
    }

    fn bytes(&self) -> usize {
        self.out.len() - self.start
    }
}

/// Appends a field as JSON.
#[inline]
pub fn write_field(field: Field<'_>, out: &mut Vec<u8>) {
    match field {
        Field::Json(json) => out.extend_from_slice(json),
        Field::Value(Value::Integer(integer)) => out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes()),
        Field::Value(Value::Real(real)) => out.extend_from_slice(ryu::Buffer::new().format(real).as_bytes()),
        Field::Value(Value::Null) => out.extend_from_slice(b"null"),
        Field::Value(Value::Text(text)) => write_text(text, out),
    }
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// A real that JSON cannot show is an error (rule 4).
#[inline]
pub(crate) fn check_finite(field: Field<'_>) -> Result<(), QueryError> {
    match field {
        Field::Value(Value::Real(real)) if !real.is_finite() => Err(QueryError::Value("a result is infinite")),
        _ => Ok(()),
    }
}
