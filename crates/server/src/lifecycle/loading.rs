//! Reading of a configuration file: from its text to a checked [`ServiceConfig`].
//!
//! If the collections are valid, SQL is checked too; it is prepared again against the catalog of the opened database.

use crate::config::{
    ConfigError, ENDPOINTS_MAX, EndpointConfig, FILE_BYTES_MAX, GET_ALLOWED, GET_WRITES, GuardConfig, ServerConfig,
    ServiceConfig, errors, read_guards, read_tokens,
};
use crate::declared::query::DeclaredQuery;
use crate::declared::steps::DeclaredSteps;
use crate::failure::ErrorRules;
use crate::requests::params;
use crate::statements::guard::DeclaredGuard;
use docs::catalog::Catalog;
use docs::config::{Config, ConfigFile, ConfigTable, MISTAKES_MAX, Mistakes};
use http::{Method, Router};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl ServiceConfig {
    /// Reads a file. `set` fixes values of `[params]`: `NAME=VALUE` each.
    pub fn load(path: &Path, set: &[String]) -> Result<ServiceConfig, ConfigError> {
        let read = docs::config::read_file(path, FILE_BYTES_MAX);
        let bytes = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let text = utf8(path, bytes).map_err(ConfigError::Mistakes)?;
        let mut config = ServiceConfig::parse(path, text).map_err(ConfigError::Mistakes)?;
        let fixed = set.iter().filter_map(|given| {
            let problem = params::fix(&mut config.docs.params, given).err()?;
            Some(format!("--set {given}: {problem}"))
        });
        let problems: Vec<String> = fixed.collect();
        if !problems.is_empty() {
            return Err(ConfigError::Set(problems.join("\n")));
        }
        config.set = set.to_vec();
        Ok(config)
    }

    /// The same from text; `path` appears in messages, and paths in the file are relative to it.
    pub fn parse(path: &Path, text: String) -> Result<ServiceConfig, Mistakes> {
        let source = ConfigFile::new(path, &text);
        let document = source.document();
        let root = ConfigTable::root(&source, &document);
        let docs = Config::read(&root);
        let catalog = docs::outline(&docs.sound()).ok();
        let collections = declared_names(&root);
        let guards = read_guards(&root);
        let endpoints = read_endpoints(&root, &collections, &guards);
        let section = |name: &str| root.get(name).and_then(|item| item.table());
        let tokens = read_tokens(&root);
        let errors = section("errors").map_or_else(ErrorRules::default, |table| errors::read(&table));
        let mut server = section("server").map_or_else(ServerConfig::default, |table| ServerConfig::read(&table));
        if let Some(catalog) = catalog {
            let guards = prepare_guards(&source, &guards, (&docs, &catalog));
            let of_guards: usize = guards.iter().map(|(_, prepared)| prepared.bytes()).sum();
            let of_endpoints = declared_bytes(&source, &endpoints, &guards, (&docs, &catalog));
            if source.is_clean() {
                server.statement_bytes = of_endpoints + of_guards;
                server.series_bytes = endpoints.len().min(http::SERIES_MAX) * http::SERIES_BYTES;
            }
        }
        server.divide_memory(&root);
        source.finish()?;
        let file_server = server.clone();
        Ok(ServiceConfig {
            path: path.to_owned(),
            text,
            docs,
            endpoints,
            tokens,
            errors,
            server,
            file_server,
            set: Vec::new(),
        })
    }
}

/// Whether an endpoint's statement at this place refers to something that has mistakes itself, which are recorded there.
fn is_doubtful(endpoint: &EndpointConfig, span: &Range<usize>, docs: &Config) -> bool {
    endpoint.statement_at(span).is_some_and(|sql| docs.is_doubtful(sql))
}

/// The guards without mistakes; mistakes are recorded.
type PreparedGuards = [(Arc<GuardConfig>, DeclaredGuard)];

fn prepare_guards(
    source: &ConfigFile,
    guards: &[Arc<GuardConfig>],
    (docs, catalog): (&Config, &Catalog),
) -> Box<PreparedGuards> {
    let prepared = guards.iter().filter_map(|guard| {
        let prepared = DeclaredGuard::prepare(guard, &docs.params, catalog);
        let of_guard = prepared.inspect_err(|what| {
            if !docs.is_doubtful(&guard.sql) {
                source.mistake(guard.span.clone(), what.clone(), "");
            }
        });
        Some((Arc::clone(guard), of_guard.ok()?))
    });
    prepared.collect()
}

