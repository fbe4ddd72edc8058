//! The service file of a draft. Each guess has its evidence in a comment.

use super::collection::CollectionProfile;
use super::field::FieldProfile;
use super::reading::Draft;
use loadtest::quantity;
use std::fmt::Write;

/// Most fields in each list of suggestions: for indexes, as unique, instead of the key.
const SUGGESTIONS_MAX: usize = 8;

/// Names of files, for the commands in the comments.
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
        let mut head = "# Every client that reaches the server may call these endpoints. To write, use the general API at /_/: without a token it answers only\n# clients on the same machine.\n";
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
        line(out, "# Each guess has its evidence in a comment. Check the guesses, then run:");
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
                "# Only the beginning of the data was read: the import reports the first document that does not fit.",
            );
        }
        out.push('\n');
    }
}

fn write_collection(collection: &CollectionProfile, is_whole: bool, out: &mut String) -> Result<(), String> {
    let key = collection.key()?;
    let documents = quantity::count(collection.documents);
    line(out, format_args!("[collections.{}]", collection.name));
    let others = match &key.others[..] {
        [] => String::new(),
        others => format!(" The same holds for {}.", names(others)),
    };
    let field = quoted(&key.field.name);
    line(out, format_args!("# {field} is in all {documents} documents, and in each has another value.{others}"));
    line(out, format_args!("key = {{ field = {field}, type = \"{}\" }}", key.kind));
    write_candidates(collection, key.field, out);
    line(out, format_args!("\n[collections.{}.schema]", collection.name));
    line(out, "type = \"object\"");
    write_required(collection, is_whole, out);
    line(
        out,
        "# Documents may have other fields. `additionalProperties = false` forbids them; SQL then reports misspelt names, too.",
    );
    line(out, "additionalProperties = true");
    line(out, format_args!("\n[collections.{}.schema.properties]", collection.name));
    for field in &collection.fields {
        write_field(field, collection.documents, out);
    }
    if collection.undeclared > 0 {
        let values = quantity::count(collection.undeclared);
        line(
            out,
            format_args!(
                "# {values} values are of fields that are not declared here: there are too many, or their names are too long or empty."
            ),
        );
    }
    out.push('\n');
    Ok(())
}

/// Candidates for unique fields and indexes, as comments: a rule that refuses writes is the author's decision.
fn write_candidates(collection: &CollectionProfile, key: &FieldProfile, out: &mut String) {
    let is_other = |field: &&FieldProfile| field.name != key.name;
    let unique: Vec<_> = collection.fields.iter().filter(is_other).filter(|field| field.is_distinct()).collect();
    if !unique.is_empty() {
        line(out, "# Candidates for unique fields, of which no two documents have the same value:");
        line(out, format_args!("# unique = [{}]", names(&unique)));
        for field in unique.iter().take(SUGGESTIONS_MAX) {
            let count = quantity::count(field.documents - field.nulls);
            line(out, format_args!("#     {}: {count} different values in {count} documents", quoted(&field.name)));
        }
    }
    let values = |field: &'_ FieldProfile| field.index_values(collection.documents);
    let indexed: Vec<_> = collection.fields.iter().filter(is_other).filter(|field| values(field).is_some()).collect();
    if !indexed.is_empty() {
        line(out, "# Candidates for indexes, with which queries find documents by these fields:");
        let lists = indexed.iter().take(SUGGESTIONS_MAX).map(|field| format!("[{}]", quoted(&field.name)));
        line(out, format_args!("# indexes = [{}]", lists.collect::<Vec<_>>().join(", ")));
        for field in indexed.iter().take(SUGGESTIONS_MAX) {
            let (found, count) = (quantity::count(values(field).unwrap_or_default()), quantity::count(field.documents));
            line(out, format_args!("#     {}: {found} different values in {count} documents", quoted(&field.name)));
        }
    }
}

