//! CSV (RFC 4180): the header line names the fields, and each row after it is a document.
//!
//! The thread that reads the file finds the ends of rows ([`RowScan`]). The thread that encodes a row removes the quotes of its cells
//! with `csv-core` ([`RowReader`]), and makes a JSON object of them ([`Columns::object`]). The value of a cell depends on the types that
//! the collection's schema gives its field, not on how the cell looks:
//!
//! | types of the field | cell | value |
//! |---|---|---|
//! | any | empty | no field; null, if the schema requires the field and permits null |
//! | text among others, or unknown | `""` | the empty text |
//! | numbers | a number as JSON writes it | that number, digit for digit |
//! | boolean | `true`, `false`, in any case of letters | that value |
//! | array, object | JSON | that value |
//! | text, or unknown | anything else | a text |
//!
//! If a field may be a text or another type, a quoted cell is a text. Any other cell is an error.

use csv_core::{ReadFieldResult, Reader, ReaderBuilder, Terminator};
use schema::exact_integer;
use schema::pointer;
use schema::types::{self, ANY, ARRAY, BOOLEAN, INTEGER, NULL, OBJECT, REAL, STRING};
use serde::de::IgnoredAny;
use serde_json::Value as Json;

use super::{MAKES_NO_KEYS, RECORD_BYTES_MAX};
use crate::catalog::CollectionInfo;
use crate::encoding::KeyType;
use crate::error::WriteError;

/// Most columns of a table: as many as a sheet of a spreadsheet has.
pub const COLUMNS_MAX: usize = 16_384;
/// Memory for a row's texts that is kept for the next row.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Characters of a cell that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 40;
/// Names of columns that a message shows.
const SHOWN_NAMES_MAX: usize = 20;

/// State of the scan for the end of a row; it is kept between two reads of the file. A quote opens a quoted field only at the start of a
/// field, and a newline inside a quoted field belongs to the field: the same rules as in `csv-core`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RowScan {
    /// At the start of a field.
    #[default]
    Start,
    /// In a field without quotes.
    Plain,
    /// In a quoted field.
    Quoted,
    /// After a quote in a quoted field: it closes the field, or is the first of two that stand for one quote.
    Closing,
}

impl RowScan {
    /// Index of the newline that ends the row. `None`: the row continues after these bytes.
    pub(super) fn run(&mut self, bytes: &[u8], delimiter: u8) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            *self = match (*self, byte) {
                (RowScan::Quoted, b'"') => RowScan::Closing,
                (RowScan::Quoted, _) => RowScan::Quoted,
                (_, b'\n') => return Some(at),
                (RowScan::Start | RowScan::Closing, b'"') => RowScan::Quoted,
                (_, byte) if byte == delimiter => RowScan::Start,
                _ => RowScan::Plain,
            };
        }
        None
    }

    /// Whether a quoted field is still open.
    pub(super) fn is_open(self) -> bool {
        self == RowScan::Quoted
    }
}

/// Why a row cannot become a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadCell {
    /// The column of the error, from 1.
    pub(super) column: u64,
    /// JSON pointer to the field whose schema the cell does not fit; empty for other errors.
    pub(super) pointer: String,
    pub(super) why: String,
}

impl BadCell {
    fn new(column: usize, why: impl Into<String>) -> BadCell {
        BadCell { column: column as u64, pointer: String::new(), why: why.into() }
    }
}

/// Splits rows into cells, and removes their quotes.
pub(super) struct RowReader {
    reader: Reader,
    delimiter: u8,
    text: Vec<u8>,
    /// For each cell: where it ends in `text`, and whether it was quoted.
    cells: Vec<(usize, bool)>,
}

/// A cell without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'c> {
    /// Its text.
    pub text: &'c str,
    /// Whether it was quoted.
    pub is_quoted: bool,
}

impl RowReader {
    pub(super) fn new(delimiter: u8) -> RowReader {
        let mut builder = ReaderBuilder::new();
        // Rows come one by one, without the newline: see `RowScan`.
        let reader = builder.delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
        RowReader { reader, delimiter, text: Vec::new(), cells: Vec::new() }
    }

