//! The operations of the general API.

use super::schemas::schema_of;
use super::{Schemas, failures, token};
use crate::config::path_parameters;
use crate::failure::ErrorRules;
use crate::general::operation::Operation;
use docs::catalog::Catalog;
use docs::sql::PAGE_ROWS_MAX;
use serde_json::{Value as Json, json};

/// Schemas of bodies. The dots distinguish them from collections.
const DOCUMENT: &str = "sapsan.document";
const PAGE: &str = "sapsan.documents";
const STATEMENT: &str = "sapsan.statement";
const RESULT: &str = "sapsan.result";
const ROW: &str = "sapsan.row";
const HEALTH: &str = "sapsan.health";
const BACKUP: &str = "sapsan.backup";

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// Summary and description of an operation, for readers of the document.
fn texts(operation: Operation) -> (&'static str, &'static str) {
    match operation {
        Operation::GetDocument => {
            ("A document", "Answers with the document that has this key; its change number is the ETag.")
        }
        Operation::PutDocument => {
            ("Stores a document under its key", "Stores the body under this key, whether or not there was a document.")
        }
        Operation::PatchDocument => {
            ("Changes a document", "Changes the document with this key by a merge patch (RFC 7396).")
        }
        Operation::DeleteDocument => ("Removes a document", "Removes the document with this key."),
        Operation::InsertDocument => {
            ("Stores a new document", "Stores the body as a new document; the field Location says where it is.")
        }
        Operation::ListDocuments => {
            ("Documents by pages", "Answers with documents in the order of their keys, until `after` is null.")
        }
        Operation::Bulk => (
            "Stores many documents",
            "Stores new documents, one a line, each in a transaction of its own; answers with a line for each refused one.",
        ),
        Operation::Query => (
            "Runs one SQL statement",
            "Answers with the rows of a SELECT, or with the number of documents that INSERT, UPDATE or DELETE changed.",
        ),
        Operation::Metrics => ("Metrics", "Answers with numbers in Prometheus's text format."),
        Operation::Health => ("Whether writes are taken", "Answers everybody: 200 while writes are taken, else 503."),
        Operation::MakeBackup => {
            ("Makes a backup", "Copies the data while it is served; answers when the copy is on disk.")
        }
        Operation::GetBackup => {
            ("The state of the backup", "Answers whether a backup is being made, and how far it is.")
        }
        Operation::ListViews => ("The views", "Answers with the views and how far they are built."),
        Operation::GetView => ("One view", "Answers with how far the view is built."),
        Operation::VerifyView => ("Verifies a view", "Computes the view again and answers with the rows that differ."),
        Operation::OpenApi => ("This document", "Answers with the description of every endpoint."),
        Operation::Changes => (
            "The feed of changes",
            "Answers with the changes after a change number, and with those that come, without end.",
        ),
        Operation::Schema => {
            ("The collections", "Answers with the collections, their indexes, and how far new rules are.")
        }
        Operation::Reload => ("Reads the file again", "Takes collections, views and endpoints of the changed file."),
        Operation::NotYet => ("Nothing yet", "This part of the API is not supported yet."),
    }
}

