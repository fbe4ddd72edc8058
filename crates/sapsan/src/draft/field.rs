//! Statistics of one field: how many documents have it, with which types, and whether its values repeat.

use super::distinct::{Distinct, ValueSpace};
use binjson::{JsonKind, JsonValue};
use docs::import::Cell;
use docs::key::KEY_BYTES_MAX;

/// The types of values, in the order in which a schema lists them.
const TYPES: [&str; 7] = ["integer", "number", "string", "boolean", "array", "object", "null"];
const INTEGER: u8 = 1;
const NUMBER: u8 = 2;
const STRING: u8 = 4;
const BOOLEAN: u8 = 8;
const ARRAY: u8 = 16;
const OBJECT: u8 = 32;
const NULL: u8 = 64;

/// Longest text, in bytes, of a field that is suggested for an index or as unique.
const INDEXED_BYTES_MAX: usize = 200;

/// See the module's documentation.
pub(super) struct FieldProfile {
    pub(super) name: String,
    /// Number of documents that have the field, also with null.
    pub(super) documents: u64,
    pub(super) nulls: u64,
    /// Number of rows with `""`, the empty text. They count as documents that have the field only if its type is text.
    quoted_empty: u64,
    types: u8,
    /// For tables: the types that all cells so far can be read as.
    readable: Option<u8>,
    integers: Option<(i64, i64)>,
    /// The shortest and the longest text, in bytes.
    lengths: Option<(usize, usize)>,
    distinct: Distinct,
}

impl FieldProfile {
    pub(super) fn new(name: &str) -> FieldProfile {
        FieldProfile {
            name: name.to_owned(),
            documents: 0,
            nulls: 0,
            quoted_empty: 0,
            types: 0,
            readable: None,
            integers: None,
            lengths: None,
            distinct: Distinct::default(),
        }
    }

    /// Notes the field's value in a document.
    pub(super) fn add_value(&mut self, value: JsonValue<'_>, space: &mut ValueSpace) {
        self.documents += 1;
        match value.kind() {
            JsonKind::Null => {
                self.types |= NULL;
                self.nulls += 1;
                return;
            }
            JsonKind::Bool => self.types |= BOOLEAN,
            JsonKind::Array => self.types |= ARRAY,
            JsonKind::Object => self.types |= OBJECT,
            JsonKind::String => {
                self.types |= STRING;
                self.add_length(value.as_str().map_or(0, |text| text.len()));
            }
            JsonKind::Integer | JsonKind::Number => match value.as_i64() {
                Some(integer) => {
                    self.types |= INTEGER;
                    self.add_integer(integer);
                }
                None => self.types |= NUMBER,
            },
        }
        self.distinct.add(value.raw(), space);
    }

    /// Notes the field's cell in a row.
    pub(super) fn add_cell(&mut self, cell: Cell<'_>, space: &mut ValueSpace) {
        if cell.text.is_empty() {
            self.quoted_empty += u64::from(cell.is_quoted);
            return;
        }
        self.documents += 1;
        let readable = readable_as(cell.text);
        if readable & INTEGER != 0 {
            self.add_integer(cell.text.parse().unwrap_or_default());
        }
        self.readable = Some(self.readable.unwrap_or(u8::MAX) & readable);
        self.add_length(cell.text.len());
        self.distinct.add(cell.text.as_bytes(), space);
    }

    /// Ends the reading of a table: the field has the narrowest type that fits all of its cells.
    pub(super) fn settle(&mut self) {
        let Some(readable) = self.readable else {
            // All cells are empty: the type is unknown, unless some are `""`, which is text.
            self.types = if self.quoted_empty > 0 { STRING } else { 0 };
            self.documents += self.quoted_empty;
            return;
        };
        let narrowest = [INTEGER, NUMBER, BOOLEAN, ARRAY, OBJECT].into_iter().find(|kind| readable & kind != 0);
        self.types = narrowest.unwrap_or(STRING);
        if self.types == STRING && self.quoted_empty > 0 {
            self.documents += self.quoted_empty;
            self.add_length(0);
        }
    }

    fn add_integer(&mut self, integer: i64) {
        let (min, max) = self.integers.unwrap_or((integer, integer));
        self.integers = Some((min.min(integer), max.max(integer)));
    }

    fn add_length(&mut self, bytes: usize) {
        let (min, max) = self.lengths.unwrap_or((bytes, bytes));
        self.lengths = Some((min.min(bytes), max.max(bytes)));
    }