fn write_required(collection: &CollectionProfile, is_whole: bool, out: &mut String) {
    let is_in_all = |field: &&FieldProfile| field.documents == collection.documents;
    let names: Vec<String> = collection.fields.iter().filter(is_in_all).map(|field| quoted(&field.name)).collect();
    let documents = quantity::count(collection.documents);
    let (comment, condition) =
        if is_whole { ("", "") } else { ("# ", " that were read (remove the `#` if the others have them, too)") };
    line(out, format_args!("# Fields of all {documents} documents{condition}:"));
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
        evidence.push(format!("in {} of {} documents", quantity::count(field.documents), quantity::count(documents)));
    }
    if field.nulls > 0 {
        evidence.push(format!("null in {}", quantity::count(field.nulls)));
    }
    let evidence = if evidence.is_empty() { String::new() } else { format!(" # {}", evidence.join(", ")) };
    line(out, format_args!("{} = {types}{evidence}", key(&field.name)));
}

/// The endpoints of a collection: one document by its key, and all documents by pages.
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

/// The names of the first fields, as a list.
fn names(fields: &[&FieldProfile]) -> String {
    fields.iter().take(SUGGESTIONS_MAX).map(|field| quoted(&field.name)).collect::<Vec<_>>().join(", ")
}

/// Whether a collection's name can begin a path: `/_/` is the general API.
fn is_path(name: &str) -> bool {
    name != "_"
}

fn is_identifier(name: &str) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.as_bytes().first().is_some_and(is_first)
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A name in SQL: in double quotes, because it may be a keyword.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A key of a table of TOML.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// A string of TOML on one line. The escapes of JSON are valid in TOML, which requires one more: U+007F. Names in comments are
/// escaped too, because a comment must not have control characters.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A file's name as a word of a shell command in a comment: quoted so that the shell expands nothing in it, and escaped where it has
/// control characters.
fn word(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte) || byte >= 0x80;
    if name.bytes().all(is_plain) {
        name.to_owned()
    } else if name.chars().any(char::is_control) {
        quoted(name)
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_expands_nothing_in_a_files_name() {
        for (name, expected) in [
            ("a-1.csv", "a-1.csv"),
            ("a b.csv", "'a b.csv'"),
            ("a$(id)`id`.csv", "'a$(id)`id`.csv'"),
            ("it's.csv", r"'it'\''s.csv'"),
            ("a\nb", r#""a\nb""#),
        ] {
            assert_eq!(word(name), expected);
        }
    }
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

    /// The file has no mistakes, also if its suggestions are no comments any more.
    #[track_caller]
    fn check_accepted(text: &str) {
        let suggestions = ["unique", "indexes", "required"].map(|key| (format!("\n# {key} = "), format!("\n{key} = ")));
        let taken = suggestions.iter().fold(text.to_owned(), |text, (comment, key)| text.replace(comment, key));
        check_without_mistakes(text);
        check_without_mistakes(&taken);
    }

    #[track_caller]
    fn check_without_mistakes(text: &str) {
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

    #[test]
    fn fields_beyond_the_bounds_are_not_declared_and_too_many_arrays_are_refused() {
        let fields: String = (0..300).map(|number| format!("\"f{number}\":1,")).collect();
        let long = "x".repeat(docs::config::NAME_BYTES_MAX + 1);
        let text =
            drafted("goods.ndjson", &format!("{{\"id\":1,\"{long}\":2,{fields}\"\":1}}\n{{\"id\":2,\"{long}\":3}}\n"));
        let text = text.expect("a draft");
        check_accepted(&text);
        assert!(text.contains("\n\"f197\" = {") || text.contains("\nf197 = {"), "{text}");
        assert!(
            !text.contains("f198") && text.contains("\n# 103 values are of fields that are not declared"),
            "{text}"
        );
        let arrays: Vec<String> = (0..65).map(|number| format!("\"c{number}\":[{{\"id\":1}}]")).collect();
        let refused = drafted("a.json", &format!("{{{}}}", arrays.join(",")));
        assert!(refused.is_err_and(|why| why.contains("more than 64 arrays")));
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
