//! `sapsan export`: what comes out can be imported and gives the same documents; no half file has the final name.

use crate::travels::process::Server;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

const CONFIG: &str = r#"
[collections.goods]
key = { field = "sku", type = "string" }
[collections.goods.schema]
type = "object"
required = ["sku", "price", "note"]
[collections.goods.schema.properties]
sku = { type = "string" }
price = { type = "number" }
count = { type = "integer" }
new = { type = "boolean" }
tags = { type = "array" }
size = { type = "object" }
note = { type = ["string", "null"] }
code = { type = ["integer", "string"] }

[collections.shelves]
key = { field = "id", type = "i64" }
"#;

/// Documents with what JSON and CSV write differently, in the order of their keys.
const GOODS: [&str; 5] = [
    r#"{"sku":"007","price":9.50,"note":"a, \"b\"","code":5}"#,
    r#"{"sku":"a b&c=d/é","price":1e2,"count":-3,"new":true,"note":null,"code":"5"}"#,
    r#"{"sku":"n","price":0,"tags":["x",{"y":"z\n"}],"size":{"w":1},"note":"","code":""}"#,
    r#"{"sku":"true","price":18446744073709551617,"new":false,"note":"two\r\nlines","more":"12"}"#,
    r#"{"sku":"é","price":-1,"note":"{","more":"TRUE"}"#,
];
const SHELVES: [&str; 2] = [r#"{"id":-5,"name":"x","inner":[1]}"#, r#"{"id":7}"#];

fn sapsan(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sapsan")).current_dir(folder).args(arguments).output().expect("the binary runs")
}

#[track_caller]
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = sapsan(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = sapsan(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(documents: &[&str]) -> String {
    documents.iter().map(|document| format!("{document}\n")).collect()
}

/// A folder with the service file, and with both collections in the data folder `d`.
fn stored() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write("service.toml", CONFIG);
    for (name, documents) in [("goods", &GOODS[..]), ("shelves", &SHELVES)] {
        let file = format!("{name}.in.ndjson");
        write(&file, &lines(documents));
        done(folder.path(), &["import", "service.toml", "--data", "d", "--collection", name, &file]);
    }
    folder
}

/// Imports a file into a new folder; what is in a collection there, by line.
#[track_caller]
fn imported(folder: &Path, file: &str, into: &[&str], collection: &str) -> String {
    let _ = std::fs::remove_dir_all(folder.join("e"));
    done(folder, &[&["import", "service.toml", "--data", "e", file], into].concat());
    done(folder, &["export", "service.toml", "--data", "e", "--collection", collection])
}

#[test]
fn an_export_that_is_imported_gives_the_same_documents() {
    let folder = stored();
    let folder = folder.path();
    let export = |arguments: &[&str]| done(folder, &[&["export", "service.toml", "--data", "d"], arguments].concat());
    let goods = ["--collection", "goods"];
    assert_eq!(export(&goods), lines(&GOODS));
    assert_eq!(export(&["--collection", "goods", "--out", "goods.ndjson"]), "wrote 5 documents to goods.ndjson\n");
    assert_eq!(imported(folder, "goods.ndjson", &goods, "goods"), lines(&GOODS));
    export(&["--collection", "goods", "--out", "goods.json"]);
    assert_eq!(imported(folder, "goods.json", &goods, "goods"), lines(&GOODS));
    export(&["--out", "all.json"]);
    assert_eq!(imported(folder, "all.json", &[], "goods"), lines(&GOODS));
    assert_eq!(imported(folder, "all.json", &[], "shelves"), lines(&SHELVES));
    export(&["--collection", "goods", "--out", "goods.csv"]);
    // A row has its fields in the order of the columns, as these documents have them.
    assert_eq!(imported(folder, "goods.csv", &goods, "goods"), lines(&GOODS));
    let more = ["export", "service.toml", "--data", "d", "--collection", "shelves", "--format", "csv"];
    let output = sapsan(folder, &more);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "id,name,inner\r\n-5,x,[1]\r\n7,,\r\n");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the schema does not declare the fields inner"), "{told}");
}

#[test]
fn a_file_and_a_server_are_not_both_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [&["service.toml"][..], &["--data", "d"], &["service.toml", "--data", "d"]] {
        let told = refused(folder.path(), &[&["export", "--url", "http://127.0.0.1:1"], arguments].concat());
        assert!(told.contains("leave out CONFIG and --data"), "{told}");
    }
}

#[test]
fn arrays_that_a_table_makes_text_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let config = "[collections.c]\nkey = { field = \"id\", type = \"u32\" }\n[collections.c.schema.properties]\n\
                  both = { type = [\"string\", \"array\"] }\nlist = { type = \"array\" }\n";
    std::fs::write(folder.join("service.toml"), config).expect("a file");
    std::fs::write(folder.join("c.ndjson"), "{\"id\":1,\"both\":[1,2],\"list\":[1,2]}\n").expect("a file");
    done(folder, &["import", "service.toml", "--data", "d", "c.ndjson", "--collection", "c"]);
    let output = sapsan(folder, &["export", "service.toml", "--data", "d", "--out", "c.csv"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("permits text in the fields both, so"), "{told}");
    assert!(imported(folder, "c.csv", &["--collection", "c"], "c").contains(r#""both":"[1,2]","list":[1,2]"#));
}

#[test]
fn an_empty_collection_is_exported_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("service.toml"), CONFIG).expect("a file");
    std::fs::write(folder.join("none.ndjson"), "").expect("a file");
    done(folder, &["import", "service.toml", "--data", "d", "--collection", "goods", "none.ndjson"]);
    let export = |arguments: &[&str]| done(folder, &[&["export", "service.toml", "--data", "d"], arguments].concat());
    assert_eq!(export(&["--collection", "goods"]), "");
    assert_eq!(export(&["--collection", "goods", "--format", "json"]), "[]\n");
    assert_eq!(export(&["--format", "json", "--out", "all.json"]), "wrote 0 documents to all.json\n");
    assert_eq!(imported(folder, "all.json", &[], "goods"), "");
    assert_eq!(export(&["--collection", "goods", "--format", "csv"]), "sku,price,count,new,tags,size,note,code\r\n");
}