    /// The names of its types, for a schema. Empty if only null was found, or no value.
    pub(super) fn types(&self) -> Vec<&'static str> {
        if self.types & !NULL == 0 {
            return Vec::new();
        }
        let is_named = |place: usize| match 1 << place {
            INTEGER => self.types & INTEGER != 0 && self.types & NUMBER == 0,
            bit => self.types & bit != 0,
        };
        TYPES.iter().enumerate().filter(|(place, _)| is_named(*place)).map(|(_, name)| *name).collect()
    }

    /// The type of the key, if the field can be the key of a collection with so many documents.
    pub(super) fn key_type(&self, documents: u64) -> Option<&'static str> {
        if self.documents != documents || !self.distinct.is_distinct() || self.quoted_empty > 0 {
            return None;
        }
        match (self.types, self.integers, self.lengths) {
            (INTEGER, Some((0.., max)), _) if u32::try_from(max).is_ok() => Some("u32"),
            (INTEGER, ..) => Some("i64"),
            (STRING, _, Some((1.., max))) if max <= KEY_BYTES_MAX => Some("string"),
            _ => None,
        }
    }

    /// Whether it can be suggested as unique: several values, all different.
    pub(super) fn is_distinct(&self) -> bool {
        self.documents - self.nulls > 1 && self.distinct.is_distinct() && self.is_short(INTEGER | STRING)
    }

    /// Number of different values, if an index by the field would be useful: at least two values, each on average in two documents or more.
    pub(super) fn index_values(&self, documents: u64) -> Option<u64> {
        let values = self.distinct.count().filter(|values| (2..=self.documents / 2).contains(values))?;
        (self.documents >= documents / 2 && self.is_short(INTEGER | NUMBER | STRING)).then_some(values)
    }

    /// Whether all its values are short, and of one of these types or null.
    fn is_short(&self, types: u8) -> bool {
        let types_found = self.types & !NULL;
        let is_of_one = types_found & !types == 0 && (types_found.is_power_of_two() || types_found == INTEGER | NUMBER);
        is_of_one && self.lengths.is_none_or(|(_, max)| max <= INDEXED_BYTES_MAX)
    }

    /// The range of its values, for a comment; empty if there is nothing to say.
    pub(super) fn range(&self) -> String {
        match (self.types & !NULL, self.integers, self.lengths) {
            (INTEGER, Some((min, max)), _) if min == max => format!("always {min}"),
            (INTEGER, Some((min, max)), _) => format!("{min} to {max}"),
            (STRING, _, Some((min, max))) if min == max => format!("{max} bytes"),
            (STRING, _, Some((min, max))) => format!("{min} to {max} bytes"),
            _ => String::new(),
        }
    }
}

/// The types, besides text, that a cell can be read as.
fn readable_as(text: &str) -> u8 {
    match text.as_bytes() {
        _ if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") => BOOLEAN,
        [b'-' | b'0'..=b'9', ..] if serde_json::from_str::<serde_json::Number>(text).is_ok() => number_as(text),
        [b'[', ..] if serde_json::from_str::<Vec<serde::de::IgnoredAny>>(text).is_ok() => ARRAY,
        [b'{', ..] if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => OBJECT,
        _ => 0,
    }
}

/// An integer beyond 64 bits stays text: as floating-point numbers, different ones could be equal.
fn number_as(text: &str) -> u8 {
    let is_whole = text.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    match (is_whole, text.parse::<i64>().is_ok()) {
        (true, true) => INTEGER | NUMBER,
        (true, false) => 0,
        (false, _) => NUMBER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cells(cells: &[&str]) -> FieldProfile {
        let (mut field, mut space) = (FieldProfile::new("f"), ValueSpace::default());
        for cell in cells {
            let is_quoted = *cell == "\"\"";
            field.add_cell(Cell { text: cell.trim_matches('"'), is_quoted }, &mut space);
        }
        field.settle();
        field
    }

    #[test]
    fn a_column_has_the_narrowest_type_that_fits_all_of_its_cells() {
        for (cells, types) in [
            (&["1", "-7", ""][..], &["integer"][..]),
            (&["1", "2.50"], &["number"]),
            (&["1", "01"], &["string"]),
            (&["12345678901234567890"], &["string"]),
            (&["true", "false"], &["boolean"]),
            (&["true", "1"], &["string"]),
            (&["[1]", "[]"], &["array"]),
            (&["{}", "[]"], &["string"]),
            (&["{\"a\":1}"], &["object"]),
            (&["5", "\"\""], &["integer"]),
            (&["", ""], &[]),
            (&["\"\""], &["string"]),
        ] {
            assert_eq!(of_cells(cells).types(), types, "{cells:?}");
        }
    }

    #[test]
    fn a_key_is_in_every_document_and_never_twice() {
        assert_eq!(of_cells(&["1", "2"]).key_type(2), Some("u32"));
        assert_eq!(of_cells(&["1", "-2"]).key_type(2), Some("i64"));
        assert_eq!(of_cells(&["1", "4294967296"]).key_type(2), Some("i64"));
        assert_eq!(of_cells(&["a", "b"]).key_type(2), Some("string"));
        for cells in [&["1", "1"][..], &["a", ""], &["a", "\"\""], &["1.5", "2"]] {
            assert_eq!(of_cells(cells).key_type(2), None, "{cells:?}");
        }
        assert_eq!(of_cells(&[&"x".repeat(KEY_BYTES_MAX + 1)]).key_type(1), None);
    }

    #[test]
    fn an_index_is_suggested_for_short_values_that_repeat_and_that_most_documents_have() {
        let repeated = |values: [&str; 2]| of_cells(&[values[0], values[1], values[0], values[1]]);
        let longest = |end: &str| "x".repeat(INDEXED_BYTES_MAX - 1) + end;
        assert_eq!(repeated(["a", "b"]).index_values(4), Some(2));
        assert_eq!(repeated(["1.5", "2"]).index_values(8), Some(2));
        assert_eq!(repeated([&longest("a"), &longest("b")]).index_values(4), Some(2));
        assert_eq!(repeated([&longest("aa"), &longest("bb")]).index_values(4), None);
        assert_eq!(repeated(["a", "a"]).index_values(4), None);
        assert_eq!(repeated(["true", "false"]).index_values(4), None);
        assert_eq!(repeated(["a", "b"]).index_values(10), None);
        assert_eq!(of_cells(&["a", "b", "c"]).index_values(3), None);
    }

    #[test]
    fn a_field_is_suggested_as_unique_if_it_has_several_short_values_that_differ() {
        assert!(of_cells(&["a", "b", ""]).is_distinct());
        let longer = "x".repeat(INDEXED_BYTES_MAX + 1);
        for cells in [&["a"][..], &["a", "b", "a"], &["true", "false"], &["1.5", "2.5"], &["a", &longer]] {
            assert!(!of_cells(cells).is_distinct(), "{cells:?}");
        }
    }
}
