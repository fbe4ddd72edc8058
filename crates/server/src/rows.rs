//! Result rows as CSV (RFC 4180).

use crate::flowing::Written;
pub use crate::media::NDJSON;
use docs::sql::{Field, RowSink, Value};

/// Writes rows as CSV with a head line. NULL is an empty field; text that needs it is quoted; stored JSON text comes
/// without its quotes, other JSON as it is.
pub struct Csv<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Csv<'o> {
    /// Writes the head line.
    pub fn new<'n>(columns: impl Iterator<Item = &'n str>, out: &'o mut Vec<u8>) -> Csv<'o> {
        let start = out.len();
        for (number, name) in columns.enumerate() {
            if number > 0 {
                out.push(b',');
            }
            write_text(name.as_bytes(), out);
        }
        out.extend_from_slice(b"\r\n");
        Csv { out, start }
    }
}

impl Written for Csv<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }
}

impl RowSink for Csv<'_> {
    fn begin_row(&mut self) {}

    fn field(&mut self, column: usize, field: Field<'_>) {
        if column > 0 {
            self.out.push(b',');
        }
        match field {
            Field::Value(Value::Null) | Field::Json(b"null") => {}
            Field::Value(Value::Text(text)) => write_text(text, self.out),
            Field::Json(json) if json.first() == Some(&b'"') => {
                let text = serde_json::from_slice::<String>(json).unwrap_or_default();
                write_text(text.as_bytes(), self.out);
            }
            Field::Json(json) if matches!(json.first(), Some(b'{' | b'[')) => write_text(json, self.out),
            other => docs::sql::write_field(other, self.out),
        }
    }

    fn end_row(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    fn bytes(&self) -> usize {
        self.out.len().saturating_sub(self.start)
    }
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n')) {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod csv {
    use super::Csv;
    use docs::sql::{Field, RowSink, Value};

    #[test]
    fn what_needs_quotes_has_them_and_null_is_empty() {
        let mut out = Vec::new();
        let mut csv = Csv::new(["a", "b,c", "d"].into_iter(), &mut out);
        csv.begin_row();
        csv.field(0, Field::Json(b"\"x\\\"y\""));
        csv.field(1, Field::Value(Value::Null));
        csv.field(2, Field::Value(Value::Integer(-5)));
        csv.end_row();
        assert_eq!(String::from_utf8_lossy(&out), "a,\"b,c\",d\r\n\"x\"\"y\",,-5\r\n");
    }
}
