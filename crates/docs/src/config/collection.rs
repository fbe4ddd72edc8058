//! `[collections.NAME]`: key, schema, unique fields, indexes, references.

use super::row_name::{index_row, unique_row};
use super::schema_text;
use super::table::{ConfigTable, Item};
use crate::catalog::{GENERATORS, KeyInfo};
use crate::encoding::{KEY_TYPES, KeyType, NAMES_MAX, Names};
use crate::engine::TREE_NAME_BYTES_MAX;
use crate::expire::{AFTER_SECONDS_MAX, LAST_WRITE};
use schema::Schema;

/// Most collections in a file.
pub const COLLECTIONS_MAX: usize = 1024;
/// Most indexes, unique fields and references of one collection, each.
pub const INDEXES_MAX: usize = 64;
/// Most fields of one index.
pub const INDEX_FIELDS_MAX: usize = 16;
/// Longest name of a collection.
pub const NAME_BYTES_MAX: usize = 64;

const KEYS: [&str; 6] = ["key", "schema", "unique", "indexes", "references", "expire"];
const LATER: [&str; 2] = ["views", "allow"];

/// A checked collection declaration.
#[derive(Clone, Debug)]
pub struct CollectionConfig {
    /// Its name.
    pub name: String,
    /// The primary key.
    pub key: KeyInfo,
    /// The JSON Schema's text, in the order of the file.
    pub schema: Option<String>,
    /// The unique fields, each as a list of one, and the lists of fields that are unique together.
    pub unique: Vec<Vec<String>>,
    /// The indexes, each by its fields.
    pub indexes: Vec<Vec<String>>,
    /// Fields that hold keys of other collections: field, collection.
    pub references: Vec<(String, String)>,
    /// When documents expire.
    pub expire: Option<ExpireConfig>,
}

/// The field that holds a document's time, and the duration added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpireConfig {
    /// The field, or [`LAST_WRITE`] for the time of the document's last write.
    pub field: String,
    /// The added duration, in seconds.
    pub after_seconds: i64,
}

/// Reads all collections of the file. Returns those that could be read, and the names of those with mistakes.
pub(crate) fn read_all(root: &ConfigTable<'_>) -> (Vec<CollectionConfig>, Vec<String>) {
    let Some(table) = root.get("collections").and_then(|item| item.table()) else { return Default::default() };
    let mut entries = table.entries();
    if entries.len() > COLLECTIONS_MAX {
        table.mistake(format!("{} collections", entries.len()), format!("up to {COLLECTIONS_MAX}"));
        entries.truncate(COLLECTIONS_MAX);
    }
    let names: Vec<&str> = entries.iter().map(|item| item.name()).collect();
    let (mut collections, mut doubtful) = (Vec::new(), Vec::new());
    for item in &entries {
        let before = root.source().mistakes();
        collections.extend(read(item, &names));
        if root.source().mistakes() > before {
            doubtful.push(item.name().to_string());
        }
    }
    (collections, doubtful)
}

fn read(item: &Item<'_>, names: &[&str]) -> Option<CollectionConfig> {
    check_name(item, "collection");
    let table = item.table()?;
    table.check_keys(&KEYS, &LATER);
    let schema = table.get("schema").and_then(|item| read_schema(&item));
    let fields = Fields { schema: schema.as_ref().map(|(_, schema)| schema) };
    let key = table.require("key").and_then(|item| read_key(&item, &fields));
    let unique = table.get("unique").map(|item| read_unique(&item, &fields)).unwrap_or_default();
    let indexes = table.get("indexes").map(|item| read_indexes(&item, &fields)).unwrap_or_default();
    let references = table.get("references").map(|item| read_references(&item, &fields, names)).unwrap_or_default();
    let expire = table.get("expire").and_then(|item| read_expire(&item, &fields));
    let name = item.name().to_string();
    let read = CollectionConfig { name, key: key?, schema: None, unique, indexes, references, expire };
    check_trees(&read, &table);
    check_fields(&read, schema.as_ref().map(|(_, schema)| schema), item);
    Some(CollectionConfig { schema: schema.map(|(text, _)| text), ..read })
}

/// Checks that tree names, which are made of field names, are not too long.
fn check_trees(read: &CollectionConfig, table: &ConfigTable<'_>) {
    let is_long = |row: &str| row.len() > TREE_NAME_BYTES_MAX;
    let is_index_long = |fields: &[String]| is_long(&index_row(&read.name, fields));
    let is_field_long = |field: &String| is_index_long(std::slice::from_ref(field));
    for (key, is_long) in [
        ("indexes", read.indexes.iter().any(|fields| is_index_long(fields))),
        ("unique", read.unique.iter().any(|fields| is_long(&unique_row(&read.name, fields)))),
        ("references", read.references.iter().any(|(field, _)| is_field_long(field))),
        ("expire", read.expire.iter().any(|expire| is_field_long(&expire.field))),
    ] {
        if let Some(item) = table.get(key).filter(|_| is_long) {
            let allowed = format!("as long as \"index/COLLECTION/FIELD,FIELD\" has up to {TREE_NAME_BYTES_MAX} bytes");
            item.mistake(format!("the names in `{}` are too long together for a tree's name", item.path()), allowed);
        }
    }
}