#[test]
fn a_running_server_is_exported_page_by_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("service.toml"), CONFIG).expect("a file");
    // Several pages, and a key that a path has to encode at the end of one.
    let key = |number: u32| format!("{number:05}&é %/");
    let document = |number: u32| format!("{{\"sku\":\"{}\",\"price\":{number}.0,\"note\":\"n\"}}\n", key(number));
    let goods: String = (0..2_500).map(document).collect();
    std::fs::write(folder.join("goods.in.ndjson"), &goods).expect("a file");
    std::fs::write(folder.join("shelves.in.ndjson"), lines(&SHELVES)).expect("a file");
    for name in ["goods", "shelves"] {
        done(folder, &["import", "service.toml", "--data", "d", "--collection", name, &format!("{name}.in.ndjson")]);
    }
    let csv = ["export", "service.toml", "--data", "d", "--collection", "goods", "--format", "csv"];
    let from_folder = done(folder, &csv);
    let server = Server::of(
        Command::new(env!("CARGO_BIN_EXE_sapsan"))
            .current_dir(folder)
            .args(["serve", "service.toml", "--data", "d", "--http", "127.0.0.1:0"])
            .stdout(std::process::Stdio::piped()),
    );
    let url = format!("http://{}", server.address);
    let export = |arguments: &[&str]| done(folder, &[&["export", "--url", &url], arguments].concat());
    assert_eq!(export(&["--collection", "goods"]), goods);
    assert_eq!(export(&["--collection", "shelves", "--format", "json"]), format!("[\n{}\n]\n", SHELVES.join(",\n")));
    export(&["--out", "all.json"]);
    assert_eq!(imported(folder, "all.json", &[], "goods"), goods);
    let table = export(&["--collection", "goods", "--format", "csv"]);
    assert_eq!(table.lines().skip(1).count(), from_folder.lines().skip(1).count());
    assert!(table.starts_with("sku,price,note\r\n"), "{}", table.lines().next().unwrap_or_default());
    let told = refused(folder, &["export", "--url", &url, "--collection", "nobody"]);
    assert!(told.contains("there is no collection \"nobody\"; there are: goods, shelves"), "{told}");
    server.stop();
}

const SCHEMA: &str = r#"{"collections":[{"name":"goods","key":{"field":"sku","type":"string"}}]}"#;
const PAGE: &str = r#"{"items":[{"sku":"a"}],"after":"a"}"#;

/// Exports from a server that gives these answers and is gone then. No file may be left. Returns the server's URL and the error.
#[track_caller]
fn refused_by_server(answers: &'static [&'static str]) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let serving = std::thread::spawn(move || {
        for body in answers {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).expect("a request");
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        }
    });
    let told = refused(folder.path(), &["export", "--url", &url, "--out", "goods.ndjson"]);
    serving.join().expect("it answered");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    (url, told)
}

#[test]
fn an_export_that_ends_early_leaves_nothing() {
    let (url, told) = refused_by_server(&[SCHEMA, PAGE]);
    assert!(told.contains(&url), "{told}");
}

#[test]
fn a_server_whose_answers_are_no_pages_or_repeat_ends_the_export() {
    for (answers, expected) in [
        (&["[]"][..], "GET /_/schema has no list of collections"),
        (&["no JSON"], "GET /_/schema cannot be read"),
        (&[SCHEMA, "{}"], "is not a page of documents"),
        (&[SCHEMA, PAGE, PAGE], "the server repeats the page after the key \"a\""),
    ] {
        let (_, told) = refused_by_server(answers);
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn what_cannot_be_exported_is_told_with_what_can() {
    let folder = stored();
    let folder = folder.path();
    let told = |arguments: &[&str]| refused(folder, &[&["export"], arguments].concat());
    let of_folder = ["service.toml", "--data", "d"];
    for (arguments, expected) in [
        (&["--collection", "nobody"][..], "there is no collection \"nobody\"; there are: goods, shelves"),
        (&[], "choose one of goods, shelves with --collection, or write all with --format json"),
        (&["--format", "csv"], "choose one of goods, shelves with --collection"),
        (&["--collection", "goods", "--out", "service.toml"], "service.toml exists already"),
        (&["--collection", "goods", "--out", "nowhere/x.csv"], "cannot write nowhere/x.csv: No such file"),
    ] {
        let told = told(&[&of_folder[..], arguments].concat());
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
    for (arguments, expected) in [
        (&["service.toml", "--data", "nowhere"][..], "nowhere is no data folder"),
        (&["--url", "somewhere"], "http://ADDRESS:PORT or unix:PATH is expected"),
        (&["service.toml"], "--data <DIR>"),
        (&["--url", "http://127.0.0.1:1", "--data", "d"], "leave out CONFIG and --data"),
    ] {
        let told = told(arguments);
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}
