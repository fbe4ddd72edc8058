//! Documents as CSV (RFC 4180): a first line with the names of the fields, then a row for each document.
//!
//! Documents are read twice. The first pass collects the columns: the key, then the fields that the schema declares, then other fields in
//! the order in which they are found. [`docs::import::cells`] writes the cells; the cell of a missing field is empty.

use super::source::{CollectionOutline, Source, Stopped};
use binjson::StoredDocument;
use docs::import::{COLUMNS_MAX, cells};
use std::collections::HashMap;
use std::io::Write;

/// Result of writing a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TableWritten {
    pub(crate) documents: u64,
    /// Columns that the schema does not declare and that have values other than text. An import would read these values as text.
    pub(crate) untyped: Vec<String>,
    /// Columns whose schema permits text, and that have arrays or objects in quotes. An import would read these as text.
    pub(crate) quoted: Vec<String>,
}

/// Writes a collection as a table.
pub(crate) fn write_table(
    source: &dyn Source,
    collection: &CollectionOutline,
    out: &mut dyn Write,
) -> Result<TableWritten, Stopped> {
    let mut columns = Columns::new(collection);
    source.each(&collection.name, &mut |document| columns.note(document).map_err(Stopped::Failed))?;
    let mut row = Vec::new();
    columns.append_names(&mut row);
    out.write_all(&row)?;
    let mut documents = 0;
    source.each(&collection.name, &mut |document| {
        row.clear();
        columns.append_row(document, &mut row).map_err(Stopped::Failed)?;
        out.write_all(&row)?;
        documents += 1;
        Ok(())
    })?;
    Ok(TableWritten { documents, untyped: columns.untyped(), quoted: columns.quoted(collection) })
}

/// The columns of a table.
struct Columns {
    names: Vec<String>,
    places: HashMap<String, usize>,
    /// Number of columns that the schema and the key give. `None`: the schema is not known.
    declared: Option<usize>,
    /// For each column: whether it has values other than text.
    other: Vec<bool>,
    /// For each column: whether it has arrays or objects in quotes.
    in_quotes: Vec<bool>,
    /// For each column: the range of its cell in `cells`, for the row that is being made.
    row: Vec<std::ops::Range<usize>>,
    cells: Vec<u8>,
}

impl Columns {
    fn new(collection: &CollectionOutline) -> Columns {
        let (names, places, other, in_quotes) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let mut columns =
            Columns { names, places, declared: None, other, in_quotes, row: Vec::new(), cells: Vec::new() };
        columns.place(&collection.key);
        collection.fields.iter().flatten().for_each(|name| {
            columns.place(name);
        });
        columns.declared = collection.fields.is_some().then_some(columns.names.len());
        columns
    }

