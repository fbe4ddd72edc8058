//! Reads a file of documents, and fills the profiles of its collections.

use super::collection::CollectionProfile;
use super::distinct::ValueSpace;
use docs::config::is_name;
use docs::import::{ImportError, Input, SampledRecord, sample};
use loadtest::quantity::count;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

/// Most documents that are read.
pub(super) const DOCUMENTS_MAX: u64 = 100_000;
/// Reading ends after the document that exceeds this number of bytes of the file.
pub(super) const BYTES_MAX: u64 = 256 << 20;
/// Most collections of a file that is an object of arrays.
const COLLECTIONS_MAX: usize = 64;
/// Most fields that are declared, of all collections together. A service file with so many stays far below its own size limit.
const FIELDS_MAX: usize = 2_000;
/// The collection's name if the file's name has no letter or digit that a collection's name may have.
const NAME_DEFAULT: &str = "documents";

/// What is known of a file after reading it.
pub(crate) struct Draft {
    pub(super) collections: Vec<CollectionProfile>,
    documents: u64,
    bytes: u64,
    pub(super) is_whole: bool,
}

/// A draft while its file is read.
struct Reading {
    draft: Draft,
    /// Collection of documents outside of named arrays.
    name: String,
    fields_left: usize,
    space: ValueSpace,
    /// The error that ended the reading.
    failed: Option<String>,
}

impl Draft {
    /// Reads a file. `name` is the collection of documents outside of named arrays; `None`: the file's own name.
    pub(crate) fn read(file: &Path, name: Option<&str>) -> Result<Draft, String> {
        let name = match name {
            Some(name) if is_name(name) => name.to_owned(),
            Some(name) => return Err(format!("--collection {name}: {}", names_allowed())),
            None => name_of(file),
        };
        let draft = Draft { collections: Vec::new(), documents: 0, bytes: 0, is_whole: false };
        let mut reading = Reading { draft, name, fields_left: FIELDS_MAX, space: ValueSpace::default(), failed: None };
        let is_whole = sample(Input::File(file.to_owned()), &mut |record, bytes| reading.add(&record, bytes))
            .map_err(|error| explained(&error, file, reading.draft.documents))?;
        if let Some(failed) = reading.failed {
            return Err(format!("{}: {failed}", file.display()));
        }
        if reading.draft.documents == 0 {
            return Err(format!("{}: the file has no documents. {TAKEN}", file.display()));
        }
        reading.draft.collections.iter_mut().for_each(CollectionProfile::settle);
        Ok(Draft { is_whole, ..reading.draft })
    }

    /// How much was read, as in "10,000 documents (1,048,576 bytes), all of the file".
    pub(crate) fn extent(&self) -> String {
        let of_file = if self.is_whole { "all of the file" } else { "the beginning of the file" };
        format!("{} documents ({} bytes), {of_file}", count(self.documents), count(self.bytes))
    }

    /// The names of the collections.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.collections.iter().map(|collection| collection.name.as_str())
    }
}

/// The formats, for messages.
const TAKEN: &str = "`sapsan init` reads .ndjson (a JSON object on each line), .json (an array of objects, or an object of such arrays), \
.csv and .tsv (a line with the names of the fields, then a row for each document)";

/// The error, and the formats if the file may have another one: if it can be read, and its first record cannot.
fn explained(error: &ImportError, file: &Path, documents: u64) -> String {
    if documents > 0 || std::fs::File::open(file).and_then(|mut file| file.read(&mut [0])).is_err() {
        return error.to_string();
    }
    format!("{error}. {TAKEN}")
}

impl Reading {
    fn add(&mut self, record: &SampledRecord<'_>, bytes: u64) -> ControlFlow<()> {
        if let Err(failed) = self.try_add(record) {
            self.failed = Some(failed);
            return ControlFlow::Break(());
        }
        self.draft.documents += 1;
        self.draft.bytes = bytes;
        if self.draft.documents >= DOCUMENTS_MAX || bytes >= BYTES_MAX {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn try_add(&mut self, record: &SampledRecord<'_>) -> Result<(), String> {
        let array = match record {
            SampledRecord::Document { array, .. } => *array,
            SampledRecord::Row { .. } => None,
        };
        let number = self.number(array)?;
        let collection = &mut self.draft.collections[number];
        match record {
            SampledRecord::Document { document, .. } => {
                collection.add_document(document, &mut self.fields_left, &mut self.space);
            }
            SampledRecord::Row { columns, cells } => {
                collection.add_row(columns, cells, &mut self.fields_left, &mut self.space);
            }
        }
        Ok(())
    }

    /// The index of the collection that a record belongs to.
    fn number(&mut self, array: Option<&str>) -> Result<usize, String> {
        let name = array.unwrap_or(&self.name);
        let collections = &mut self.draft.collections;
        // Most likely the last one: arrays are read one after the other.
        if let Some(number) = collections.iter().rposition(|collection| collection.name == name) {
            return Ok(number);
        }
        if !is_name(name) {
            return Err(format!("the array {name:?} cannot be a collection: {}", names_allowed()));
        }
        if collections.len() == COLLECTIONS_MAX {
            return Err(format!("the file has more than {COLLECTIONS_MAX} arrays: split it into several files"));
        }
        collections.push(CollectionProfile::new(name));
        Ok(collections.len() - 1)
    }
}

fn names_allowed() -> String {
    format!("a name has {}", docs::config::names_allowed())
}

/// The name of the collection that a file's documents go into: the file's own, without its ending.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |character: char| if character.is_ascii_alphanumeric() || character == '-' { character } else { '_' };
    let name: String = stem.chars().map(plain).take(docs::config::NAME_BYTES_MAX).collect();
    if name.bytes().any(|byte| byte.is_ascii_alphanumeric()) { name } else { NAME_DEFAULT.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_named_after_its_file() {
        for (file, name) in [
            ("data/goods.ndjson", "goods"),
            ("my goods.2026.csv", "my_goods_2026"),
            ("товары.json", NAME_DEFAULT),
            ("a-b", "a-b"),
        ] {
            assert_eq!(name_of(Path::new(file)), name);
        }
        assert_eq!(name_of(Path::new(&"x".repeat(100))).len(), docs::config::NAME_BYTES_MAX);
    }
}
