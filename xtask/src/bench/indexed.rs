//! A declared query that finds one document by an indexed field, over HTTP, compared with a minimal program that sends the same
//! bytes.
//!
//! A million documents of about 130 bytes; the field's values are scattered over the keys, so consecutive requests do not read
//! neighbours.

use super::http;
use super::setup::process::{Server, free_address};
use super::setup::results::Row;
use super::setup::stage::Stage;
use crate::tools;
use std::fmt::Write;
use std::process::Command;

const DOCUMENTS: u64 = 1_000_000;
/// Coprime to the number of documents: `id * STEP` modulo it takes each value once.
const STEP: u64 = 387_420_489;
const CPU_MOST: f64 = 1.15;
const SAMPLE: &[&str] = &["/items?number=17", "/items?number=444444", "/items?number=987654"];

const CONFIG: &str = r#"
[collections.items]
key = { field = "id", type = "u32" }
indexes = [["number"]]
[collections.items.schema]
type = "object"
additionalProperties = false
required = ["id", "number", "name", "state", "price", "stock"]
[collections.items.schema.properties]
id = { type = "integer", minimum = 0, maximum = 4294967295 }
number = { type = "integer", minimum = 0, maximum = 4294967295 }
name = { type = "string", maxLength = 80 }
state = { enum = ["new", "used"] }
price = { type = "integer", minimum = 0, maximum = 4294967295 }
stock = { type = "integer", minimum = 0, maximum = 4294967295 }

[[endpoints]]
route = "GET /items"
result = "row"
query = "SELECT id, number, name, state, price, stock FROM items WHERE number = :number"
[endpoints.params]
number = { type = "integer", required = true }
"#;

/// Loads the documents and measures the query.
pub(super) fn one_row(stage: &Stage) -> Result<Row, String> {
    let file = |name: &str, text: &str| {
        let path = stage.folder.path().join(name);
        std::fs::write(&path, text).map(|()| path).map_err(|error| format!("{name}: {error}"))
    };
    let (config, items) = (file("items.toml", CONFIG)?, file("items.ndjson", &documents())?);
    let data = stage.folder.path().join("items");
    let mut import = Command::new(&stage.sapsan);
    import.arg("import").arg(&config).args(["--collection", "items"]).arg(&items).arg("--data").arg(&data);
    tools::run_with(&mut import)?;
    let address = free_address()?;
    let (config, data) = (config.display().to_string(), data.display().to_string());
    let (at, threads) = (address.to_string(), stage.cores.threads.to_string());
    let arguments = ["serve", &config, "--data", &data, "--http", &at, "--threads", &threads].map(str::to_owned);
    let server = Server::start(&stage.cores.server, &stage.sapsan, &arguments, address)?;
    let make = "function make() return wrk.format('GET', '/items?number=' .. math.random(0, 999999)) end";
    let name = "indexed query for one row of a million, over HTTP, 64 connections";
    http::beside_floor(stage, &server, (name, make), SAMPLE, CPU_MOST)
}

fn documents() -> String {
    let mut text = String::new();
    for id in 0..DOCUMENTS {
        let (number, state) = (id * STEP % DOCUMENTS, if id % 3 == 0 { "used" } else { "new" });
        let _ = writeln!(
            text,
            r#"{{"id":{id},"number":{number},"name":"Armchair of the model {id:07} in walnut and green felt","state":"{state}","price":{},"stock":{}}}"#,
            1_000 + number % 90_000,
            id % 50,
        );
    }
    text
}