    /// The column of a field. A new name becomes a new column.
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.places.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.other.push(false);
        self.in_quotes.push(false);
        self.names.len() - 1
    }

    /// Notes the fields of a document.
    fn note(&mut self, document: StoredDocument<'_>) -> Result<(), String> {
        for (name, value) in document.root().fields() {
            let name = name.as_str().unwrap_or_default();
            if name.is_empty() || name.contains(['\n', '\r']) {
                return Err(format!(
                    "the field {name:?} cannot be a column of a table: its name is empty or has a line break. Use `--format ndjson`"
                ));
            }
            let place = self.place(&name);
            let is_other = value.stored_string().is_none() && !value.is_null();
            self.other[place] |= is_other;
            self.in_quotes[place] |= is_other && cells::needs_quotes(value.raw());
            if self.names.len() > COLUMNS_MAX {
                return Err(format!(
                    "the documents have more than {COLUMNS_MAX} different fields, and a table has at most as many columns. Use `--format ndjson`"
                ));
            }
        }
        Ok(())
    }

    fn append_names(&self, out: &mut Vec<u8>) {
        for (place, name) in self.names.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            cells::append_name(name, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    fn append_row(&mut self, document: StoredDocument<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        self.cells.clear();
        self.row.clear();
        self.row.resize(self.names.len(), 0..0);
        for (name, value) in document.root().fields() {
            let name = name.as_str().unwrap_or_default();
            let changed =
                || format!("a document with the new field {name:?} was written during the export: export again");
            let place = *self.places.get(&*name).ok_or_else(changed)?;
            let start = self.cells.len();
            cells::append_json(value.raw(), &mut self.cells);
            self.row[place] = start..self.cells.len();
        }
        for (place, cell) in self.row.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&self.cells[cell.clone()]);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn untyped(&self) -> Vec<String> {
        let Some(declared) = self.declared else { return Vec::new() };
        let others = self.names.iter().zip(&self.other).skip(declared);
        others.filter(|(_, is_other)| **is_other).map(|(name, _)| name.clone()).collect()
    }

    fn quoted(&self, collection: &CollectionOutline) -> Vec<String> {
        let has = |name: &&String| self.places.get(*name).is_some_and(|place| self.in_quotes[*place]);
        collection.may_be_text.iter().filter(has).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents of one collection, `id` its key.
    struct Fixed(&'static [&'static str], Option<Vec<String>>);

    impl Source for Fixed {
        fn collections(&self) -> Result<Vec<CollectionOutline>, String> {
            Ok(vec![CollectionOutline {
                name: "c".to_owned(),
                key: "id".to_owned(),
                fields: self.1.clone(),
                may_be_text: vec!["b".to_owned(), "a".to_owned()],
            }])
        }

        fn each(&self, _: &str, visit: &mut crate::export::source::Visit<'_>) -> Result<(), Stopped> {
            self.0.iter().try_for_each(|text| {
                let mut stored = Vec::new();
                binjson::encode(text.as_bytes(), &mut stored).expect("JSON");
                visit(StoredDocument::from_bytes(&stored).expect("a document"))
            })
        }
    }

    fn written(source: &Fixed) -> Result<(String, TableWritten), String> {
        let collection = source.collections()?.remove(0);
        let mut out = Vec::new();
        match write_table(source, &collection, &mut out) {
            Ok(written) => Ok((String::from_utf8(out).expect("text"), written)),
            Err(Stopped::Failed(why)) => Err(why),
            Err(Stopped::Unwritten(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn columns_are_the_key_the_schemas_fields_and_what_documents_have_beside() {
        let documents = &[
            r#"{"more":[1,"x"],"id":1,"b":"t, \"q\""}"#,
            r#"{"id":2,"a":"","b":null,"text":"y","c,d":true}"#,
            r#"{"id":3,"a":"007","b":"TRUE","more":"5"}"#,
        ];
        let (text, written) = written(&Fixed(documents, Some(vec!["b".to_owned(), "a".to_owned()]))).expect("a table");
        let rows = [
            "id,b,a,more,text,\"c,d\"",
            "1,\"t, \"\"q\"\"\",,\"[1,\"\"x\"\"]\",,",
            "2,,\"\",,y,true",
            "3,\"TRUE\",\"007\",\"5\",,",
            "",
        ];
        assert_eq!(text, rows.join("\r\n"));
        let untyped = vec!["more".to_owned(), "c,d".to_owned()];
        assert_eq!(written, TableWritten { documents: 3, untyped, quoted: Vec::new() });
    }

    /// `[1]` needs no quotes, so an import reads it as an array; `[1,2]` does.
    #[test]
    fn an_array_in_quotes_is_reported_where_an_import_would_take_it_for_text() {
        let documents = &[r#"{"id":1,"a":[1,2],"b":[1],"c":[1,2]}"#, r#"{"id":2,"a":"text","b":"t,u"}"#];
        let fields = ["a", "b", "c"].map(str::to_owned).to_vec();
        let (text, written) = written(&Fixed(documents, Some(fields))).expect("a table");
        assert_eq!(text, "id,a,b,c\r\n1,\"[1,2]\",[1],\"[1,2]\"\r\n2,text,\"t,u\",\r\n");
        assert_eq!((written.untyped, written.quoted), (Vec::new(), vec!["a".to_owned()]));
    }

    #[test]
    fn a_text_that_ends_like_a_line_is_quoted() {
        let (text, _) = written(&Fixed(&[r#"{"id":"a\r","b":"c\r"}"#], None)).expect("a table");
        assert_eq!(text, "id,b\r\n\"a\r\",\"c\r\"\r\n");
    }

    #[test]
    fn a_field_that_can_be_no_column_is_told() {
        for document in [r#"{"id":1,"":2}"#, r#"{"id":1,"a\nb":2}"#] {
            let documents: &'static [&'static str] = Box::leak(Box::new([document]));
            assert!(written(&Fixed(documents, None)).is_err_and(|why| why.contains("--format ndjson")));
        }
    }
}
