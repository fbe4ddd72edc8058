//! `/_/openapi.json`: an OpenAPI 3.1 document of every endpoint, the declared ones and those of the general API.
//!
//! Made when the server starts and when its file is read again, from the data by which requests are checked: declared parameters,
//! schemas of bodies and collections, the columns of prepared statements with their inferred types.
//!
//! Bodies of requests and replies are under `components/schemas` by the name of their operation: `post_orders.input`,
//! `post_orders.result`, and `.row` for the items of a list. Names of collections have no dots.
//!
//! It may import `config`, `failure`, `replies` (media types), `statements` (the names in pages) and the routes of `general`.

mod declared;
mod general;
mod names;
mod schemas;

use crate::config::{AdminListener, ServerConfig, ServiceConfig, path_parameters};
use crate::failure::ErrorRules;
use crate::general::operation::Operation;
use declared::Described;
use docs::catalog::Catalog;
use docs::sql::ColumnType;
use http::Method;
pub(crate) use schemas::parameter_types as types_of;
use schemas::{PROBLEM, schema_of};
use serde_json::{Map, Value as Json, json};

/// The columns of an endpoint's rows.
pub(crate) type Columns = Vec<ColumnType>;

/// The named schemas of the document.
type Schemas = Map<String, Json>;

/// The document's text; `columns` are those of each endpoint's statement.
pub(crate) fn document(config: &ServiceConfig, catalog: &Catalog, columns: &[Columns]) -> String {
    let (mut paths, mut schemas) = (Paths::default(), Schemas::new());
    for (endpoint, columns) in config.endpoints.iter().zip(columns) {
        // OpenAPI has no parameter for the rest of a path: a description must mention the slashes.
        let pattern = &endpoint.pattern.replace("{*", "{");
        let id = paths.id(endpoint.method, pattern);
        let operation = Described { endpoint, id: &id, catalog, columns, config }.operation(&mut schemas);
        paths.add((endpoint.method, pattern), id, operation);
    }
    for (method, pattern, operation) in Operation::ALL {
        if operation != Operation::NotYet {
            let id = paths.id(method, pattern);
            paths.add((method, pattern), id, general::describe(operation, pattern, catalog));
        }
    }
    schemas.extend(catalog.collections.iter().map(|info| (info.name.clone(), schemas::stored(info))));
    schemas.extend(general::schemas(catalog));
    schemas.insert(PROBLEM.to_owned(), schemas::problem());
    let title = config.path.file_stem().map_or_else(|| "sapsan".into(), |name| name.to_string_lossy());
    let (servers, own) = servers(&config.server);
    if let Some(own) = own {
        paths.serve_general_by(&own);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": "1",
            "description": "The endpoints that the service's file declares, and Sapsan's general API for all of its data.",
        },
        "servers": servers,
        "tags": [
            { "name": "declared", "description": "The endpoints that the service's file declares" },
            { "name": "general", "description": "The general API: for clients on the same machine and for those with a token" },
        ],
        "security": [],
        "paths": std::mem::take(&mut paths.map),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of the file's `[tokens]`" },
            },
        },
    });
    names::lift(&mut document);
    names::separate(&mut document, &paths.ids);
    document.to_string()
}

/// The servers of the declared endpoints and of the general API, if that has another one. The document is sent by the general
/// API's listener, so an address relative to the document is right however a client reached it.
fn servers(config: &ServerConfig) -> (Json, Option<Json>) {
    let here = |description: &str| json!([{ "url": "/", "description": description }]);
    match &config.admin {
        AdminListener::Address(_) | AdminListener::Unix(_) => {
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            let url = format!("{scheme}://{{host}}:{}", config.http.port());
            let host = if config.http.ip().is_unspecified() { "localhost".to_owned() } else { host_of(config) };
            let variables = json!({ "host": { "default": host, "description": "The server's machine" } });
            let declared = json!([{ "url": url, "description": "The declared endpoints", "variables": variables }]);
            (declared, Some(here("The general API")))
        }
        AdminListener::Http | AdminListener::Off => (here("The server that sent this document"), None),
    }
}

/// The address of the listener as in a URL.
fn host_of(config: &ServerConfig) -> String {
    let ip = config.http.ip();
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

/// Operations by path. To OpenAPI, paths that differ only in the names of their parameters are the same.
#[derive(Default)]
struct Paths {
    map: Map<String, Json>,
    names: names::Names,
    ids: Vec<String>,
}

impl Paths {
    fn add(&mut self, (method, pattern): (Method, &str), id: String, mut operation: Json) {
        let shape = shape_of(pattern);
        let known = self.map.keys().find(|known| shape_of(known) == shape).cloned();
        let path = known.unwrap_or_else(|| pattern.to_owned());
        rename(&mut operation, pattern, &path);
        operation["operationId"] = Json::from(id);
        let item = self.map.entry(path).or_insert_with(|| json!({}));
        item[method.name().to_ascii_lowercase()] = operation;
    }

    /// Marks the paths of the general API as served by another listener.
    fn serve_general_by(&mut self, servers: &Json) {
        let general = self.map.iter_mut().filter(|(path, _)| path.starts_with("/_/"));
        general.for_each(|(_, item)| item["servers"] = servers.clone());
    }

    /// A name that no other operation has, in any spelling.
    fn id(&mut self, method: Method, pattern: &str) -> String {
        let words = pattern.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let id = words.fold(method.name().to_ascii_lowercase(), |id, word| id + "_" + word);
        let id = self.names.take(id);
        self.ids.push(id.clone());
        id
    }
}

/// A pattern without its parameters' names.
fn shape_of(pattern: &str) -> String {
    let segments = pattern.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

/// Renames the parameters of an operation's path to those of another pattern of the same shape.
fn rename(operation: &mut Json, pattern: &str, path: &str) {
    let parameters = operation["parameters"].as_array_mut().into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["in"] == "path") {
        let place = path_parameters(pattern).position(|name| parameter["name"] == name);
        if let Some(name) = place.and_then(|place| path_parameters(path).nth(place)) {
            parameter["name"] = Json::from(name);
        }
    }
}

/// The failure replies of any operation.
fn failures(rules: &ErrorRules) -> Json {
    json!({ "4XX": failure("the request is refused", rules), "default": failure("anything else that failed", rules) })
}

/// An entry of `security` for a token. The scope is in the description: linters know only scopes of OAuth 2.
fn token() -> Json {
    json!({ "token": [] })
}

fn failure(what: &str, rules: &ErrorRules) -> Json {
    let content = match &rules.body {
        Some(_) => json!({ "text/plain": { "schema": { "type": "string" } } }),
        None => json!({ "application/problem+json": { "schema": schema_of(PROBLEM) } }),
    };
    json!({ "description": what, "content": content })
}