/// Whether the names of an endpoint's guard are usable: it has no mistake, and no column of its row has the name of a parameter.
/// A statement could not tell which of the two `:name` means, and the request's value would stand in for the guard's. A clash is
/// recorded as a mistake.
fn check_guard(source: &ConfigFile, endpoint: &EndpointConfig, guards: &PreparedGuards, docs: &Config) -> bool {
    let Some(own) = &endpoint.guard else { return true };
    let Some((_, guard)) = guards.iter().find(|(known, _)| known.name == own.name) else { return false };
    let clash = guard.columns().find_map(|name| Some((name, endpoint.source_of(name, &docs.params)?)));
    let Some((name, place)) = clash else { return true };
    let what = format!(
        "the guard `{}` gives a column `{name}`, and {place} of {} a parameter of this name: `:{name}` could mean either",
        own.name, endpoint.route
    );
    let allowed = format!("another name for one of them, as in `SELECT … AS my_{name}` in the guard");
    source.mistake(endpoint.guard_span.clone(), what, allowed);
    false
}

/// The names of the file's collections, including those with mistakes.
fn declared_names(root: &ConfigTable<'_>) -> Vec<String> {
    // If `collections` is not a table, that was recorded before.
    let Some(table) = root.get("collections").filter(|item| item.value().is_table()).and_then(|item| item.table())
    else {
        return Vec::new();
    };
    table.entries().iter().map(|item| item.name().to_owned()).collect()
}

/// Approximate bytes of memory of the endpoints with their statements. Mistakes of statements are recorded, unless a statement
/// refers to something that has mistakes itself.
fn declared_bytes(
    source: &ConfigFile,
    endpoints: &[EndpointConfig],
    guards: &PreparedGuards,
    (docs, catalog): (&Config, &Catalog),
) -> usize {
    let mut bytes = 0;
    for endpoint in endpoints {
        bytes += endpoint.bytes();
        let is_guard_sound = check_guard(source, endpoint, guards, docs);
        for (_, endpoint) in endpoint.sorted() {
            match DeclaredQuery::prepare(&endpoint, &docs.params, catalog) {
                None => {}
                Some(Ok(query)) => bytes += query.bytes() + endpoint.bytes(),
                Some(Err(_)) if is_doubtful(&endpoint, &endpoint.span, docs) => {}
                Some(Err(_)) if !is_guard_sound => {}
                Some(Err(what)) => source.mistake(endpoint.span.clone(), what, ""),
            }
        }
        match DeclaredSteps::prepare(endpoint, &docs.params, catalog) {
            None => {}
            Some(Ok(steps)) => {
                if steps.writes() && endpoint.method == Method::Get {
                    source.mistake(endpoint.span.clone(), GET_WRITES, GET_ALLOWED);
                }
                bytes += steps.bytes() + endpoint.bytes();
            }
            Some(Err(mistakes)) => {
                let own = mistakes.into_iter().filter(|(span, _)| !is_doubtful(endpoint, span, docs));
                own.for_each(|(span, what)| source.mistake(span, what, ""));
            }
        }
    }
    bytes
}

/// The file as text; other bytes are a mistake with its place.
fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, Mistakes> {
    String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes());
        let at = error.utf8_error().valid_up_to();
        let source = ConfigFile::new(path, &text);
        source.mistake(at..at, "not UTF-8 from here on", "text in UTF-8");
        match source.finish() {
            Err(mistakes) => mistakes,
            Ok(()) => unreachable!("a mistake was noted just before"),
        }
    })
}

fn read_endpoints(root: &ConfigTable<'_>, collections: &[String], guards: &[Arc<GuardConfig>]) -> Vec<EndpointConfig> {
    let Some(mut items) = root.get("endpoints").and_then(|item| item.list()) else { return Vec::new() };
    if items.len() > ENDPOINTS_MAX {
        root.mistake(format!("{} endpoints", items.len()), format!("up to {ENDPOINTS_MAX}"));
        items.truncate(ENDPOINTS_MAX);
    }
    let mut router = Router::new();
    let mut endpoints = Vec::new();
    let mut clashes = 0;
    for item in &items {
        let Some(endpoint) = EndpointConfig::read(item, collections, guards) else { continue };
        // Conflicting routes are reported here, with their place. Each conflict makes the router be built again, so only as many
        // are found as are shown.
        if clashes < MISTAKES_MAX
            && let Err(error) = endpoint.patterns().try_for_each(|pattern| router.route(endpoint.method, pattern, ()))
        {
            item.mistake(error.to_string(), "");
            clashes += 1;
        }
        endpoints.push(endpoint);
    }
    endpoints
}