    /// Reads a row, which has no newline at its end.
    pub(super) fn read(&mut self, row: &[u8]) -> Result<(), BadCell> {
        self.cells.clear();
        // Removing quotes makes no row longer. The reader requires two more bytes.
        self.text.resize(row.len() + 2, 0);
        let (mut at, mut written, mut is_last) = (0, 0, false);
        while !is_last {
            let from = at;
            is_last = match self.field(row, &mut at, &mut written) {
                Some(is_last) => is_last,
                None => return Err(self.bad_row("a quoted field is not closed")),
            };
            let end = if is_last { row.len() } else { at - 1 };
            let raw = row.get(from..end).unwrap_or_default();
            let is_quoted = raw.first() == Some(&b'"');
            if is_quoted && !is_well_quoted(raw) {
                return Err(self.bad_row(
                    "text follows the closing quote of a field; inside a quoted field a quote is written twice",
                ));
            }
            if self.cells.len() == COLUMNS_MAX {
                return Err(self.bad_row(&format!("the row has more than {COLUMNS_MAX} fields")));
            }
            self.cells.push((written, is_quoted));
        }
        Ok(())
    }

    /// Reads a row of a table with this number of columns.
    pub(super) fn read_as_wide(&mut self, row: &[u8], columns: usize) -> Result<(), BadCell> {
        self.read(row)?;
        let found = self.len();
        if found != columns {
            let why = format!("the row has {found} fields, the header line {columns}");
            return Err(BadCell::new(found.min(columns), why));
        }
        Ok(())
    }

    /// Reads one field; returns whether it is the last one of the row. `None`: a quoted field is not closed.
    fn field(&mut self, row: &[u8], at: &mut usize, written: &mut usize) -> Option<bool> {
        loop {
            let rest = row.get(*at..).filter(|rest| !rest.is_empty());
            let (result, read, wrote) = self.reader.read_field(rest.unwrap_or(&b"\n"[..]), &mut self.text[*written..]);
            *at += read;
            *written += wrote;
            match result {
                ReadFieldResult::Field { record_end } => return Some(record_end),
                ReadFieldResult::InputEmpty if rest.is_some() => {}
                // An empty row: the reader skips its newline.
                ReadFieldResult::InputEmpty if row.is_empty() => return Some(true),
                _ => return None,
            }
        }
    }

    fn bad_row(&mut self, why: &str) -> BadCell {
        self.reader = RowReader::new(self.delimiter).reader;
        BadCell::new(self.cells.len() + 1, why)
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// The cell at an index.
    pub(super) fn cell(&self, place: usize) -> Result<Cell<'_>, BadCell> {
        let start = place.checked_sub(1).map_or(0, |before| self.cells[before].0);
        let (end, is_quoted) = self.cells[place];
        match std::str::from_utf8(&self.text[start..end]) {
            Ok(text) => Ok(Cell { text, is_quoted }),
            Err(_) => Err(BadCell::new(
                place + 1,
                "the text is not UTF-8: convert the file, for example with `iconv -f ENCODING -t UTF-8`",
            )),
        }
    }

    /// Frees the memory of a long row.
    pub(super) fn shrink(&mut self) {
        if self.text.capacity() > KEPT_BYTES_MAX {
            self.text = Vec::new();
        }
    }
}

/// Whether a field that begins with a quote ends with one and has only doubled quotes inside (RFC 4180, section 2).
fn is_well_quoted(raw: &[u8]) -> bool {
    let Some(mut inside) = raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else { return false };
    while let Some(quote) = memchr::memchr(b'"', inside) {
        match inside[quote + 1..].strip_prefix(b"\"") {
            Some(rest) => inside = rest,
            None => return false,
        }
    }
    true
}

/// Reads the names of the columns from the header line.
pub(super) fn header(row: &[u8], delimiter: u8) -> Result<Vec<String>, String> {
    let mut reader = RowReader::new(delimiter);
    let bad = |bad: BadCell| format!("line 1, column {}: {}", bad.column, bad.why);
    reader.read(row).map_err(bad)?;
    let mut names: Vec<String> = Vec::new();
    let mut known = hashbrown::HashSet::new();
    for place in 0..reader.len() {
        let name = reader.cell(place).map_err(bad)?.text;
        let column = place + 1;
        if name.is_empty() {
            return Err(format!(
                "line 1, column {column}: the column has no name; the header line must name each column"
            ));
        }
        if name.contains(['\n', '\r']) {
            return Err(format!(
                "line 1, column {column}: the column's name has a line break; the lines of the file must end with LF or CR LF"
            ));
        }
        if !known.insert(name.to_string()) {
            return Err(format!("line 1, column {column}: the name {} occurs twice", shown(name)));
        }
        names.push(name.to_string());
    }
    Ok(names)
}

