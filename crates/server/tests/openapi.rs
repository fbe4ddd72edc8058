//! `/_/openapi.json`: every endpoint is in it, and it is an OpenAPI document.
//!
//! Whether it is one says `openapi-spec-validator`, which `cargo xtask openapi` installs into `target`; where it is not
//! there, that test says so and is skipped.

use crate::harness::{SERVER, TestServer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHOP: &str = include_str!("../../../apps/shop/shop.toml");
const TRAVELS: &str = include_str!("../../../apps/travels/travels.toml");

/// What the two example services do not have: paths that differ in the names of their parameters alone, a schema that
/// refers to its own parts, fixed error bodies, parameters with bounds.
const ODD: &str = r##"
[errors]
invalid = 422
body = "no"
[collections.trees]
key = { field = "id", type = "i64", generate = "counter" }
[collections.trees.schema]
type = "object"
properties = { id = { type = "integer" }, next = { "$ref" = "#/$defs/leaf" } }
[collections.trees.schema."$defs"]
leaf = { type = "object", properties = { name = { type = "string" } } }
[[endpoints]]
route = "GET /trees/{id}"
get = "trees/{id}"
[[endpoints]]
route = "DELETE /trees/{tree}"
delete = "trees/{tree}"
[[endpoints]]
route = "PUT /trees/{which}"
replace = "trees/{which}"
reply = { done = [1, true] }
[[endpoints]]
route = "POST /trees"
insert = "trees"
[[endpoints]]
route = "GET /find/{depth}"
query = "SELECT id, id + :depth AS \"a sum\" FROM trees WHERE id < :most"
result = "row"
params = { depth = { type = "integer", min = 0, max = 5 }, most = { type = "number", default = 1.5, enum = [1.5, 2.0] } }
"##;

fn document(file: &str) -> Value {
    let server = TestServer::of_file(&format!("{file}\n[server]\n{SERVER}")).unwrap_or_else(|error| panic!("{error}"));
    let answer = server.get("/_/openapi.json");
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("application/json")));
    answer.json()
}

/// Every reference leads somewhere.
fn check_references(at: &Value, document: &Value) {
    match at {
        Value::Object(fields) => {
            if let Some(target) =
                fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/components"))
            {
                assert!(document["components"].pointer(target).is_some(), "nothing is at {target}");
            }
            fields.values().for_each(|value| check_references(value, document));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(value, document)),
        _ => {}
    }
}

/// Operations by method and path, as `GET /x`; each with a name of its own, and with the parameters that its path has.
fn operations(document: &Value) -> BTreeSet<String> {
    let (mut found, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            assert!(ids.insert(operation["operationId"].to_string()), "{path}: {}", operation["operationId"]);
            let of_path = operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "path");
            let declared: BTreeSet<&str> = of_path.filter_map(|one| one["name"].as_str()).collect();
            let wanted: BTreeSet<&str> = path.split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
            assert_eq!(declared, wanted, "{method} {path}");
            found.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    found
}

#[test]
fn every_endpoint_is_in_the_document() {
    for file in [SHOP, TRAVELS] {
        let document = document(file);
        check_references(&document, &document);
        let operations = operations(&document);
        for line in file.lines().filter(|line| line.starts_with("route")) {
            let route = line.split('"').nth(1).unwrap_or_default();
            assert!(operations.contains(route), "{route} is not in {operations:?}");
        }
        for general in ["GET /_/collections/{name}/{id}", "POST /_/query", "GET /_/openapi.json", "GET /_/metrics"] {
            assert!(operations.contains(general), "{general}");
        }
    }
}

#[test]
fn the_document_says_what_a_request_is_checked_by() {
    let shop = document(SHOP);
    let order = &shop["paths"]["/orders"]["post"];
    let body = order["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str();
    let body = body.and_then(|target| shop.pointer(target.strip_prefix('#')?)).unwrap_or(&Value::Null);
    assert_eq!(body["properties"]["lines"]["items"]["properties"]["count"]["maximum"], 1000);
    assert_eq!(order["responses"]["409"]["description"], "not enough in stock");
    let reply = &order["responses"]["201"]["content"]["application/json"]["schema"];
    assert_eq!(reply["required"], json!(["id", "total"]));
    let shelf = &shop["paths"]["/shelves/{shelf}"]["get"];
    let sort = shelf["parameters"].as_array().into_iter().flatten().find(|one| one["name"] == "sort");
    assert_eq!(sort.map(|sort| &sort["schema"]["enum"]), Some(&json!(["price", "name"])));
    let named =
        |name: &str| shelf["parameters"].as_array().into_iter().flatten().find(|one| one["name"] == name).cloned();
    assert_eq!(named("limit").map(|limit| limit["schema"]["maximum"].clone()), Some(json!(100)));
    assert_eq!(named("after").map(|after| after["required"].clone()), Some(json!(false)));
    let reply = &shelf["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(
        (&reply["required"], &reply["properties"]["after"]["type"]),
        (&json!(["goods", "after"]), &json!(["string", "null"]))
    );
    let lines = &shop["paths"]["/orders/{id}/lines"]["get"]["responses"]["200"]["content"];
    assert!(lines["application/x-ndjson"].is_object() && lines["application/json"].is_object(), "{lines}");
    let customer = &shop["paths"]["/customers"]["post"];
    let taken = &customer["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(taken["required"], json!(["email", "name"]), "the key is made");
    assert_eq!(shop["components"]["schemas"]["customers"]["required"], json!(["id", "email", "name"]));
    let odd = document(ODD);
    assert_eq!(operations(&odd).iter().filter(|one| one.ends_with("/trees/{id}")).count(), 3, "one path for OpenAPI");
    assert!(odd["paths"]["/trees/{id}"]["delete"]["responses"]["404"]["content"]["text/plain"].is_object());
    let find = &odd["paths"]["/find/{depth}"]["get"];
    assert_eq!(find["parameters"][0]["schema"], json!({ "type": "integer", "minimum": 0.0, "maximum": 5.0 }));
    assert!(find["responses"]["422"].is_object());
}

fn validator() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let program = target.join("openapi-validator/bin/openapi-spec-validator");
    program.is_file().then_some(program)
}

#[test]
fn the_documents_are_openapi() {
    let Some(validator) = validator() else {
        // Not by `println!`, which libtest keeps to itself where a test passes: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: openapi-spec-validator is not there (cargo xtask openapi installs it)\n";
        std::io::stdout().write_all(line.as_bytes()).expect("somebody listens");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("openapi.json");
    let judge = |document: &Value| {
        std::fs::write(&path, document.to_string()).expect("a file");
        let output = Command::new(&validator).arg("--schema").arg("3.1").arg(&path).output().expect("it runs");
        let told = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&told).into_owned())
    };
    for file in [SHOP, TRAVELS, ODD] {
        let (is_valid, told) = judge(&document(file));
        assert!(is_valid, "{told}");
    }
    let mut broken = document(SHOP);
    broken["paths"]["/orders"]["post"]["responses"] = json!([]);
    assert!(!judge(&broken).0, "the validator takes anything");
}
