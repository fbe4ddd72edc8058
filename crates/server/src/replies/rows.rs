//! Result rows as CSV (RFC 4180), quoted by `csv-core`.

pub use super::media::NDJSON;
use super::pipe::Written;
use csv_core::{QuoteStyle, Terminator, WriteResult, Writer, WriterBuilder};
use docs::sql::{FieldValue, RowSink, Value};

/// Bytes that the writer fills at once.
const PIECE_BYTES: usize = 256;

/// Writes rows as CSV with a head line. NULL is an empty field; text is quoted if necessary; stored JSON text is written without
/// its quotes, other JSON as it is. A row of one empty field is `""`, since readers ignore an empty line.
pub struct Csv<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    writer: Writer,
    /// A number or JSON on its way to the writer.
    text: Vec<u8>,
}

impl<'o> Csv<'o> {
    /// Writes the head line.
    pub fn new<'n>(columns: impl Iterator<Item = &'n str>, out: &'o mut Vec<u8>) -> Csv<'o> {
        let mut builder = WriterBuilder::new();
        let writer = builder.terminator(Terminator::CRLF).quote_style(QuoteStyle::Necessary).build();
        let start = out.len();
        let mut csv = Csv { out, start, writer, text: Vec::new() };
        for (number, name) in columns.enumerate() {
            if number > 0 {
                csv.delimiter();
            }
            csv.write(name.as_bytes());
        }
        csv.end_row();
        csv
    }

    fn delimiter(&mut self) {
        self.fill(Writer::delimiter);
    }

    fn write(&mut self, text: &[u8]) {
        let mut rest = text;
        self.fill(|writer, piece| {
            let (result, read, written) = writer.field(rest, piece);
            rest = &rest[read..];
            (result, written)
        });
    }

    /// Calls `write` until all input is written; it returns how much of a piece it has filled.
    fn fill(&mut self, mut write: impl FnMut(&mut Writer, &mut [u8]) -> (WriteResult, usize)) {
        let mut piece = [0; PIECE_BYTES];
        loop {
            let (result, written) = write(&mut self.writer, &mut piece);
            self.out.extend_from_slice(&piece[..written]);
            if result == WriteResult::InputEmpty {
                return;
            }
        }
    }
}

impl Written for Csv<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }
}

impl RowSink for Csv<'_> {
    fn begin_row(&mut self) {}

    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        if column > 0 {
            self.delimiter();
        }
        match field {
            FieldValue::Value(Value::Null) | FieldValue::Json(b"null") => self.write(b""),
            FieldValue::Value(Value::Text(text)) => self.write(text),
            FieldValue::Json(json) if json.first() == Some(&b'"') => {
                let text = serde_json::from_slice::<String>(json).unwrap_or_default();
                self.write(text.as_bytes());
            }
            other => {
                let mut text = std::mem::take(&mut self.text);
                text.clear();
                docs::sql::write_field(other, &mut text);
                self.write(&text);
                self.text = text;
            }
        }
    }

    fn end_row(&mut self) {
        self.fill(Writer::terminator);
    }

    fn bytes(&self) -> usize {
        self.out.len().saturating_sub(self.start)
    }
}

#[cfg(test)]
mod csv {
    use super::{Csv, PIECE_BYTES};
    use docs::sql::{FieldValue, RowSink, Value};

    #[test]
    fn what_needs_quotes_has_them_and_null_is_empty() {
        let mut out = Vec::new();
        let mut csv = Csv::new(["a", "b,c", "d"].into_iter(), &mut out);
        csv.begin_row();
        csv.field(0, FieldValue::Json(b"\"x\\\"y\""));
        csv.field(1, FieldValue::Value(Value::Null));
        csv.field(2, FieldValue::Value(Value::Integer(-5)));
        csv.end_row();
        assert_eq!(String::from_utf8_lossy(&out), "a,\"b,c\",d\r\n\"x\"\"y\",,-5\r\n");
    }

    #[test]
    fn a_row_of_one_null_is_no_empty_line_and_long_texts_come_whole() {
        let mut out = Vec::new();
        let mut csv = Csv::new(["a"].into_iter(), &mut out);
        let long = "x\"".repeat(PIECE_BYTES);
        for field in
            [FieldValue::Value(Value::Null), FieldValue::Json(b"null"), FieldValue::Value(Value::Text(long.as_bytes()))]
        {
            csv.begin_row();
            csv.field(0, field);
            csv.end_row();
        }
        let quoted = "x\"\"".repeat(PIECE_BYTES);
        assert_eq!(String::from_utf8_lossy(&out), format!("a\r\n\"\"\r\n\"\"\r\n\"{quoted}\"\r\n"));
    }
}