/// The columns of a table, as fields of a collection's documents.
pub(super) struct Columns {
    columns: Vec<Column>,
    delimiter: u8,
}

struct Column {
    name: String,
    /// The name as a JSON object has it, with its colon: `"name":`.
    member: Vec<u8>,
    /// The types that the field may have.
    types: u8,
    /// An empty cell becomes null, and not a missing field.
    is_null_if_empty: bool,
}

impl Columns {
    /// Matches the names of a header line with the collection's fields. A header whose every row the collection would refuse is an error.
    pub(super) fn new(info: &CollectionInfo, names: Vec<String>, delimiter: u8) -> Result<Columns, String> {
        if !names.contains(&info.key.field) {
            let hint = match &names[..] {
                [name] if name.contains([';', '\t']) && delimiter == b',' => {
                    "; the fields must be separated by commas (in a .tsv file by tabs)"
                }
                _ if info.key.generate.is_some() => MAKES_NO_KEYS,
                _ => "",
            };
            return Err(format!(
                "the header line has no column \"{}\", the key of {}; it has: {}{hint}",
                info.key.field,
                info.name,
                listed(names.iter().map(String::as_str))
            ));
        }
        if let Some(name) = names.iter().find(|name| info.closed && info.field(name).is_none()) {
            let known = listed(info.fields.iter().map(|field| field.name.as_str()));
            return Err(format!(
                "the schema of {} does not permit the field {}; permitted: {known}",
                info.name,
                shown(name)
            ));
        }
        let schema: Json = info.schema.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let columns = names.into_iter().map(|name| Column::new(info, &schema, name)).collect();
        Ok(Columns { columns, delimiter })
    }

    pub(super) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Appends a row as a JSON object.
    pub(super) fn object(&self, reader: &mut RowReader, row: &[u8], out: &mut Vec<u8>) -> Result<(), BadCell> {
        reader.read_as_wide(row, self.columns.len())?;
        out.push(b'{');
        let start = out.len();
        for (place, column) in self.columns.iter().enumerate() {
            let before = out.len();
            if before > start {
                out.push(b',');
            }
            out.extend_from_slice(&column.member);
            let bad = |why: String| BadCell { pointer: pointer(&column.name), ..BadCell::new(place + 1, why) };
            if !column.append(reader.cell(place)?, out).map_err(bad)? {
                out.truncate(before);
            }
            // Escapes make an object longer than its row: up to six bytes for a character.
            if out.len() - start > RECORD_BYTES_MAX {
                return Err(bad(format!("as a JSON object the row has more than {RECORD_BYTES_MAX} bytes")));
            }
        }
        out.push(b'}');
        reader.shrink();
        Ok(())
    }

    /// The column, from 1, whose field caused the error of the document.
    pub(super) fn column_of(&self, error: &WriteError) -> Option<u64> {
        let WriteError::Invalid { pointer, .. } = error else { return None };
        let name = pointer.strip_prefix('/')?.split('/').next()?.replace("~1", "/").replace("~0", "~");
        self.columns.iter().position(|column| column.name == name).map(|place| place as u64 + 1)
    }
}

impl Column {
    fn new(info: &CollectionInfo, schema: &Json, name: String) -> Column {
        let mut types = types::of_field(schema, &name);
        if name == info.key.field {
            types &= match info.key.kind {
                KeyType::U32 | KeyType::I64 => INTEGER,
                KeyType::String => STRING,
            };
        }
        let is_null_if_empty = types != ANY && types & NULL != 0 && types::is_required(schema, &name);
        let mut member = Vec::new();
        binjson::append_string(&mut member, &name);
        member.push(b':');
        // A field without a declared type is text: a code of digits keeps its leading zeros.
        let types = if types == ANY { STRING } else { types };
        Column { name, member, types, is_null_if_empty }
    }

    /// Appends the value of a cell. `false`: the document does not get the field.
    fn append(&self, cell: Cell<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let Cell { text, is_quoted } = cell;
        let is_text = self.types & STRING != 0;
        if text.is_empty() && !(is_quoted && is_text) {
            if self.is_null_if_empty {
                out.extend_from_slice(b"null");
            }
            return Ok(self.is_null_if_empty);
        }
        if !(is_quoted && is_text) && append_other(self.types, text, out) {
            return Ok(true);
        }
        if !is_text {
            return Err(format!("{} does not fit: {}", shown(text), types::type_names(self.types)));
        }
        binjson::append_string(out, text);
        Ok(true)
    }
}