/// Checks that all fields that need a place in a row fit.
fn check_fields(read: &CollectionConfig, schema: Option<&Schema>, item: &Item<'_>) {
    let of_schema = schema.into_iter().flat_map(|schema| schema.fields()).map(|field| &field.name).take(NAMES_MAX);
    let others =
        std::iter::once(&read.key.field).chain(read.indexes.iter().flatten()).chain(read.unique.iter().flatten());
    let others =
        others.chain(read.references.iter().map(|(field, _)| field)).chain(read.expire.iter().map(|e| &e.field));
    let mut names = Names::default();
    if of_schema.chain(others).any(|name| names.add(name).is_none()) {
        let what = format!(
            "`{}` uses more than {NAMES_MAX} fields: those of its schema, and others that it names",
            item.path()
        );
        item.mistake_in_name(what, format!("up to {NAMES_MAX}, or names that the schema has among its first"));
    }
}

/// Checks a name, which becomes part of paths and of trees' names.
pub(super) fn check_name(item: &Item<'_>, what: &str) {
    let name = item.name();
    if !is_name(name) {
        item.mistake_in_name(format!("a {what} cannot be named \"{name}\""), names_allowed());
    }
}

/// Whether a collection or a view may have this name.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// The names that [`is_name`] accepts, for messages.
pub fn names_allowed() -> String {
    format!("1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, _ and -")
}

fn read_key(item: &Item<'_>, fields: &Fields<'_>) -> Option<KeyInfo> {
    let table = item.table()?;
    table.check_keys(&["field", "type", "generate"], &[]);
    let field = table.require("field").and_then(|item| fields.name(&item));
    let kind: Option<KeyType> = table.require("type").and_then(|item| item.word(&KEY_TYPES));
    let generate = table.get("generate").and_then(|item| Some((item.word(&GENERATORS)?, item)));
    if let (Some((generate, item)), Some(kind)) = (&generate, kind)
        && !generate.fits(kind)
    {
        let allowed = "\"counter\" with u32 and i64, \"uuid\" with string";
        item.mistake(format!("`{}` makes no keys of type {}", item.path(), kind.name()), allowed);
    }
    Some(KeyInfo { field: field?, kind: kind?, generate: generate.map(|(generate, _)| generate) })
}

fn read_schema(item: &Item<'_>) -> Option<(String, Schema)> {
    let text = schema_text::read(item)?;
    match Schema::declared(&text) {
        Ok(schema) => Some((text, schema)),
        Err(why) => {
            item.mistake(format!("`{}` is no JSON Schema: {why}", item.path()), "");
            None
        }
    }
}

/// `["email", ["tenant", "slug"]]`: names of fields, and lists of fields that are unique together.
fn read_unique(item: &Item<'_>, fields: &Fields<'_>) -> Vec<Vec<String>> {
    let mut items = item.list().unwrap_or_default();
    if items.len() > INDEXES_MAX {
        item.mistake(format!("{} unique fields", items.len()), format!("up to {INDEXES_MAX}"));
        items.truncate(INDEXES_MAX);
    }
    let mut unique: Vec<Vec<String>> = Vec::new();
    for item in items {
        let together = match (item.value().is_str(), item.value().is_array()) {
            (true, _) => fields.own_name(&item).into_iter().collect(),
            (_, true) => fields.read(&item),
            _ => {
                item.mismatch("a field, or a list of fields that are unique together, as [\"tenant\", \"slug\"]");
                continue;
            }
        };
        // The order does not matter.
        let is_same =
            |other: &Vec<String>| other.len() == together.len() && other.iter().all(|field| together.contains(field));
        if together.is_empty() || together.len() > INDEX_FIELDS_MAX {
            if !item.value().is_str() {
                let allowed = format!("a list of 1 to {INDEX_FIELDS_MAX} fields, as [\"tenant\", \"slug\"]");
                item.mistake(format!("`{}` has {} fields", item.path(), together.len()), allowed);
            }
        } else if unique.iter().any(is_same) {
            let what = match &together[..] {
                [field] => format!("`{field}` is listed twice"),
                _ => format!("`{}` is listed twice", item.path()),
            };
            item.mistake(what, "");
        } else {
            unique.push(together);
        }
    }
    unique
}

