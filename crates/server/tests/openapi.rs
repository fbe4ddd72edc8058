//! `/_/openapi.json`: it has every endpoint, and it is a valid OpenAPI document.
//!
//! It is checked by `openapi-spec-validator`, and by the linters of Redocly and Spectral with the rules in `linting`. `cargo
//! xtask openapi` installs them into `target`. A missing tool is named, and its part of the test is skipped. So are the generators
//! by which clients in Go, Python and TypeScript are made of it, and compiled.

use crate::harness::{Client, SERVER, TestServer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SHOP: &str = include_str!("../../../apps/shop/shop.toml");
const TRAVELS: &str = include_str!("../../../apps/travels/travels.toml");

/// Features that the two example services lack: paths that differ only in the names of their parameters, a schema that refers to
/// its own parts, fixed error bodies, parameters with limits.
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

/// Tokens, a listener of its own for the general API, and endpoints whose results are arrays, objects and rows of a view.
const TOKENS: &str = r#"
[tokens.reports]
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
allow = ["read", "orders"]
[collections.orders]
key = { field = "id", type = "u32" }
[collections.orders.schema]
type = "object"
required = ["id", "lines"]
properties = { id = { type = "integer" }, lines = { type = "array", items = { type = "string" } }, note = { type = "object" }, paid = { type = "boolean" } }
[views.paid]
query = "SELECT paid, COUNT(*) AS orders, SUM(id) AS ids FROM orders GROUP BY paid"
[[endpoints]]
route = "GET /orders"
allow = "token"
scope = "orders"
query = "SELECT id, lines, note, paid, id + 0.5 AS half, :at AS at, json_array_length(lines) AS count FROM orders"
wrap = "orders"
params = { at = "string" }
[[endpoints]]
route = "GET /paid/{id}"
allow = "token"
query = "SELECT paid, orders, ids FROM paid WHERE orders > :id"
[[endpoints]]
route = "POST /orders/{id}/pay"
allow = "token"
steps = [
  { sql = "SELECT id AS found, note FROM orders WHERE id = :id", expect = "rows = 1", else = 404 },
  { sql = "UPDATE orders SET paid = json('true') WHERE id = :found RETURNING id, :found AS found, :by AS by, upper(:by) AS upper" },
]
result = "row"
body = { required = ["by"], properties = { by = { type = "string" } } }
[server]
admin = "127.0.0.1:0"
"#;

/// Names that give one identifier, and names of types that generators make themselves.
const NAMES: &str = r#"
[collections.client]
key = { field = "id", type = "string" }
[collections.get_search_result]
key = { field = "id", type = "u32" }
[[endpoints]]
route = "GET /search"
query = "SELECT id FROM client WHERE name = :name"
params = { name = "string" }
[[endpoints]]
route = "GET /get/search"
query = "SELECT id FROM client WHERE name = :name"
params = { name = "string" }
[[endpoints]]
route = "GET /get_search"
query = "SELECT id FROM client"
[[endpoints]]
route = "POST /search/{id}"
steps = [{ sql = "UPDATE client SET name = :name WHERE id = :id" }]
body = { required = ["name"], properties = { name = { type = "string" } } }
reply = {}
"#;

/// The document of a service.
fn document(file: &str) -> Value {
    let file = match file.contains("[server]") {
        true => file.replace("[server]\n", &format!("[server]\n{SERVER}\n")),
        false => format!("{file}\n[server]\n{SERVER}"),
    };
    let server = TestServer::of_file(&file).unwrap_or_else(|error| panic!("{error}"));
    let answer = match server.admin_address() {
        Some(admin) => {
            let mut client = Client::new(admin);
            client.send("GET", "/_/openapi.json", "", b"");
            client.answer(false)
        }
        None => server.get("/_/openapi.json"),
    };
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("application/json")));
    answer.json()
}

/// The target of a reference inside the document; any other value itself.
fn resolved<'d>(value: &'d Value, document: &'d Value) -> &'d Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(target) => {
            document.pointer(target.trim_start_matches('#')).unwrap_or_else(|| panic!("nothing is at {target}"))
        }
        None => value,
    }
}

/// The schema of an operation's reply.
fn reply<'d>(document: &'d Value, path: &str, method: &str, status: &str) -> &'d Value {
    let content = &document["paths"][path][method]["responses"][status]["content"];
    resolved(&content["application/json"]["schema"], document)
}

/// Every reference has a target.
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

