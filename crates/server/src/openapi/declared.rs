//! A declared endpoint as an operation of the document.

use super::schemas::{
    column_schema, fixed_value, key_schema, named, page_parameters, parameter_schema, schema_of, schema_text,
    sort_parameter,
};
use super::{Columns, Schemas, failure, failures, token};
use crate::config::{AFTER, Action, DocumentTarget, EndpointConfig, ServiceConfig, StepConfig, path_parameters};
use crate::failure::FailureKind;
use crate::replies::media::RowFormat;
use crate::statements::paging::ITEMS;
use docs::catalog::{Catalog, CollectionInfo};
use docs::config::ParameterPlace;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// A declared endpoint while its operation is made.
pub(super) struct Described<'d> {
    pub(super) endpoint: &'d EndpointConfig,
    /// The operation's name.
    pub(super) id: &'d str,
    pub(super) catalog: &'d Catalog,
    pub(super) columns: &'d Columns,
    pub(super) config: &'d ServiceConfig,
}

impl Described<'_> {
    /// The operation; schemas of its bodies that have no name yet get one.
    pub(super) fn operation(&self, schemas: &mut Schemas) -> Json {
        if matches!(self.endpoint.action, Action::Files(_)) {
            return self.file_operation();
        }
        let (summary, body, (status, reply)) = self.action(schemas);
        let security = self.endpoint.scope.as_ref().map(|_| token());
        let mut operation = json!({
            "tags": ["declared"],
            "summary": summary,
            "description": self.description(),
            "parameters": self.parameters(),
            "security": security.into_iter().collect::<Vec<Json>>(),
        });
        if let Some(schema) = body {
            let schema = named(format!("{}.input", self.id), schema, schemas);
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        let reply = named(format!("{}.result", self.id), reply, schemas);
        let mut content = json!({ "application/json": { "schema": reply } });
        if matches!(self.endpoint.action, Action::Query { page: None, one_row: false, .. }) {
            for shape in [RowFormat::Lines, RowFormat::Csv] {
                content[shape.media()] = json!({ "schema": { "type": "string" } });
            }
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

    /// The operation of an endpoint that serves files: its replies are not JSON.
    fn file_operation(&self) -> Json {
        let security = self.endpoint.scope.as_ref().map(|_| token());
        let mut operation = json!({
            "tags": ["declared"],
            "summary": "A file of a folder",
            "description": self.description(),
            "parameters": self.parameters(),
            "security": security.into_iter().collect::<Vec<Json>>(),
            "responses": self.failures(),
        });
        let file = json!({ "*/*": { "schema": { "type": "string", "format": "binary" } } });
        operation["responses"]["200"] = json!({ "description": "the file", "content": file });
        operation["responses"]["206"] = json!({ "description": "the range that was asked for", "content": file });
        operation["responses"]["304"] = json!({ "description": "the client has the file already (If-None-Match)" });
        operation["responses"]["416"] = json!({ "description": "the file has no such range" });
        operation
    }

    /// A description of the endpoint, in sentences.
    fn description(&self) -> String {
        let mut text = match &self.endpoint.action {
            Action::Get(target) => {
                let DocumentTarget { collection, parameter } = target;
                format!("Answers with the document of `{collection}` whose key is `{{{parameter}}}`.")
            }
            Action::Insert(collection) => format!("Stores the body as a new document of `{collection}`."),
            Action::Update(DocumentTarget { collection, parameter }) => format!(
                "Changes the document of `{collection}` whose key is `{{{parameter}}}` by a merge patch (RFC 7396)."
            ),
            Action::Replace(DocumentTarget { collection, parameter }) => {
                format!(
                    "Stores the body in the place of the document of `{collection}` whose key is `{{{parameter}}}`."
                )
            }
            Action::Delete(DocumentTarget { collection, parameter }) => {
                format!("Removes the document of `{collection}` whose key is `{{{parameter}}}`.")
            }
            Action::Query { page: Some(_), .. } => "Answers with one page of a query's rows.".to_owned(),
            Action::Query { one_row: true, .. } => "Answers with the first row of a query.".to_owned(),
            Action::Query { .. } => "Answers with the rows of a query.".to_owned(),
            Action::Steps { steps, .. } if self.statements(steps) == 1 => "Runs one statement.".to_owned(),
            Action::Files(_) => "Answers with a file of a folder: the rest of the path is its name.".to_owned(),
            Action::Steps { .. } => "Runs several statements in one transaction: all of them, or none.".to_owned(),
        };
        if let Some(DocumentTarget { collection, parameter }) = &self.endpoint.require {
            text += &format!(" A document of `{collection}` with the key `{{{parameter}}}` must exist.");
        }
        if let Some(scope) = &self.endpoint.scope {
            text += &format!(" The token must allow `{scope}`.");
        }
        if let Some(guard) = &self.endpoint.guard {
            text += &format!(" The guard `{}` must admit the request.", guard.name);
        }
        text
    }

    /// Number of the steps' statements, without the guard.
    fn statements(&self, steps: &[StepConfig]) -> usize {
        steps.len() - usize::from(self.endpoint.guard.is_some())
    }

    /// Summary, schema of the body, and status and schema of the reply.
    fn action(&self, schemas: &mut Schemas) -> (String, Option<Json>, (u16, Json)) {
        let endpoint = self.endpoint;
        let fixed = endpoint.reply.as_deref().and_then(|text| serde_json::from_str::<Json>(text).ok());
        let written = |status: u16| match &fixed {
            Some(reply) => (200, fixed_value(reply)),
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
                let mut reply = self.rows(false, Some(wrap), schemas);
                reply["properties"][AFTER] = json!({ "type": ["string", "null"], "description": "the cursor for the next page, if there is one" });
                reply["required"] = json!([wrap, AFTER]);
                ("A page of a query's rows".to_owned(), None, (200, reply))
            }
            Action::Query { one_row, wrap, .. } => {
                ("Rows of a query".to_owned(), None, (200, self.rows(*one_row, wrap.as_deref(), schemas)))
            }
            Action::Files(_) => ("A file of a folder".to_owned(), None, (200, json!({}))),
            Action::Steps { one_row, wrap, steps } => {
                let summary = match self.statements(steps) {
                    1 => "One statement".to_owned(),
                    count => format!("{count} statements in one transaction"),
                };
                let name = format!("{}.input", self.id);
                let body = endpoint.body.as_ref().map(|body| schema_text(body.schema_text(), &name));
                let status = endpoint.status.unwrap_or(200);
                let reply = match fixed {
                    Some(reply) => fixed_value(&reply),
                    None if self.columns.is_empty() => json!({ "type": "object" }),
                    None => self.rows(*one_row, wrap.as_deref(), schemas),
                };
                (summary, body, (status, reply))
            }
        }
    }

    /// The reply to an insert if the collection generates the key.
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

    fn rows(&self, one_row: bool, wrap: Option<&str>, schemas: &mut Schemas) -> Json {
        let fields = self.columns.iter().map(|column| (column.name.clone(), column_schema(column, self.catalog)));
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let row = json!({ "type": "object", "properties": fields.collect::<Map<String, Json>>(), "required": names });
        let rows = match (one_row, wrap) {
            (true, None) => return row,
            (true, Some(_)) => named(format!("{}.row", self.id), row, schemas),
            (false, _) => json!({ "type": "array", "items": named(format!("{}.row", self.id), row, schemas) }),
        };
        match wrap {
            Some(name) => json!({ "type": "object", "properties": { name: rows }, "required": [name] }),
            None => rows,
        }
    }

    fn whole(&self, name: &str) -> Json {
        if self.catalog.collection(name).is_some() { schema_of(name) } else { json!({ "type": "object" }) }
    }

    /// A document to be stored: its key may be left out if the collection generates it.
    fn inserted_body(&self, name: &str) -> Json {
        let generates = |info: &&CollectionInfo| info.key.generate.is_some();
        let Some(info) = self.catalog.collection(name).filter(generates) else { return self.whole(name) };
        let mut schema = match &info.schema {
            Some(text) => schema_text(text, &format!("{}.input", self.id)),
            None => json!({ "type": "object" }),
        };
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
            Action::Files(_) => &["If-None-Match", "Range"],
            _ => &[],
        };
        let parameter =
            |name: &&str| json!({ "name": name, "in": "header", "required": false, "schema": { "type": "string" } });
        fields.iter().map(parameter).collect()
    }

    /// A path parameter: declared, or the key of the collection in which it finds a document, otherwise text.
    fn of_path(&self, name: &str) -> Json {
        let declared = self.endpoint.path_params.iter().find(|parameter| parameter.name == name);
        let own = match &self.endpoint.action {
            Action::Get(target) | Action::Update(target) | Action::Replace(target) | Action::Delete(target) => {
                Some(target)
            }
            _ => None,
        };
        let named = |target: &&DocumentTarget| target.parameter == name;
        let target = own.into_iter().chain(&self.endpoint.require).find(named);
        let kind = target.and_then(|target| Some(self.catalog.collection(&target.collection)?.key.kind));
        let schema = match (declared, kind) {
            (Some(parameter), _) => parameter_schema(parameter),
            (None, Some(kind)) => key_schema(kind),
            (None, None) => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    }

    /// The replies for failures.
    fn failures(&self) -> Json {
        let rules = &self.config.errors;
        let mut failures = failures(rules);
        let mut described: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        let mut add = |status: u16, what: &str| {
            let of_status = described.entry(status).or_default();
            if !of_status.iter().any(|known| known == what) {
                of_status.push(what.to_owned());
            }
        };
        let (endpoint, writes) =
            (self.endpoint, !matches!(self.endpoint.action, Action::Get(_) | Action::Query { .. } | Action::Files(_)));
        let has_pages = matches!(endpoint.action, Action::Query { page: Some(_), .. });
        if writes || has_pages || !endpoint.params.is_empty() {
            add(rules.status(FailureKind::Invalid).0, "a parameter or the body is wrong");
        }
        if writes {
            add(
                rules.status(FailureKind::Conflict).0,
                "a key or unique value is in use, or the document is referred to",
            );
        }
        if path_parameters(&endpoint.pattern).next().is_some() {
            let is_file = matches!(endpoint.action, Action::Files(_));
            add(
                rules.status(FailureKind::NotFound).0,
                if is_file { "there is no such file" } else { "there is no such document" },
            );
        }
        if let Some(guard) = &endpoint.guard {
            add(guard.otherwise, &guard.detail);
        }
        if let Some(scope) = &endpoint.scope {
            add(401, "no token, or a wrong one");
            add(403, &format!("the token does not allow {scope}"));
        }
        if !self.conditions().is_empty() && !matches!(endpoint.action, Action::Files(_)) {
            add(FailureKind::PreconditionFailed.status().0, "the document has another change number");
        }
        if let Action::Steps { steps, .. } = &endpoint.action {
            for step in steps.iter().filter(|step| step.expect.is_some()) {
                add(step.otherwise, step.detail.as_deref().unwrap_or("a step's expectation does not hold"));
            }
        }
        for (status, what) in described {
            failures[status.to_string()] = failure(&what.join("; or "), rules);
        }
        failures
    }
}
