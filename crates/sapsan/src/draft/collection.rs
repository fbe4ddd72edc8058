//! The fields of one collection's documents, and the choice of its key.

use super::distinct::ValueSpace;
use super::field::FieldProfile;
use binjson::StoredDocument;
use docs::import::Cell;
use loadtest::quantity::count;
use std::collections::HashMap;

/// Most fields of a collection that are declared. Documents may have more.
const FIELDS_MAX: usize = 200;
/// Longest name of a field that is declared.
const FIELD_NAME_BYTES_MAX: usize = 128;

/// See the module's documentation.
pub(super) struct CollectionProfile {
    pub(super) name: String,
    pub(super) documents: u64,
    /// In the order in which they were found.
    pub(super) fields: Vec<FieldProfile>,
    places: HashMap<String, usize>,
    /// Number of values of fields that are not declared: there are too many fields, or the name is too long or empty.
    pub(super) undeclared: u64,
    is_table: bool,
}

/// The key of a collection.
pub(super) struct KeyChoice<'p> {
    pub(super) field: &'p FieldProfile,
    pub(super) kind: &'static str,
    /// Other fields that could be the key.
    pub(super) others: Vec<&'p FieldProfile>,
}

impl CollectionProfile {
    pub(super) fn new(name: &str) -> CollectionProfile {
        let (fields, places) = (Vec::new(), HashMap::new());
        CollectionProfile { name: name.to_owned(), documents: 0, fields, places, undeclared: 0, is_table: false }
    }

    /// Notes a document.
    pub(super) fn add_document(
        &mut self,
        document: &StoredDocument<'_>,
        fields_left: &mut usize,
        space: &mut ValueSpace,
    ) {
        self.documents += 1;
        for (name, value) in document.root().fields() {
            let name = name.as_str().unwrap_or_default();
            match self.field(&name, fields_left) {
                Some(field) => field.add_value(value, space),
                None => self.undeclared += 1,
            }
        }
    }

    /// Notes a row of a table.
    pub(super) fn add_row(
        &mut self,
        columns: &[String],
        cells: &[Cell<'_>],
        fields_left: &mut usize,
        space: &mut ValueSpace,
    ) {
        self.documents += 1;
        self.is_table = true;
        for (name, cell) in columns.iter().zip(cells) {
            match self.field(name, fields_left) {
                Some(field) => field.add_cell(*cell, space),
                None => self.undeclared += 1,
            }
        }
    }

    /// The field of a name. `None`: the field is not declared.
    fn field(&mut self, name: &str, fields_left: &mut usize) -> Option<&mut FieldProfile> {
        if let Some(place) = self.places.get(name) {
            return self.fields.get_mut(*place);
        }
        // No statement can name a field without a name.
        let is_long = name.is_empty() || name.len() > FIELD_NAME_BYTES_MAX;
        if is_long || self.fields.len() == FIELDS_MAX || *fields_left == 0 {
            return None;
        }
        *fields_left -= 1;
        self.places.insert(name.to_owned(), self.fields.len());
        self.fields.push(FieldProfile::new(name));
        self.fields.last_mut()
    }

    /// Ends the reading.
    pub(super) fn settle(&mut self) {
        if self.is_table {
            self.fields.iter_mut().for_each(FieldProfile::settle);
        }
    }

    /// The field that is the best key: one with a name like a key's, else the first one that can be a key.
    pub(super) fn key(&self) -> Result<KeyChoice<'_>, String> {
        let mut candidates: Vec<_> =
            self.fields.iter().filter_map(|field| Some((field, field.key_type(self.documents)?))).collect();
        candidates.sort_by_key(|(field, _)| rank(&field.name, &self.name));
        let Some((field, kind)) = candidates.first().copied() else {
            return Err(format!(
                "{} has no field for its key. A key is in all documents ({} were read), and in each has another value: an integer, or a \
                 text of 1 to {} bytes. Add such a field; to NDJSON, for example, with `jq -c '{{id: input_line_number}} + .' FILE`",
                self.name,
                count(self.documents),
                docs::key::KEY_BYTES_MAX
            ));
        };
        Ok(KeyChoice { field, kind, others: candidates[1..].iter().map(|(field, _)| *field).collect() })
    }
}

/// How much a field's name looks like that of a key: 0 is the best.
fn rank(field: &str, collection: &str) -> u32 {
    let (field, collection) = (field.to_ascii_lowercase(), collection.to_ascii_lowercase());
    let singular = collection.strip_suffix('s').unwrap_or(&collection);
    let own = field
        .strip_prefix(&collection)
        .or_else(|| field.strip_prefix(singular))
        .map(|rest| rest.trim_start_matches('_'));
    match field.as_str() {
        "id" | "_id" => 0,
        "key" | "_key" | "uuid" | "guid" => 1,
        _ if matches!(own, Some("id" | "key" | "code" | "no" | "number")) => 1,
        "sku" | "slug" | "code" | "isbn" | "iban" => 2,
        _ if field.ends_with("_id") || field.ends_with("uuid") => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keys_go_before_other_names() {
        let order = ["id", "good_id", "sku", "shop_id", "name"];
        let ranks: Vec<u32> = order.iter().map(|field| rank(field, "goods")).collect();
        assert!(ranks.is_sorted() && ranks[0] < ranks[4], "{ranks:?}");
        assert_eq!((rank("ID", "x"), rank("userId", "users")), (0, 1));
    }
}