/// Appends the cell's text as a JSON value if it is a number, boolean, array or object of one of the `types`. Returns false, and
/// appends nothing, if it is none of these.
fn append_other(types: u8, text: &str, out: &mut Vec<u8>) -> bool {
    let is_other = match text.as_bytes() {
        [b'-' | b'0'..=b'9', ..] => (types & REAL != 0 && is_json(text)) || (types & INTEGER != 0 && is_integer(text)),
        [b'[', ..] => types & ARRAY != 0 && is_json(text),
        [b'{', ..] => types & OBJECT != 0 && is_json(text),
        _ => false,
    };
    if is_other {
        out.extend_from_slice(text.as_bytes());
        return true;
    }
    // Other tools write the integers of a column with gaps as 5.0.
    if types & (INTEGER | REAL | STRING) == INTEGER
        && is_json(text)
        && let Some(integer) = exact_integer(text.as_bytes())
    {
        out.extend_from_slice(integer.to_string().as_bytes());
        return true;
    }
    for value in ["true", "false"] {
        if types & BOOLEAN != 0 && text.eq_ignore_ascii_case(value) {
            out.extend_from_slice(value.as_bytes());
            return true;
        }
    }
    false
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether a text is an integer of 64 bits, in the spelling of JSON.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_one_spelling = digits == "0" || !digits.starts_with('0');
    is_one_spelling && digits.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<i64>().is_ok()
}

