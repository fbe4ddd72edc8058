//! The service file of a draft: what was guessed, with the evidence as comments.

use super::collection::CollectionProfile;
use super::field::FieldProfile;
use super::{Draft, grouped};
use std::fmt::Write;

/// Most fields that are suggested for indexes, as unique, or instead of the key, each.
const SUGGESTIONS_MAX: usize = 8;

/// Names of the files that the comments show commands with.
pub(crate) struct Shown<'s> {
    /// The data.
    pub(crate) data: &'s str,
    /// The service file.
    pub(crate) service: &'s str,
}

impl Draft {
    /// The text of the service file.
    pub(crate) fn text(&self, shown: &Shown<'_>) -> Result<String, String> {
        let mut out = String::new();
        self.write_head(shown, &mut out);
        for collection in &self.collections {
            write_collection(collection, self.is_whole, &mut out)?;
        }
        let mut head = "# Anyone who reaches the server may call these. The general API below /_/ writes, and answers this machine alone.\n";
        for collection in self.collections.iter().filter(|collection| is_path(&collection.name)) {
            out.push_str(head);
            head = "";
            write_endpoints(collection, &mut out)?;
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        Ok(out)
    }

    fn write_head(&self, shown: &Shown<'_>, out: &mut String) {
        let (data, service) = (word(shown.data), word(shown.service));
        line(out, format_args!("# Written by `sapsan init {data}` from {}.", self.extent()));
        line(out, "# What was guessed stands beside its evidence. Look through it; then:");
        line(out, format_args!("#     sapsan check-config {service}"));
        let target = match &self.collections[..] {
            [only] => format!("--collection {} ", only.name),
            _ => String::new(),
        };
        line(out, format_args!("#     sapsan import {service} --data DIR {target}{data}"));
        line(out, format_args!("#     sapsan serve {service} --data DIR"));
        if !self.is_whole {
            line(
                out,
                "# The rest of the file may have other values: the import names the first document that does not fit.",
            );
        }
        out.push('\n');
    }
}

fn write_collection(collection: &CollectionProfile, is_whole: bool, out: &mut String) -> Result<(), String> {
    let key = collection.key()?;
    let documents = grouped(collection.documents);
    line(out, format_args!("[collections.{}]", collection.name));
    let others = match &key.others[..] {
        [] => String::new(),
        others => format!(" So {} {}.", if others.len() == 1 { "was" } else { "were" }, names(others)),
    };
    let field = quoted(&key.field.name);
    line(out, format_args!("# {field} was there in all {documents} documents, each time with another value.{others}"));
    line(out, format_args!("key = {{ field = {field}, type = \"{}\" }}", key.kind));
    write_candidates(collection, key.field, out);
    line(out, format_args!("\n[collections.{}.schema]", collection.name));
    line(out, "type = \"object\"");
    write_required(collection, is_whole, out);
    line(
        out,
        "# Documents may have other fields. `additionalProperties = false` forbids them, and SQL then reports misspelt names.",
    );
    line(out, "additionalProperties = true");
    line(out, format_args!("\n[collections.{}.schema.properties]", collection.name));
    for field in &collection.fields {
        write_field(field, collection.documents, out);
    }
    if collection.undeclared > 0 {
        let values = grouped(collection.undeclared);
        line(
            out,
            format_args!(
                "# {values} values of more fields were seen: too many fields, names that are too long, or no name."
            ),
        );
    }
    out.push('\n');
    Ok(())
}

/// What may become unique or an index: comments, for a rule that refuses writes is the author's to make.
fn write_candidates(collection: &CollectionProfile, key: &FieldProfile, out: &mut String) {
    let is_other = |field: &&FieldProfile| field.name != key.name && is_indexed(&field.name);
    let unique: Vec<_> = collection.fields.iter().filter(is_other).filter(|field| field.is_distinct()).collect();
    if !unique.is_empty() {
        line(out, "# Candidates for unique fields, whose values no two documents share:");
        line(out, format_args!("# unique = [{}]", names(&unique)));
        for field in unique.iter().take(SUGGESTIONS_MAX) {
            let count = grouped(field.documents - field.nulls);
            line(out, format_args!("#     {}: distinct in all {count} documents that have it", quoted(&field.name)));
        }
    }
    let values = |field: &'_ FieldProfile| field.index_values(collection.documents);
    let indexed: Vec<_> = collection.fields.iter().filter(is_other).filter(|field| values(field).is_some()).collect();
    if !indexed.is_empty() {
        line(out, "# Candidates for indexes, by which queries find documents:");
        let lists = indexed.iter().take(SUGGESTIONS_MAX).map(|field| format!("[{}]", quoted(&field.name)));
        line(out, format_args!("# indexes = [{}]", lists.collect::<Vec<_>>().join(", ")));
        for field in indexed.iter().take(SUGGESTIONS_MAX) {
            let (found, count) = (grouped(values(field).unwrap_or_default()), grouped(field.documents));
            line(out, format_args!("#     {}: {found} values in {count} documents", quoted(&field.name)));
        }
    }
}

fn write_required(collection: &CollectionProfile, is_whole: bool, out: &mut String) {
    let is_in_all = |field: &&FieldProfile| field.documents == collection.documents;
    let names: Vec<String> = collection.fields.iter().filter(is_in_all).map(|field| quoted(&field.name)).collect();
    let documents = grouped(collection.documents);
    let (comment, condition) = if is_whole { ("", "") } else { ("# ", ": if all others have them too") };
    line(out, format_args!("# In all {documents} documents{condition}:"));
    line(out, format_args!("{comment}required = [{}]", names.join(", ")));
}

fn write_field(field: &FieldProfile, documents: u64, out: &mut String) {
    let types = match &field.types()[..] {
        [] => "{}".to_owned(),
        [only] => format!("{{ type = \"{only}\" }}"),
        several => format!(
            "{{ type = [{}] }}",
            several.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
        ),
    };
    let mut evidence: Vec<String> = Vec::new();
    evidence.extend(Some(field.range()).filter(|range| !range.is_empty()));
    if field.documents < documents {
        evidence.push(format!("in {} documents", grouped(field.documents)));
    }
    if field.nulls > 0 {
        evidence.push(format!("null in {}", grouped(field.nulls)));
    }
    let evidence = if evidence.is_empty() { String::new() } else { format!(" # {}", evidence.join(", ")) };
    line(out, format_args!("{} = {types}{evidence}", key(&field.name)));
}

/// The declared endpoints of a collection: a document, and all documents by pages.
fn write_endpoints(collection: &CollectionProfile, out: &mut String) -> Result<(), String> {
    let key = collection.key()?.field;
    let name = &collection.name;
    let parameter = if is_identifier(&key.name) { key.name.as_str() } else { "key" };
    line(out, "[[endpoints]]");
    line(out, format_args!("route = \"GET /{name}/{{{parameter}}}\""));
    line(out, format_args!("get = \"{name}/{{{parameter}}}\"\n"));
    line(out, "[[endpoints]]");
    line(out, format_args!("route = \"GET /{name}\""));
    let sql = format!("SELECT * FROM {} ORDER BY {}", identifier(name), identifier(&key.name));
    line(out, format_args!("query = {}", quoted(&sql)));
    line(out, "page = { limit = 20, max = 100 }\n");
    Ok(())
}

fn line(out: &mut String, text: impl std::fmt::Display) {
    // Writing to a text does not fail.
    let _ = writeln!(out, "{text}");
}

/// Fields as a list of their names: the first ones.
fn names(fields: &[&FieldProfile]) -> String {
    fields.iter().take(SUGGESTIONS_MAX).map(|field| quoted(&field.name)).collect::<Vec<_>>().join(", ")
}

/// Whether a field of that name may be unique or in an index: what looks like a path may only if the schema declares it,
/// which it does, but no tree is named by long names.
fn is_indexed(name: &str) -> bool {
    name.len() <= docs::config::NAME_BYTES_MAX
}

/// Whether a collection's name can begin a path: below `/_/` stands the general API.
fn is_path(name: &str) -> bool {
    name != "_"
}

fn is_identifier(name: &str) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.as_bytes().first().is_some_and(is_first)
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A name as SQL has it: in double quotes, for it may be a keyword.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A key of a table of TOML.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// A text of TOML on one line. Escapes of JSON are escapes of TOML, which wants one more character escaped; and as no comment
/// may hold a control character, names in comments are written so too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A file's name in a command of a comment.
fn word(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte) || byte >= 0x80;
    if name.bytes().all(is_plain) { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use server::config::ServiceConfig;
    use std::path::Path;

    fn drafted(file: &str, text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(file);
        std::fs::write(&path, text).expect("a file");
        let draft = Draft::read(&path, None)?;
        draft.text(&Shown { data: file, service: "service.toml" })
    }

    #[track_caller]
    fn check_accepted(text: &str) {
        let config = ServiceConfig::parse(Path::new("service.toml"), text.to_owned());
        let config = config.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
        server::check(&config).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
    }

    #[test]
    fn names_that_have_to_be_quoted_are() {
        let strange = ["group", "a b", "a.b", "x\"y", "x'y", "\u{7f}\u{1}\n", "товар", "_"];
        for name in strange {
            let document = serde_json::json!({ name: 1, "other": "x" }).to_string();
            check_accepted(&drafted("goods.ndjson", &document).expect("a draft"));
        }
        for collection in ["_", "-", "my-goods", "select"] {
            check_accepted(&drafted("a.json", &format!("{{\"{collection}\": [{{\"id\": 1}}]}}")).expect("a draft"));
        }
    }

    proptest! {
        #[test]
        fn whatever_the_names_and_values_are_the_file_has_no_mistakes(
            names in prop::collection::vec(".{0,12}", 1..6),
            values in prop::collection::vec("-?[0-9]{1,20}|null|true|\"[a-z]{0,4}\"|\\[\\]|1\\.5", 1..20),
        ) {
            let fields = |at: usize| names.iter().enumerate().filter(|(place, name)| !names[..*place].contains(name) && !name.contains('\0'))
                .map(|(place, name)| format!("{}:{}", quoted(name), values[(at + place) % values.len()].replace("-0", "-1").trim_start_matches('0'))).collect::<Vec<_>>().join(",");
            let text: String = (0..5).map(|at| format!("{{\"id\":{at},{}}}\n", fields(at))).collect();
            if let Ok(text) = drafted("goods.ndjson", &text) {
                check_accepted(&text);
            }
        }
    }
}
