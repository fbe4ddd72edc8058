//! `sapsan init`: the service file that it drafts is accepted and takes the data, and bad data are told with their place.

use std::path::Path;
use std::process::{Command, Output};

/// Documents that are read at most: `DOCUMENTS_MAX` of the binary.
const DOCUMENTS_MAX: usize = 100_000;

fn sapsan(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sapsan")).current_dir(folder).args(arguments).output().expect("the binary runs")
}

fn folder_with(name: &str, bytes: impl AsRef<[u8]>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), bytes).expect("a file");
    folder
}

/// What a command prints; it succeeds.
#[track_caller]
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = sapsan(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Drafts a service from data, checks it, imports the data into it; gives the file.
#[track_caller]
fn check_round(name: &str, text: &str, into: &[&str], documents: usize) -> String {
    let folder = folder_with(name, text);
    done(folder.path(), &["init", name, "--out", "service.toml"]);
    done(folder.path(), &["check-config", "service.toml"]);
    let imported = done(folder.path(), &[&["import", "service.toml", "--data", "d", name], into].concat());
    assert!(imported.starts_with(&format!("imported {documents} documents")), "{imported}");
    let drafted = std::fs::read_to_string(folder.path().join("service.toml")).expect("the file");
    // To standard output goes the same, but for the name that its comments call it by.
    assert_eq!(done(folder.path(), &["init", name]), drafted);
    drafted
}

#[track_caller]
fn check_has(drafted: &str, lines: &[&str]) {
    for line in lines {
        assert!(drafted.lines().any(|found| found == *line), "no line `{line}` in\n{drafted}");
    }
}

#[test]
fn a_service_is_drafted_from_lines_of_json_and_takes_them() {
    let line = |number: usize| {
        let note = if number.is_multiple_of(2) { ",\"note\":null" } else { "" };
        let price = if number == 7 { "1.5".to_owned() } else { number.to_string() };
        format!(
            "{{\"shelf\":\"s{}\",\"sku\":\"a-{number}\",\"price\":{price},\"tags\":[{number}],\"a b\":{number}{note}}}\n",
            number % 3
        )
    };
    let text: String = (0..1_000).map(line).collect();
    let drafted = check_round("goods.ndjson", &text, &["--collection", "goods"], 1_000);
    check_has(
        &drafted,
        &[
            &format!(
                "# Written by `sapsan init goods.ndjson` from 1,000 documents ({} bytes), all of the file.",
                grouped(text.len())
            ),
            "#     sapsan import service.toml --data DIR --collection goods goods.ndjson",
            "[collections.goods]",
            "# \"sku\" is in all 1,000 documents, and in each has another value. The same holds for \"a b\".",
            "key = { field = \"sku\", type = \"string\" }",
            "# unique = [\"a b\"]",
            "# indexes = [[\"shelf\"]]",
            "#     \"shelf\": 3 different values in 1,000 documents",
            "required = [\"shelf\", \"sku\", \"price\", \"tags\", \"a b\"]",
            "shelf = { type = \"string\" } # 2 bytes",
            "price = { type = \"number\" }",
            "tags = { type = \"array\" }",
            "\"a b\" = { type = \"integer\" } # 0 to 999",
            "note = {} # in 500 of 1,000 documents, null in 500",
            "route = \"GET /goods/{sku}\"",
        ],
    );
}

fn grouped(number: usize) -> String {
    let text = number.to_string();
    let (thousands, rest) = text.split_at(text.len() - 3);
    format!("{thousands},{rest}")
}

#[test]
fn a_service_is_drafted_from_arrays_by_their_names_and_from_a_table() {
    let arrays = r#"{"users": [{"id": 1, "email": "a@x"}, {"id": 5000000000, "email": null}], "visits": [{"id": 1, "user": 1}]}"#;
    let drafted = check_round("data.json", arrays, &[], 3);
    check_has(
        &drafted,
        &[
            "[collections.users]",
            "key = { field = \"id\", type = \"i64\" }",
            "email = { type = [\"string\", \"null\"] } # 3 bytes, null in 1",
        ],
    );
    check_has(
        &drafted,
        &[
            "[collections.visits]",
            "key = { field = \"id\", type = \"u32\" }",
            "user = { type = \"integer\" } # always 1",
        ],
    );
    let table = "code,since,open,zip,places\r\nA,2020,true,01234,\"[1,2]\"\r\nB,,false,99999,\r\n";
    let drafted = check_round("shops.csv", table, &["--collection", "shops"], 2);
    check_has(
        &drafted,
        &[
            "key = { field = \"code\", type = \"string\" }",
            "required = [\"code\", \"open\", \"zip\"]",
            "since = { type = \"integer\" } # always 2020, in 1 of 2 documents",
            "open = { type = \"boolean\" }",
            "zip = { type = \"string\" } # 5 bytes",
            "places = { type = \"array\" } # in 1 of 2 documents",
        ],
    );
}

#[test]
fn of_a_long_file_the_beginning_is_read_and_the_rest_is_not_bound_by_it() {
    let text: String = (0..=DOCUMENTS_MAX)
        .map(|id| if id < DOCUMENTS_MAX { format!("{{\"id\":{id},\"n\":7}}\n") } else { format!("{{\"id\":{id}}}\n") })
        .collect();
    let drafted = check_round("items.ndjson", &text, &["--collection", "items"], DOCUMENTS_MAX + 1);
    assert!(
        drafted.contains("from 100,000 documents (") && drafted.contains(" bytes), the beginning of the file."),
        "{drafted}"
    );
    check_has(&drafted, &["# required = [\"id\", \"n\"]"]);
}

#[test]
fn no_file_is_written_over() {
    let folder = folder_with("goods.ndjson", "{\"id\":1}\n");
    std::fs::write(folder.path().join("service.toml"), "mine").expect("a file");
    let output = sapsan(folder.path(), &["init", "goods.ndjson", "--out", "service.toml"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("service.toml exists already"), "{told}");
    assert_eq!(std::fs::read(folder.path().join("service.toml")).expect("the file"), b"mine");
}

#[test]
fn data_that_make_no_service_are_told_with_their_place() {
    let deep = format!("{{\"id\":1}}\n{{\"a\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    let utf8 = "bad UTF-8 stands in for these".to_owned();
    let cases = [
        ("goods.ndjson", deep, "goods.ndjson, line 2: nested more than 128 levels deep"),
        ("goods.ndjson", utf8, "goods.ndjson, line 1: not UTF-8"),
        ("goods.ndjson", String::new(), "goods.ndjson: the file has no documents"),
        ("goods.csv", String::new(), "goods.csv: line 1: the file is empty"),
        ("goods.csv", "id,n\n1\n".to_owned(), "goods.csv, line 2, column 1: the row has 1 fields"),
        ("goods.json", "{\"id\": 1}".to_owned(), "goods.json: byte 7: expected an array of records"),
        ("goods.json", "{\"my goods\": [{\"id\": 1}]}".to_owned(), "the array \"my goods\" cannot be a collection"),
        ("goods.ndjson", "{\"n\":1}\n{\"n\":1}\n".to_owned(), "goods.ndjson: goods has no field for its key"),
    ];
    for (name, text, expected) in cases {
        let text = if text.starts_with("bad") { b"{\"id\":\"\xff\"}\n".to_vec() } else { text.into_bytes() };
        let folder = folder_with(name, text);
        let output = sapsan(folder.path(), &["init", name, "--out", "service.toml"]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && told.contains(expected), "{expected}: {told}");
        assert!(!folder.path().join("service.toml").exists());
    }
}

#[test]
fn the_formats_are_told_only_where_the_format_is_the_problem() {
    let names_formats = |name: &str, text: &str| {
        let folder = folder_with("goods.ndjson", text);
        let output = sapsan(folder.path(), &["init", name]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).contains("`sapsan init` reads .ndjson")
    };
    assert!(names_formats("goods.ndjson", "<xml/>\n"));
    assert!(!names_formats("goods.ndjson", "{\"id\":1}\n{\"id\"\n"));
    assert!(!names_formats("nowhere.ndjson", ""));
    assert!(!names_formats(".", ""));
}

#[test]
fn a_line_that_is_longer_than_a_document_may_be_is_told() {
    let folder = folder_with("goods.ndjson", "");
    let file = std::fs::File::options().write(true).open(folder.path().join("goods.ndjson")).expect("the file");
    file.set_len(65 << 20).expect("a hole as a line");
    let output = sapsan(folder.path(), &["init", "goods.ndjson"]);
    let told = String::from_utf8_lossy(&output.stderr);
    let expected = "goods.ndjson: line 1: a record of more than 67108864 bytes";
    assert!(output.status.code() == Some(1) && told.contains(expected), "{told}");
}