pub(super) fn describe(operation: Operation, pattern: &str, catalog: &Catalog) -> Json {
    let (summary, description) = texts(operation);
    let (description, security) = match operation {
        Operation::Health => (description.to_owned(), json!([])),
        // A client on the same machine needs no token.
        _ => (format!("{description} A token must allow `{}`.", operation.scope()), json!([token(), {}])),
    };
    let mut responses = failures(&ErrorRules::default());
    for (status, what, content) in replies(operation) {
        responses[status] = json!({ "description": what });
        if !content.is_null() {
            responses[status]["content"] = content;
        }
    }
    let mut described = json!({
        "tags": ["general"],
        "summary": summary,
        "description": description,
        "parameters": parameters(operation, pattern, catalog),
        "responses": responses,
        "security": security,
    });
    if let Some(content) = request(operation) {
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn parameters(operation: Operation, pattern: &str, catalog: &Catalog) -> Vec<Json> {
    let parameter = |name: &str, place: &str, what: &str, schema: Json| json!({ "name": name, "in": place, "required": place == "path", "description": what, "schema": schema });
    let collections: Vec<&str> = catalog.collections.iter().map(|info| info.name.as_str()).collect();
    let views: Vec<&str> = catalog.views.iter().map(|info| info.name.as_str()).collect();
    let one_of = |names: &[&str]| match names {
        [] => json!({ "type": "string" }),
        names => json!({ "type": "string", "enum": names }),
    };
    let of_path = path_parameters(pattern).map(|name| match (name, operation) {
        ("name", Operation::GetView | Operation::VerifyView) => parameter(name, "path", "the view", one_of(&views)),
        ("name", _) => parameter(name, "path", "the collection", one_of(&collections)),
        _ => parameter(name, "path", "the document's key", json!({ "type": "string", "minLength": 1 })),
    });
    let mut all: Vec<Json> = of_path.collect();
    let mut query = |name: &str, what: &str, schema: Json| all.push(parameter(name, "query", what, schema));
    match operation {
        Operation::ListDocuments => {
            query("after", "the `after` of the page before; without it the first page", json!({ "type": "string" }));
            query("limit", "documents of the page", json!({ "type": "integer", "minimum": 1, "maximum": 1000 }));
        }
        Operation::Changes => {
            query("since", "a change number, behind which to begin; without it now", json!({ "type": "string" }));
            query("collection", "the one collection that is wanted", one_of(&collections));
        }
        _ => {}
    }
    all
}

/// A body of JSON.
fn json_of(schema: &Json) -> Json {
    json!({ JSON: { "schema": schema } })
}

/// Bodies without a schema: text.
fn text_of(media: &[&str]) -> Json {
    media.iter().map(|media| ((*media).to_owned(), json!({ "schema": { "type": "string" } }))).collect()
}

/// Statuses of success, with description and body.
fn replies(operation: Operation) -> Vec<(&'static str, &'static str, Json)> {
    let object = json!({ "type": "object" });
    let done = |schema: &Json| vec![("200", "done", json_of(schema))];
    match operation {
        Operation::GetDocument => vec![("200", "the document", json_of(&schema_of(DOCUMENT)))],
        Operation::PutDocument => {
            vec![("200", "replaced a document", json_of(&object)), ("201", "stored a new one", json_of(&object))]
        }
        Operation::InsertDocument => vec![("201", "stored", json_of(&object))],
        Operation::DeleteDocument => vec![("204", "removed", Json::Null)],
        Operation::ListDocuments => vec![("200", "a page", json_of(&schema_of(PAGE)))],
        Operation::Query => {
            let mut content = json_of(&schema_of(RESULT));
            for media in [LINES, "text/csv"] {
                content[media] = json!({ "schema": { "type": "string" } });
            }
            vec![("200", "the result", content)]
        }
        Operation::Bulk => vec![("200", "the refused documents", text_of(&[LINES]))],
        Operation::Metrics => vec![("200", "the metrics", text_of(&["text/plain"]))],
        Operation::Changes => vec![("200", "the changes", text_of(&[LINES, "text/event-stream"]))],
        Operation::Health => vec![("200", "writes are taken", json_of(&schema_of(HEALTH)))],
        Operation::ListViews => done(&json!({ "type": "array", "items": object })),
        _ => done(&object),
    }
}

/// The body that an operation takes.
fn request(operation: Operation) -> Option<Json> {
    match operation {
        Operation::PutDocument | Operation::InsertDocument => Some(json_of(&schema_of(DOCUMENT))),
        Operation::PatchDocument => Some(json_of(&json!({ "type": "object" }))),
        Operation::Query => Some(json_of(&schema_of(STATEMENT))),
        Operation::MakeBackup => Some(json_of(&schema_of(BACKUP))),
        Operation::Bulk => Some(text_of(&[LINES])),
        _ => None,
    }
}

/// The schemas of the bodies.
pub(super) fn schemas(catalog: &Catalog) -> Schemas {
    let documents: Vec<Json> = catalog.collections.iter().map(|info| schema_of(&info.name)).collect();
    let document = match &documents[..] {
        [] => json!({ "type": "object" }),
        [one] => one.clone(),
        _ => json!({ "description": "A document of one of the collections", "anyOf": documents }),
    };
    let row = schema_of(ROW);
    let rows = json!({ "type": "array", "items": row });
    let page_of = |items: &Json| {
        let properties = json!({ "items": { "type": "array", "items": items }, "after": {} });
        json!({ "type": "object", "required": ["items", "after"], "properties": properties })
    };
    let changed = json!({
        "type": "object",
        "required": ["changed"],
        "properties": { "changed": { "type": "integer" }, "rows": rows },
    });
    let statement = json!({
        "type": "object",
        "required": ["sql"],
        "additionalProperties": false,
        "properties": {
            "sql": { "type": "string" },
            "params": { "type": "object" },
            "limit": { "type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX },
            "after": { "type": ["string", "null"] },
        },
    });
    let health = json!({
        "type": "object",
        "required": ["status"],
        "properties": { "status": { "type": "string", "enum": ["ok", "damaged", "impaired"] } },
    });
    let backup = json!({
        "type": "object",
        "required": ["to"],
        "additionalProperties": false,
        "properties": { "to": { "type": "string", "description": "the name of the backup" } },
    });
    let all = [
        (DOCUMENT, document),
        (PAGE, page_of(&schema_of(DOCUMENT))),
        (STATEMENT, statement),
        (ROW, json!({ "type": "object" })),
        (RESULT, json!({ "anyOf": [rows, page_of(&row), changed] })),
        (HEALTH, health),
        (BACKUP, backup),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
