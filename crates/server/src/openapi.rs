//! `/_/openapi.json`: an OpenAPI 3.1 document of every endpoint, the declared ones and those of the general API.
//!
//! Made once, when the server starts, from what requests are really checked by: declared parameters, schemas of bodies and
//! collections, the columns of prepared statements. What a column holds is not said: SQL has no types.

use crate::config::{Action, EndpointConfig, PageConfig, SORT, ServiceConfig, SortConfig, Target, path_parameters};
use crate::failure::{ErrorRules, Kind};
use crate::general::door::Door;
use crate::media::Shape;
use crate::paging::{AFTER, ITEMS, LIMIT};
use docs::catalog::{Catalog, CollectionInfo};
use docs::config::{Parameter, ParameterDefault, ParameterKind, ParameterPlace, ParameterValue};
use docs::key::KeyType;
use docs::sql::PAGE_ROWS_MAX;
use http::Method;
use serde_json::{Map, Value as Json, json};

/// The columns of an endpoint's rows.
pub(crate) type Columns = Vec<String>;

/// The name of the schema of a problem document. No collection's name has a dot.
const PROBLEM: &str = "sapsan.problem";

/// Where a reference inside the document leads.
fn schema_of(name: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The document's text; `columns` are those of each endpoint's statement.
pub(crate) fn document(config: &ServiceConfig, catalog: &Catalog, columns: &[Columns]) -> String {
    let mut paths = Paths::default();
    for (number, (endpoint, columns)) in config.endpoints.iter().zip(columns).enumerate() {
        let described = Described { endpoint, number, catalog, columns, config };
        paths.add(endpoint.method, &endpoint.pattern, described.operation());
    }
    for (method, pattern, door) in Door::ALL {
        if door != Door::NotYet {
            paths.add(method, pattern, general(door, pattern));
        }
    }
    let mut schemas: Map<String, Json> =
        catalog.collections.iter().map(|info| (info.name.clone(), stored(info))).collect();
    schemas.insert(PROBLEM.to_owned(), problem_schema());
    for (number, endpoint) in config.endpoints.iter().enumerate() {
        if let Some(body) = &endpoint.body {
            schemas.insert(body_name(number), schema_text(body.schema_text(), &body_name(number)));
        }
    }
    let title = config.path.file_stem().map_or_else(|| "sapsan".into(), |name| name.to_string_lossy());
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": title, "version": "1" },
        "tags": [
            { "name": "declared", "description": "What the service's file declares" },
            { "name": "general", "description": "Every collection; for this machine and those with a token, health for everybody" },
        ],
        "paths": paths.map,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    });
    document.to_string()
}

/// Operations by path. Paths that differ in the names of their parameters alone are one to OpenAPI.
#[derive(Default)]
struct Paths {
    map: Map<String, Json>,
    ids: Vec<String>,
}

impl Paths {
    fn add(&mut self, method: Method, pattern: &str, mut operation: Json) {
        let shape = shape_of(pattern);
        let known = self.map.keys().find(|known| shape_of(known) == shape).cloned();
        let path = known.unwrap_or_else(|| pattern.to_owned());
        rename(&mut operation, pattern, &path);
        operation["operationId"] = Json::from(self.id(method, pattern));
        let item = self.map.entry(path).or_insert_with(|| json!({}));
        item[method.name().to_ascii_lowercase()] = operation;
    }

    /// A name that no other operation has.
    fn id(&mut self, method: Method, pattern: &str) -> String {
        let words = pattern.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let id = words.fold(method.name().to_ascii_lowercase(), |id, word| id + "_" + word);
        let same = self.ids.iter().filter(|known| **known == id).count();
        self.ids.push(id.clone());
        if same == 0 { id } else { format!("{id}_{}", same + 1) }
    }
}

/// A pattern without its parameters' names.
fn shape_of(pattern: &str) -> String {
    let segments = pattern.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

/// Gives the parts of an operation's path the names that another pattern of the same shape has for them.
fn rename(operation: &mut Json, pattern: &str, path: &str) {
    let parameters = operation["parameters"].as_array_mut().into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["in"] == "path") {
        let place = path_parameters(pattern).position(|name| parameter["name"] == name);
        if let Some(name) = place.and_then(|place| path_parameters(path).nth(place)) {
            parameter["name"] = Json::from(name);
        }
    }
}