/// Operations by method and path, as `GET /x`; each with a name of its own, and with the parameters of its path.
fn operations(document: &Value) -> BTreeSet<String> {
    let (mut found, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten().filter(|(method, _)| *method != "servers") {
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
    for file in [SHOP, TRAVELS, TOKENS] {
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
    let conflict = &order["responses"]["409"]["description"];
    assert!(conflict.as_str().is_some_and(|told| told.ends_with("; or not enough in stock")), "{conflict}");
    let order_reply = reply(&shop, "/orders", "post", "201");
    assert_eq!(order_reply["required"], json!(["id", "total"]));
    assert_eq!(order_reply["properties"], json!({ "id": { "type": "string" }, "total": { "type": "integer" } }));
    let shelf = &shop["paths"]["/shelves/{shelf}"]["get"];
    let sort = shelf["parameters"].as_array().into_iter().flatten().find(|one| one["name"] == "sort");
    assert_eq!(sort.map(|sort| &sort["schema"]["enum"]), Some(&json!(["price", "name"])));
    let named =
        |name: &str| shelf["parameters"].as_array().into_iter().flatten().find(|one| one["name"] == name).cloned();
    assert_eq!(named("limit").map(|limit| limit["schema"]["maximum"].clone()), Some(json!(100)));
    assert_eq!(named("after").map(|after| after["required"].clone()), Some(json!(false)));
    let page = reply(&shop, "/shelves/{shelf}", "get", "200");
    assert_eq!(
        (&page["required"], &page["properties"]["after"]["type"]),
        (&json!(["goods", "after"]), &json!(["string", "null"]))
    );
    let lines = &shop["paths"]["/orders/{id}/lines"]["get"]["responses"]["200"]["content"];
    assert!(lines["application/x-ndjson"].is_object() && lines["application/json"].is_object(), "{lines}");
    let customer = &shop["paths"]["/customers"]["post"];
    let taken = resolved(&customer["requestBody"]["content"]["application/json"]["schema"], &shop);
    assert_eq!(taken["required"], json!(["email", "name"]), "the key is made");
    assert_eq!(shop["components"]["schemas"]["customers"]["required"], json!(["id", "email", "name"]));
    let odd = document(ODD);
    assert_eq!(operations(&odd).iter().filter(|one| one.ends_with("/trees/{id}")).count(), 3, "one path for OpenAPI");
    assert!(odd["paths"]["/trees/{id}"]["delete"]["responses"]["404"]["content"]["text/plain"].is_object());
    let find = &odd["paths"]["/find/{depth}"]["get"];
    assert_eq!(find["parameters"][0]["schema"], json!({ "type": "integer", "minimum": 0.0, "maximum": 5.0 }));
    assert!(find["responses"]["422"].is_object());
}

#[test]
fn bodies_have_the_names_of_their_operations_and_columns_their_types() {
    let tokens = document(TOKENS);
    let schemas = &tokens["components"]["schemas"];
    let list = &tokens["paths"]["/orders"]["get"];
    let schema = &list["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], "#/components/schemas/get_orders.result");
    let rows = &schemas["get_orders.result"]["properties"]["orders"];
    assert_eq!(rows["items"]["$ref"], "#/components/schemas/get_orders.row");
    let of_field = |name: &str| json!({ "$ref": format!("#/components/schemas/orders.{name}") });
    let expected = json!({
        "id": { "type": "integer" },
        "lines": { "anyOf": [of_field("lines"), { "type": "null" }] },
        "note": { "anyOf": [of_field("note"), { "type": "null" }] },
        "paid": { "type": ["boolean", "null"] },
        "half": { "type": "number" },
        "at": { "type": ["string", "null"] },
        "count": { "type": ["integer", "null"] },
    });
    assert_eq!(schemas["get_orders.row"]["properties"], expected);
    let of_view = json!({ "paid": { "type": ["boolean", "null"] }, "orders": { "type": "integer" }, "ids": { "type": "integer" } });
    assert_eq!(schemas["get_paid_id.row"]["properties"], of_view);
    let pay = &tokens["paths"]["/orders/{id}/pay"]["post"];
    let taken = &pay["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(taken["$ref"], "#/components/schemas/post_orders_id_pay.input");
    let paid = reply(&tokens, "/orders/{id}/pay", "post", "200");
    // A result of an earlier step may be NULL, and a field of a body may be any value.
    let expected = json!({
        "id": { "type": "integer" },
        "found": { "type": ["integer", "null"] },
        "by": { "anyOf": [{ "type": "number" }, { "type": "string" }, { "type": "null" }] },
        "upper": { "type": ["string", "null"] },
    });
    assert_eq!(paid["properties"], expected);
}

#[test]
fn the_document_says_who_may_ask_and_where() {
    let tokens = document(TOKENS);
    assert_eq!(tokens["paths"]["/orders"]["get"]["security"], json!([{ "token": [] }]));
    assert_eq!(tokens["paths"]["/_/query"]["post"]["security"], json!([{ "token": [] }, {}]));
    let described = |path: &str, method: &str| tokens["paths"][path][method]["description"].to_string();
    assert!(described("/orders", "get").contains("The token must allow `orders`."));
    assert!(described("/_/query", "post").contains("A token must allow `read`."));
    assert_eq!(tokens["paths"]["/_/health"]["get"]["security"], json!([]));
    assert_eq!(tokens["paths"]["/_/query"]["servers"][0]["url"], "/");
    assert_eq!(tokens["servers"][0]["url"], "http://{host}:0", "the listener of the declared endpoints");
    assert!(tokens["paths"]["/orders"]["servers"].is_null());
    let travels = document(TRAVELS);
    assert_eq!(travels["paths"]["/users/{id}"]["get"]["security"], json!([]));
    assert_eq!(travels["servers"][0]["url"], "/");
    let put = &travels["paths"]["/_/collections/{name}/{id}"]["put"];
    assert_eq!(put["parameters"][0]["schema"]["enum"], json!(["locations", "users", "visits"]));
    assert!(put["responses"]["200"].is_object() && put["responses"]["201"].is_object(), "{put}");
}

#[test]
fn all_reasons_of_a_status_are_in_its_description() {
    let document = document(
        "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n\
         [[endpoints]]\nroute = \"POST /a/{id}\"\nsteps = [\n\
         { sql = \"SELECT id FROM items WHERE id = :id\", expect = \"rows = 1\", else = 404, detail = \"no such item\" },\n\
         { sql = \"SELECT id FROM items WHERE id = 1\", expect = \"rows = 1\", else = 404, detail = \"no first item\" },\n\
         { sql = \"SELECT id FROM items WHERE id = 2\", expect = \"rows = 1\", else = 404, detail = \"no such item\" },\n]\n",
    );
    let told = &document["paths"]["/a/{id}"]["post"]["responses"]["404"]["description"];
    assert_eq!(told, "there is no such document; or no such item; or no first item");
}

/// A file below the folder of build output.
fn built(path: &str) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    Some(target.join(path)).filter(|file| file.is_file())
}

/// A program that checks a document: its place below the folder of build output, and its arguments before the document's file.
struct Judge {
    path: &'static str,
    arguments: Vec<PathBuf>,
}

fn judges() -> [Judge; 3] {
    let rules = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linting").join(name);
    let words = |words: &[&str]| words.iter().map(PathBuf::from).collect::<Vec<PathBuf>>();
    [
        Judge { path: "openapi-validator/bin/openapi-spec-validator", arguments: words(&["--schema", "3.1"]) },
        Judge {
            path: "openapi-linters/node_modules/.bin/redocly",
            arguments: [words(&["lint", "--format=stylish", "--config"]), vec![rules("redocly.yaml")]].concat(),
        },
        Judge {
            path: "openapi-linters/node_modules/.bin/spectral",
            arguments: [words(&["lint", "--fail-severity=hint", "--ruleset"]), vec![rules("spectral.yaml")]].concat(),
        },
    ]
}

/// The output of each installed checker that finds a fault.
fn judged(document: &Value, folder: &Path) -> Vec<String> {
    let path = folder.join("openapi.json");
    std::fs::write(&path, document.to_string()).expect("a file");
    // All at once: most of their time is their start.
    let started = judges().into_iter().filter_map(|judge| {
        let mut command = Command::new(built(judge.path)?);
        command.args(judge.arguments).arg(&path).current_dir(folder);
        command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Some(command.spawn().expect("it runs"))
    });
    let started: Vec<_> = started.collect();
    let said = started.into_iter().filter_map(|judge| {
        let output = judge.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // Redocly's linter succeeds if there are only warnings.
        let warns = told.lines().any(|line| line.split_whitespace().nth(1) == Some("warning"));
        (!output.status.success() || warns).then_some(told)
    });
    said.collect()
}

/// Says which of the programs are missing, and returns them.
fn missing<'p>(paths: impl IntoIterator<Item = &'p str>) -> Vec<&'p str> {
    let missing: Vec<&str> = paths.into_iter().filter(|path| built(path).is_none()).collect();
    if !missing.is_empty() {
        // Not by `println!`, which libtest hides in passing tests: `cargo xtask test` counts this line.
        let line = format!("\nSKIPPED: not there (cargo xtask openapi installs them): {}\n", missing.join(", "));
        std::io::stdout().write_all(line.as_bytes()).expect("somebody listens");
    }
    missing
}

const GO: &str = "openapi-generators/go/bin/oapi-codegen";
const PYTHON: &str = "openapi-generators/python/bin/openapi-python-client";
const TYPESCRIPT: &str = "openapi-generators/typescript/node_modules/.bin/openapi-typescript";
/// Imports every module of the package `client`.
const IMPORT_ALL: &str = "import client, importlib, pkgutil\n\
    for module in pkgutil.walk_packages(client.__path__, 'client.'): importlib.import_module(module.name)";

/// Runs a program that should succeed.
fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {told}");
}

/// Makes a client of the document in the folder with each generator that is installed, and compiles it.
fn compile_clients(folder: &Path) {
    let document = folder.join("openapi.json");
    if let Some(generator) = built(GO) {
        let module = folder.join("go");
        std::fs::create_dir(&module).expect("a folder");
        let there = generator.ancestors().nth(2).expect("its module");
        for name in ["go.mod", "go.sum", "vendor"] {
            std::os::unix::fs::symlink(there.join(name), module.join(name)).expect("a link");
        }
        let kinds = ["-generate", "types,client", "-package", "client", "-o", "client.go"];
        succeed(Command::new(generator).args(kinds).arg(&document).current_dir(&module));
        succeed(Command::new("go").args(["build", "-mod=vendor", "."]).env("GOPROXY", "off").current_dir(&module));
    }
    if let Some(generator) = built(PYTHON) {
        let made = ["--meta", "none", "--output-path", "client"];
        let bin = generator.parent().expect("a folder").to_owned();
        // It formats its code by a program beside it.
        let path = std::env::join_paths(
            [bin.clone()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let mut generate = Command::new(generator);
        generate.arg("generate").arg("--path").arg(&document).args(made).env("PATH", path.expect("a path"));
        succeed(generate.current_dir(folder));
        succeed(Command::new(bin.join("python")).args(["-c", IMPORT_ALL]).current_dir(folder));
    }
    if let Some(generator) = built(TYPESCRIPT) {
        let compiler = generator.with_file_name("tsc");
        succeed(Command::new(generator).arg(&document).args(["-o", "client.ts"]).current_dir(folder));
        succeed(Command::new(compiler).args(["--noEmit", "--strict", "client.ts"]).current_dir(folder));
    }
}

#[test]
fn clients_that_are_made_of_the_documents_compile() {
    if missing([GO, PYTHON, TYPESCRIPT]).len() == 3 {
        return;
    }
    for file in [SHOP, ODD, TOKENS, NAMES] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("openapi.json"), document(file).to_string()).expect("a file");
        compile_clients(folder.path());
    }
}

#[test]
fn no_two_names_of_a_document_are_one_identifier() {
    let document = document(NAMES);
    let letters = |name: &str| name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let operations: Vec<String> = document["paths"]
        .as_object()
        .into_iter()
        .flat_map(|paths| paths.values())
        .flat_map(|item| item.as_object().into_iter().flat_map(|item| item.values()))
        .filter_map(|operation| operation["operationId"].as_str().map(letters))
        .collect();
    assert!(operations.len() > 10);
    assert_eq!(operations.iter().collect::<BTreeSet<_>>().len(), operations.len());
    let schemas: Vec<String> =
        document["components"]["schemas"].as_object().expect("schemas").keys().map(|name| letters(name)).collect();
    assert_eq!(schemas.iter().collect::<BTreeSet<_>>().len(), schemas.len());
    for operation in &operations {
        for taken in ["response", "params"] {
            assert!(!schemas.contains(&format!("{operation}{taken}")), "{operation}{taken}");
        }
    }
    assert!(!schemas.contains(&"client".to_owned()));
}

#[test]
fn the_documents_are_openapi() {
    let judges = judges();
    let missing = missing(judges.iter().map(|judge| judge.path));
    let folder = tempfile::tempdir().expect("a folder");
    for file in [SHOP, TRAVELS, ODD, TOKENS] {
        let said = judged(&document(file), folder.path());
        assert!(said.is_empty(), "{}", said.join("\n"));
    }
    let mut broken = document(SHOP);
    broken["paths"]["/orders"]["post"]["responses"] = json!([]);
    assert_eq!(judged(&broken, folder.path()).len() + missing.len(), judges.len(), "a judge takes anything");
}
