//! Result rows as CSV, cell by cell as an export writes them ([`docs::import::cells`]).

pub use super::media::NDJSON;
use super::pipe::Written;
use docs::import::cells;
use docs::sql::{FieldValue, RowSink, Value};

/// Writes rows as CSV with a head line. A row of one NULL is `""`, since readers ignore an empty line.
pub struct Csv<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// Where the row begins.
    row: usize,
}

impl<'o> Csv<'o> {
    /// Writes the head line.
    pub fn new<'n>(columns: impl Iterator<Item = &'n str>, out: &'o mut Vec<u8>) -> Csv<'o> {
        let start = out.len();
        for (number, name) in columns.enumerate() {
            if number > 0 {
                out.push(b',');
            }
            cells::append_name(name, out);
        }
        out.extend_from_slice(LINE_END);
        Csv { row: out.len(), out, start }
    }
}

const LINE_END: &[u8] = b"\r\n";

impl Written for Csv<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }
}

impl RowSink for Csv<'_> {
    fn begin_row(&mut self) {
        self.row = self.out.len();
    }

    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        if column > 0 {
            self.out.push(b',');
        }
        match field {
            FieldValue::Value(Value::Null) => {}
            FieldValue::Value(Value::Text(text)) => cells::append_text(text, self.out),
            FieldValue::Json(json) => cells::append_json(json, self.out),
            number => docs::sql::write_field(number, self.out),
        }
    }

    fn end_row(&mut self) {
        if self.out.len() == self.row {
            self.out.extend_from_slice(b"\"\"");
        }
        self.out.extend_from_slice(LINE_END);
    }

    fn bytes(&self) -> usize {
        self.out.len().saturating_sub(self.start)
    }
}

#[cfg(test)]
mod csv {
    use super::Csv;
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
    fn a_text_that_reads_as_another_value_is_in_quotes() {
        let mut out = Vec::new();
        let mut csv = Csv::new(["a", "b", "c", "d", "e", "f"].into_iter(), &mut out);
        csv.begin_row();
        csv.field(0, FieldValue::Json(b"\"\""));
        csv.field(1, FieldValue::Value(Value::Null));
        csv.field(2, FieldValue::Value(Value::Text(b"007")));
        csv.field(3, FieldValue::Json(b"\"true\""));
        csv.field(4, FieldValue::Json(b"true"));
        csv.field(5, FieldValue::Json(b"[1,\"x\"]"));
        csv.end_row();
        let row = "\"\",,\"007\",\"true\",true,\"[1,\"\"x\"\"]\"";
        assert_eq!(String::from_utf8_lossy(&out), format!("a,b,c,d,e,f\r\n{row}\r\n"));
    }

    #[test]
    fn a_row_of_one_null_is_no_empty_line_and_long_texts_come_whole() {
        let mut out = Vec::new();
        let mut csv = Csv::new(["a"].into_iter(), &mut out);
        let long = "x\"".repeat(300);
        for field in
            [FieldValue::Value(Value::Null), FieldValue::Json(b"null"), FieldValue::Value(Value::Text(long.as_bytes()))]
        {
            csv.begin_row();
            csv.field(0, field);
            csv.end_row();
        }
        let quoted = "x\"\"".repeat(300);
        assert_eq!(String::from_utf8_lossy(&out), format!("a\r\n\"\"\r\n\"\"\r\n\"{quoted}\"\r\n"));
    }
}