/// A declared endpoint on its way into the document.
struct Described<'d> {
    endpoint: &'d EndpointConfig,
    number: usize,
    catalog: &'d Catalog,
    columns: &'d Columns,
    config: &'d ServiceConfig,
}

impl Described<'_> {
    fn operation(&self) -> Json {
        let (summary, body, (status, reply)) = self.action();
        let mut operation = json!({ "tags": ["declared"], "summary": summary, "parameters": self.parameters() });
        if let Some(schema) = body {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        let mut content = json!({ "application/json": { "schema": reply } });
        if matches!(self.endpoint.action, Action::Query { page: None, one_row: false, .. }) {
            for shape in [Shape::Lines, Shape::Csv] {
                content[shape.media()] = json!({ "schema": { "type": "string" } });
            }
        }
        if self.endpoint.scope.is_some() {
            operation["security"] = json!([{ "token": [] }]);
        }
        operation["responses"] = self.failures();
        let mut done = json!({ "description": "done", "content": content });
        if matches!(self.endpoint.action, Action::Get(_) | Action::Insert(_) | Action::Update(_) | Action::Replace(_)) {
            done["headers"] =
                json!({ "ETag": { "description": "the document's change number", "schema": { "type": "string" } } });
        }
        operation["responses"][status.to_string()] = done;
        if matches!(self.endpoint.action, Action::Get(_)) {
            operation["responses"]["304"] =
                json!({ "description": "the client has the document already (If-None-Match)" });
        }
        operation
    }

    /// What it does, the schema of its body, and status and schema of its reply.
    fn action(&self) -> (String, Option<Json>, (u16, Json)) {
        let endpoint = self.endpoint;
        let fixed = endpoint.reply.as_deref().and_then(|text| serde_json::from_str::<Json>(text).ok());
        let written = |status: u16| match &fixed {
            Some(reply) => (200, json!({ "const": reply })),
            None => (status, json!({ "type": "object" })),
        };
        match &endpoint.action {
            Action::Get(target) => {
                (format!("A document of {}", target.collection), None, (200, self.whole(&target.collection)))
            }
            Action::Insert(name) => (
                format!("Stores a new document in {name}"),
                Some(self.inserted_body(name)),
                self.inserted(name, written(201)),
            ),
            Action::Update(target) => {
                let patch = json!({ "type": "object", "description": "a merge patch (RFC 7396)" });
                (format!("Changes fields of a document of {}", target.collection), Some(patch), written(200))
            }
            Action::Replace(target) => {
                let name = &target.collection;
                (format!("Puts a document in another's place in {name}"), Some(self.whole(name)), written(200))
            }
            Action::Delete(target) => (format!("Removes a document of {}", target.collection), None, written(200)),
            Action::Query { page: Some(_), wrap, .. } => {
                let wrap = wrap.as_deref().unwrap_or(ITEMS);
                let mut reply = self.rows(false, Some(wrap));
                reply["properties"][AFTER] = json!({ "type": ["string", "null"], "description": "the cursor for the next page, if there is one" });
                reply["required"] = json!([wrap, AFTER]);
                ("A page of a query's rows".to_owned(), None, (200, reply))
            }
            Action::Query { one_row, wrap, .. } => {
                ("Rows of a query".to_owned(), None, (200, self.rows(*one_row, wrap.as_deref())))
            }
            Action::Steps { one_row, wrap, steps } => {
                let summary = format!("{} statements in one transaction", steps.len());
                let body = endpoint.body.as_ref().map(|_| schema_of(&body_name(self.number)));
                let status = endpoint.status.unwrap_or(200);
                let reply = match fixed {
                    Some(reply) => json!({ "const": reply }),
                    None if self.columns.is_empty() => json!({ "type": "object" }),
                    None => self.rows(*one_row, wrap.as_deref()),
                };
                (summary, body, (status, reply))
            }
        }
    }

    /// What an insert answers where the collection makes the key.
    fn inserted(&self, name: &str, (status, reply): (u16, Json)) -> (u16, Json) {
        match self.catalog.collection(name).filter(|info| info.key.generate.is_some()) {
            Some(info) if self.endpoint.reply.is_none() => {
                let field = info.key.field.as_str();
                (
                    status,
                    json!({ "type": "object", "required": [field], "properties": { field: key_schema(info.key.kind) } }),
                )
            }
            _ => (status, reply),
        }
    }

    fn rows(&self, one_row: bool, wrap: Option<&str>) -> Json {
        let fields: Map<String, Json> = self.columns.iter().map(|name| (name.clone(), json!({}))).collect();
        let row = json!({ "type": "object", "properties": fields, "required": self.columns });
        let rows = if one_row { row } else { json!({ "type": "array", "items": row }) };
        match wrap {
            Some(name) => json!({ "type": "object", "properties": { name: rows }, "required": [name] }),
            None => rows,
        }
    }

    fn whole(&self, name: &str) -> Json {
        if self.catalog.collection(name).is_some() { schema_of(name) } else { json!({ "type": "object" }) }
    }

    /// A document that is to be stored: its key may be left out where the collection makes it.
    fn inserted_body(&self, name: &str) -> Json {
        let generates = |info: &&CollectionInfo| info.key.generate.is_some();
        let Some(info) = self.catalog.collection(name).filter(generates) else { return self.whole(name) };
        let mut schema = stored(info);
        if let Some(required) = schema.get_mut("required").and_then(Json::as_array_mut) {
            required.retain(|field| *field != info.key.field.as_str());
        }
        schema
    }

    fn parameters(&self) -> Vec<Json> {
        let endpoint = self.endpoint;
        let of_path = path_parameters(&endpoint.pattern).map(|name| self.of_path(name));
        let of_query = endpoint.params.iter().map(|parameter| {
            let schema = parameter_schema(parameter);
            let (place, name) = match &parameter.from {
                ParameterPlace::Query => ("query", &parameter.name),
                ParameterPlace::Header(name) => ("header", name),
                ParameterPlace::Cookie(name) => ("cookie", name),
            };
            json!({ "name": name, "in": place, "required": parameter.required, "schema": schema })
        });
        let (sort, page) = match &endpoint.action {
            Action::Query { sort, page, .. } => (sort.as_slice(), *page),
            _ => (&[][..], None),
        };
        let of_page = page.into_iter().flat_map(page_parameters);
        of_path.chain(of_query).chain(sort_parameter(sort)).chain(of_page).chain(self.conditions()).collect()
    }

    /// The header fields of a conditional request.
    fn conditions(&self) -> Vec<Json> {
        let fields: &[&str] = match &self.endpoint.action {
            Action::Get(_) => &["If-None-Match", "If-Match"],
            Action::Update(_) | Action::Replace(_) | Action::Delete(_) => &["If-Match"],
            _ => &[],
        };
        let parameter =
            |name: &&str| json!({ "name": name, "in": "header", "required": false, "schema": { "type": "string" } });
        fields.iter().map(parameter).collect()
    }

    /// A part of the path: declared, or the key of the collection that it finds a document in, else text.
    fn of_path(&self, name: &str) -> Json {
        let declared = self.endpoint.path_params.iter().find(|parameter| parameter.name == name);
        let own = match &self.endpoint.action {
            Action::Get(target) | Action::Update(target) | Action::Replace(target) | Action::Delete(target) => {
                Some(target)
            }
            _ => None,
        };
        let named = |target: &&Target| target.parameter == name;
        let target = own.into_iter().chain(&self.endpoint.require).find(named);
        let kind = target.and_then(|target| Some(self.catalog.collection(&target.collection)?.key.kind));
        let schema = match (declared, kind) {
            (Some(parameter), _) => parameter_schema(parameter),
            (None, Some(kind)) => key_schema(kind),
            (None, None) => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    }

    /// The replies to what can go wrong.
    fn failures(&self) -> Json {
        let rules = &self.config.errors;
        let mut failures = json!({ "default": failure("anything else that failed", rules) });
        let mut add = |status: u16, what: &str| failures[status.to_string()] = failure(what, rules);
        let (endpoint, writes) =
            (self.endpoint, !matches!(self.endpoint.action, Action::Get(_) | Action::Query { .. }));
        let has_pages = matches!(endpoint.action, Action::Query { page: Some(_), .. });
        if writes || has_pages || !endpoint.params.is_empty() {
            add(rules.status(Kind::Invalid).0, "a parameter or the body is wrong");
        }
        if writes {
            add(rules.status(Kind::Conflict).0, "a key or unique value is in use, or the document is referred to");
        }
        if path_parameters(&endpoint.pattern).next().is_some() {
            add(rules.status(Kind::NotFound).0, "there is no such document");
        }
        if let Some(scope) = &endpoint.scope {
            add(401, "no token, or a wrong one");
            add(403, &format!("the token does not allow {scope}"));
        }
        if !self.conditions().is_empty() {
            add(Kind::PreconditionFailed.status().0, "the document has another change number");
        }
        if let Action::Steps { steps, .. } = &endpoint.action {
            for step in steps.iter().filter(|step| step.expect.is_some()) {
                add(step.otherwise, step.detail.as_deref().unwrap_or("a step's expectation does not hold"));
            }
        }
        failures
    }
}

fn failure(what: &str, rules: &ErrorRules) -> Json {
    let content = match &rules.body {
        Some(_) => json!({ "text/plain": { "schema": { "type": "string" } } }),
        None => json!({ "application/problem+json": { "schema": schema_of(PROBLEM) } }),
    };
    json!({ "description": what, "content": content })
}

fn sort_parameter(sort: &[SortConfig]) -> Option<Json> {
    let names: Vec<&str> = sort.iter().map(|way| way.name.as_str()).collect();
    let first = names.first()?;
    let schema = json!({ "type": "string", "enum": names, "default": first });
    Some(json!({ "name": SORT, "in": "query", "required": false, "schema": schema }))
}

fn page_parameters(page: PageConfig) -> [Json; 2] {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": page.max, "default": page.limit });
    let after = json!({ "type": "string", "minLength": 1 });
    let parameter = |name: &str, what: &str, schema: Json| json!({ "name": name, "in": "query", "required": false, "description": what, "schema": schema });
    [
        parameter(LIMIT, "rows of the page", limit),
        parameter(AFTER, "the cursor that the page before came with; without it the first page", after),
    ]
}

fn parameter_schema(parameter: &Parameter) -> Json {
    let kind = match parameter.kind {
        ParameterKind::Integer => "integer",
        ParameterKind::Number => "number",
        ParameterKind::Text => "string",
        ParameterKind::Boolean => "boolean",
    };
    let mut schema = json!({ "type": kind });
    if !parameter.values.is_empty() {
        schema["enum"] = parameter.values.iter().map(json_of).collect();
    }
    for (name, bound) in [("minimum", parameter.min), ("maximum", parameter.max)] {
        if let Some(bound) = bound {
            schema[name] = Json::from(bound);
        }
    }
    if let ParameterDefault::Value(value) = &parameter.default {
        schema["default"] = json_of(value);
    }
    schema
}

fn json_of(value: &ParameterValue) -> Json {
    match value {
        ParameterValue::Integer(integer) => Json::from(*integer),
        ParameterValue::Number(number) => Json::from(*number),
        ParameterValue::Text(text) => Json::from(text.as_str()),
        ParameterValue::Boolean(boolean) => Json::from(*boolean),
    }
}

fn key_schema(kind: KeyType) -> Json {
    match kind {
        KeyType::U32 => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        KeyType::I64 => json!({ "type": "integer", "format": "int64" }),
        KeyType::String => json!({ "type": "string", "minLength": 1 }),
    }
}

/// The schema of a collection's documents that is in force.
fn stored(info: &CollectionInfo) -> Json {
    match &info.schema {
        Some(text) => schema_text(text, &info.name),
        None => json!({ "type": "object" }),
    }
}

/// A schema's text as part of the document, where it stands under a name: what it refers to in itself is sought there.
fn schema_text(text: &str, name: &str) -> Json {
    let mut schema: Json = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
    move_references(&mut schema, name);
    schema
}

fn move_references(schema: &mut Json, name: &str) {
    match schema {
        Json::Object(fields) => {
            if let Some(Json::String(target)) = fields.get_mut("$ref")
                && let Some(inside) = target.strip_prefix('#')
            {
                *target = format!("#/components/schemas/{name}{inside}");
            }
            fields.values_mut().for_each(|value| move_references(value, name));
        }
        Json::Array(items) => items.iter_mut().for_each(|value| move_references(value, name)),
        _ => {}
    }
}

/// The name of the schema of an endpoint's body. No collection's name has a dot.
fn body_name(number: usize) -> String {
    format!("body.{number}")
}

fn problem_schema() -> Json {
    json!({
        "type": "object",
        "description": "RFC 9457",
        "required": ["title", "status"],
        "properties": {
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" },
        },
    })
}

/// An operation of the general API.
fn general(door: Door, pattern: &str) -> Json {
    let (summary, status, media, takes) = match door {
        Door::GetDocument => ("A document, its change number as ETag", 200, "application/json", None),
        Door::PutDocument => ("Stores a document under its key", 200, "application/json", Some("application/json")),
        Door::PatchDocument => {
            ("Merges a patch (RFC 7396) into a document", 200, "application/json", Some("application/json"))
        }
        Door::DeleteDocument => ("Removes a document", 204, "", None),
        Door::InsertDocument => {
            ("Stores a new document; Location says where", 201, "application/json", Some("application/json"))
        }
        Door::ListDocuments => ("Documents in order of key, a page at a time", 200, "application/json", None),
        Door::Bulk => (
            "Stores many documents, one a line; a line out for each that failed",
            200,
            "application/x-ndjson",
            Some("application/x-ndjson"),
        ),
        Door::Query => ("Runs one SQL statement", 200, "application/json", Some("application/json")),
        Door::Metrics => ("Metrics in the text format of Prometheus", 200, "text/plain", None),
        Door::Health => ("Whether writes are taken", 200, "application/json", None),
        Door::MakeBackup => ("Copies the data while it is served", 200, "application/json", Some("application/json")),
        Door::TellBackup => ("How far the backup is", 200, "application/json", None),
        Door::ListViews => ("The views and how far they are built", 200, "application/json", None),
        Door::TellView => ("One view", 200, "application/json", None),
        Door::VerifyView => ("Computes a view again and compares", 200, "application/json", None),
        Door::OpenApi => ("This document", 200, "application/json", None),
        Door::Changes => ("Changes since a version, as lines or events", 200, "application/x-ndjson", None),
        _ => ("A part of the general API", 200, "application/json", None),
    };
    let path = path_parameters(pattern);
    let mut parameters: Vec<Json> = path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }))
        .collect();
    if door == Door::ListDocuments {
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1000 });
        parameters.push(json!({ "name": "after", "in": "query", "required": false, "schema": { "type": "string" } }));
        parameters.push(json!({ "name": "limit", "in": "query", "required": false, "schema": limit }));
    }
    let mut done = json!({ "description": "done" });
    if !media.is_empty() {
        let schema = if media == "application/json" { json!({}) } else { json!({ "type": "string" }) };
        done["content"] = json!({ media: { "schema": schema } });
    }
    let responses = json!({ status.to_string(): done, "default": failure("what failed", &ErrorRules::default()) });
    let mut operation =
        json!({ "tags": ["general"], "summary": summary, "parameters": parameters, "responses": responses });
    if let Some(media) = takes {
        operation["requestBody"] = json!({ "required": true, "content": { media: { "schema": taken(door) } } });
    }
    operation
}

/// The schema of what an operation of the general API takes.
fn taken(door: Door) -> Json {
    match door {
        Door::Query => json!({
            "type": "object",
            "required": ["sql"],
            "additionalProperties": false,
            "properties": {
                "sql": { "type": "string" },
                "params": { "type": "object" },
                "limit": { "type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX },
                "after": { "type": ["string", "null"] },
            },
        }),
        Door::Bulk => json!({ "type": "string" }),
        _ => json!({ "type": "object" }),
    }
}