fn read_indexes(item: &Item<'_>, fields: &Fields<'_>) -> Vec<Vec<String>> {
    let mut lists = item.list().unwrap_or_default();
    if lists.len() > INDEXES_MAX {
        item.mistake(format!("{} indexes", lists.len()), format!("up to {INDEXES_MAX}"));
        lists.truncate(INDEXES_MAX);
    }
    let mut indexes: Vec<Vec<String>> = Vec::new();
    for list in lists {
        let index = fields.read(&list);
        if index.is_empty() || index.len() > INDEX_FIELDS_MAX {
            let allowed = format!("a list of 1 to {INDEX_FIELDS_MAX} fields, as [\"user\", \"visited_at\"]");
            list.mistake(format!("`{}` has {} fields", list.path(), index.len()), allowed);
        } else if indexes.contains(&index) {
            list.mistake(format!("`{}` is listed twice", list.path()), "");
        } else {
            indexes.push(index);
        }
    }
    indexes
}

fn read_references(item: &Item<'_>, fields: &Fields<'_>, names: &[&str]) -> Vec<(String, String)> {
    let Some(table) = item.table() else { return Vec::new() };
    let mut references = Vec::new();
    let mut entries = table.entries();
    if entries.len() > INDEXES_MAX {
        item.mistake(format!("{} references", entries.len()), format!("up to {INDEXES_MAX}"));
        entries.truncate(INDEXES_MAX);
    }
    for entry in entries {
        fields.check_own(entry.name(), &entry);
        let words: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).collect();
        if let Some(target) = entry.word(&words) {
            references.push((entry.name().to_string(), target.to_string()));
        }
    }
    references
}

/// `"FIELD"`, `{ field = "FIELD", after_seconds = N }`, or `{ after_seconds = N }` for a duration after the last write.
fn read_expire(item: &Item<'_>, fields: &Fields<'_>) -> Option<ExpireConfig> {
    if item.value().is_str() {
        return fields.own_name(item).map(|field| ExpireConfig { field, after_seconds: 0 });
    }
    if !item.value().is_table() {
        item.mismatch("\"FIELD\", { field = \"FIELD\", after_seconds = N }, { after_seconds = N }");
        return None;
    }
    let table = item.table()?;
    table.check_keys(&["field", "after_seconds"], &[]);
    let (field, after) = (table.get("field"), table.get("after_seconds"));
    if table.entries().is_empty() {
        let allowed = "field = \"FIELD\", after_seconds = N (counted from the last write), or both";
        item.mistake(format!("`{}` names neither a field nor a duration", item.path()), allowed);
    }
    if field.is_none() && after.is_none() {
        return None;
    }
    // A duration of 0 after the last write would hide every document at once.
    let after_min = i64::from(field.is_none());
    let after = after.map_or(Some(0), |item| item.integer(after_min..=AFTER_SECONDS_MAX));
    let field = match field {
        None => LAST_WRITE.to_string(),
        Some(item) => fields.own_name(&item)?,
    };
    Some(ExpireConfig { field, after_seconds: after? })
}

/// The fields that documents can have according to the schema.
struct Fields<'s> {
    schema: Option<&'s Schema>,
}

impl Fields<'_> {
    /// A list of field names, each once.
    fn read(&self, list: &Item<'_>) -> Vec<String> {
        let mut items = list.list().unwrap_or_default();
        if items.len() > INDEXES_MAX {
            list.mistake(format!("{} fields in `{}`", items.len(), list.path()), format!("up to {INDEXES_MAX}"));
            items.truncate(INDEXES_MAX);
        }
        let mut names: Vec<String> = Vec::new();
        for item in items {
            let Some(name) = self.own_name(&item) else { continue };
            if names.contains(&name) {
                item.mistake(format!("`{name}` is listed twice"), "");
            } else {
                names.push(name);
            }
        }
        names
    }

    fn name(&self, item: &Item<'_>) -> Option<String> {
        let name = item.text()?;
        self.check(name, item);
        Some(name.to_string())
    }

    /// The name of a field for an index, a rule or a time.
    fn own_name(&self, item: &Item<'_>) -> Option<String> {
        let name = item.text()?;
        self.check_own(name, item);
        Some(name.to_string())
    }

    /// Refuses paths such as `a.b`: the user means a value inside a field, and an index on a field of that name would stay
    /// empty.
    fn check_own(&self, name: &str, item: &Item<'_>) {
        if name.contains(['.', '[', ']']) && !self.is_declared(name) {
            let allowed = "a field of the document itself, or one whose very name the schema declares";
            return item.mistake(format!("`{name}` looks like a path, and paths are not allowed here"), allowed);
        }
        self.check(name, item);
    }

    fn is_declared(&self, name: &str) -> bool {
        self.schema.is_some_and(|schema| schema.fields().iter().any(|field| field.name == name))
    }

    fn check(&self, name: &str, item: &Item<'_>) {
        if name.is_empty() {
            return item.mistake(format!("`{}` is the name of no field: it is empty", item.path()), "");
        }
        if name.contains('\0') {
            return item.mistake(format!("`{}` is the name of no field: it has NUL in it", item.path()), "");
        }
        let Some(schema) = self.schema else { return };
        if schema.is_closed() && !self.is_declared(name) {
            let known: Vec<&str> = schema.fields().iter().map(|field| field.name.as_str()).collect();
            item.mistake(format!("the schema has no field `{name}`"), known.join(", "));
        }
    }
}