/// The beginning of a cell, for a message.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The first names, for a message.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut names: Vec<String> = names.take(SHOWN_NAMES_MAX + 1).map(shown).collect();
    if names.len() > SHOWN_NAMES_MAX {
        names[SHOWN_NAMES_MAX] = "…".to_string();
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cells(row: &[u8]) -> Result<Vec<(String, bool)>, BadCell> {
        let mut reader = RowReader::new(b',');
        // A refused row must not affect the next one.
        let _ = reader.read(b"a,\"b\"c");
        reader.read(row)?;
        (0..reader.len()).map(|place| reader.cell(place).map(|cell| (cell.text.to_string(), cell.is_quoted))).collect()
    }

    #[track_caller]
    fn check(row: &str, expected: Result<&[(&str, bool)], (u64, &str)>) {
        match (cells(row.as_bytes()), expected) {
            (Ok(found), Ok(expected)) => {
                let found: Vec<(&str, bool)> = found.iter().map(|(text, quoted)| (text.as_str(), *quoted)).collect();
                assert_eq!(found, expected, "{row}");
            }
            (Err(bad), Err((column, why))) => assert!(bad.column == column && bad.why.contains(why), "{row}: {bad:?}"),
            (found, _) => panic!("{row}: {found:?}"),
        }
    }

    #[test]
    fn cells_are_taken_out_of_their_quotes() {
        check("", Ok(&[("", false)]));
        check("a", Ok(&[("a", false)]));
        check("a,,\"\"", Ok(&[("a", false), ("", false), ("", true)]));
        check(",", Ok(&[("", false), ("", false)]));
        check("\"a,\"\"b\"\"\nc\",d", Ok(&[("a,\"b\"\nc", true), ("d", false)]));
        check("5\" pipe, x ", Ok(&[("5\" pipe", false), (" x ", false)]));
        check("a,\"b\"c", Err((2, "text follows the closing quote")));
        check("\"a\"b\"c\"", Err((1, "text follows the closing quote")));
        check("a,\"b", Err((2, "is not closed")));
        assert!(cells(b"a,\xff").is_err_and(|bad| bad.column == 2 && bad.why.contains("not UTF-8")));
    }

    #[test]
    fn a_header_names_each_column_once() {
        assert_eq!(header(b"id,\"a b\"", b','), Ok(vec!["id".to_string(), "a b".to_string()]));
        for (row, why) in [
            ("id,,x", "line 1, column 2: the column has no name"),
            ("id,x,id", "line 1, column 3: the name \"id\" occurs twice"),
            ("", "line 1, column 1: the column has no name"),
            ("id\rx", "must end with LF or CR LF"),
        ] {
            let refused = header(row.as_bytes(), b',').unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let wide = vec!["x"; COLUMNS_MAX + 1].join(",");
        assert!(header(wide.as_bytes(), b',').unwrap_err().contains("more than 16384 fields"));
    }

    /// A cell of a field with these types, as it stands in an object.
    fn value(types: u8, cell: &str) -> Result<Option<String>, String> {
        let column = Column { name: "f".into(), member: Vec::new(), types, is_null_if_empty: false };
        let (text, is_quoted) = match cell.strip_prefix('"') {
            Some(rest) => (rest.trim_end_matches('"'), true),
            None => (cell, false),
        };
        let mut out = Vec::new();
        let is_there = column.append(Cell { text, is_quoted }, &mut out)?;
        Ok(is_there.then(|| String::from_utf8(out).unwrap()))
    }

    #[test]
    fn a_cell_becomes_what_the_schema_says_and_not_what_it_looks_like() {
        let is = |types, cell, expected: &str| assert_eq!(value(types, cell), Ok(Some(expected.to_string())), "{cell}");
        is(STRING, "007", "\"007\"");
        is(STRING, "true", "\"true\"");
        is(STRING, "\"\"", "\"\"");
        is(INTEGER, "-12", "-12");
        is(INTEGER, "\"12\"", "12");
        is(INTEGER, "5.0", "5");
        is(INTEGER | NULL, "-1e2", "-100");
        is(INTEGER | STRING, "5.0", "\"5.0\"");
        is(INTEGER | REAL, "1.50e3", "1.50e3");
        is(INTEGER | REAL, "18446744073709551617", "18446744073709551617");
        is(BOOLEAN, "TRUE", "true");
        is(ARRAY, "[1, 2]", "[1, 2]");
        is(STRING | INTEGER, "7", "7");
        is(STRING | INTEGER, "\"7\"", "\"7\"");
        is(STRING | INTEGER, "7a", "\"7a\"");
        for types in [STRING, INTEGER, BOOLEAN, ARRAY | NULL] {
            assert_eq!(value(types, ""), Ok(None));
        }
        assert_eq!(value(INTEGER, "\"\""), Ok(None));
        for (types, cell) in [
            (INTEGER, "1.5"),
            (INTEGER, "1e300"),
            (INTEGER, "[5]"),
            (INTEGER, "true"),
            (INTEGER, "01"),
            (INTEGER, "-"),
            (INTEGER, "+1"),
            (INTEGER, "9223372036854775808"),
            (INTEGER | REAL, " 1"),
            (INTEGER | REAL, "1,5"),
            (INTEGER | REAL, "1 2"),
            (BOOLEAN, "yes"),
            (OBJECT, "{"),
            (OBJECT, "[1]"),
        ] {
            assert!(value(types, cell).is_err_and(|why| why.contains("does not fit")), "{cell}");
        }
    }

    proptest! {
        /// The scan for the end of a row and the reader of its cells see the same rows.
        #[test]
        fn rows_are_cut_where_the_reader_ends_them(text in "[a,\"\n]{0,40}", piece in 1usize..9) {
            let (mut scan, mut rows, mut row) = (RowScan::default(), Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(piece) {
                let mut rest = piece;
                while let Some(at) = scan.run(rest, b',') {
                    row.extend_from_slice(&rest[..at]);
                    rows.push(std::mem::take(&mut row));
                    (scan, rest) = (RowScan::default(), &rest[at + 1..]);
                }
                row.extend_from_slice(rest);
            }
            let rows: Vec<_> = rows.into_iter().filter(|row| !row.is_empty()).collect();
            let mut reader = ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build();
            let (mut at, mut out, mut ends) = (0, [0; 100], [0; 100]);
            for row in &rows {
                let (_, read, ..) = reader.read_record(&text.as_bytes()[at..], &mut out, &mut ends);
                let found = text[at..at + read].trim_start_matches('\n').as_bytes();
                prop_assert_eq!(found.strip_prefix(&row[..]).map(|rest| rest == b"" || rest == b"\n"), Some(true));
                at += read;
            }
        }

        #[test]
        fn no_row_brings_the_reader_down(rows in prop::collection::vec("[a,\"1\n]{0,20}", 0..8)) {
            let mut reader = RowReader::new(b',');
            for row in &rows {
                if reader.read(row.as_bytes()).is_ok() {
                    prop_assert!((0..reader.len()).all(|place| reader.cell(place).is_ok()));
                }
            }
        }
    }
}
