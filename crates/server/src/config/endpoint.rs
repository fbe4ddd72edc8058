//! `[[endpoints]]`: a route and one action.

use super::files::{FilesConfig, folder_pattern, rest_parameter};
use super::guard::GuardConfig;
use super::steps::{self, StepConfig};
use super::token::{self, check_scope};
use docs::config::{ConfigTable, Item, Parameter, ParameterDefault, ParameterPlace};
use docs::sql::PAGE_ROWS_MAX;
use http::Method;
use std::sync::Arc;

const ACTIONS: [&str; 8] = ["get", "insert", "update", "replace", "delete", "query", "steps", "files"];
const KEYS: [&str; 22] = [
    "route", "get", "insert", "update", "replace", "delete", "query", "steps", "files", "require", "params", "body",
    "result", "wrap", "sort", "page", "reply", "status", "limit", "allow", "scope", "guard",
];
/// Names reserved for later.
const LATER: [&str; 1] = ["auth"];

/// Keys, and the actions to which they belong.
const BELONGS: [(&str, &[&str]); 7] = [
    ("sort", &["query"]),
    ("page", &["query"]),
    ("result", &["query", "steps"]),
    ("wrap", &["query", "steps"]),
    ("limit", &["query"]),
    ("body", &["steps"]),
    ("status", &["steps"]),
];

/// Limit of declared parameters of an endpoint: their entries are on the stack of the call.
pub(crate) const DECLARED_MAX: usize = 32;
/// The parameters of the request that choose a page.
pub(crate) const LIMIT: &str = "limit";
pub(crate) const AFTER: &str = "after";

/// A GET that writes: the mistake, and what is allowed.
pub(crate) const GET_WRITES: &str = "a GET that writes: clients and caches repeat GETs as they like";
pub(crate) const GET_ALLOWED: &str =
    "POST, PUT, PATCH or DELETE in `route`; or the action get or query, or steps of SELECTs alone";

/// The request's parameter that chooses an order.
pub(crate) const SORT: &str = "sort";
const PAGE: &str = "page";
/// Limit of orders.
const SORTS_MAX: usize = 32;

const METHODS: [(&str, Method); 5] = [
    ("GET", Method::Get),
    ("POST", Method::Post),
    ("PUT", Method::Put),
    ("PATCH", Method::Patch),
    ("DELETE", Method::Delete),
];

/// One declared endpoint, as written; names are checked against the collections, SQL is not prepared yet.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// `METHOD PATTERN`, for messages.
    pub route: String,
    /// The method.
    pub method: Method,
    /// The pattern, as in `/users/{id}`.
    pub pattern: String,
    /// Scope that the token of a request must have; `None`: anyone may call the endpoint.
    pub scope: Option<String>,
    /// Query that must return a row before anything is done. For steps it is also the first step.
    pub guard: Option<Arc<GuardConfig>>,
    /// Bytes of the guard's name in the file, for mistakes found later.
    pub guard_span: std::ops::Range<usize>,
    /// What it does.
    pub action: Action,
    /// A document that must exist; otherwise 404, before the parameters are checked.
    pub require: Option<DocumentTarget>,
    /// Declared query parameters.
    pub params: Vec<Parameter>,
    /// Path parameters whose type is declared.
    pub path_params: Vec<Parameter>,
    /// The JSON of a successful write's reply, if it is fixed.
    pub reply: Option<String>,
    /// The declared body; its fields are parameters of steps.
    pub body: Option<Arc<docs::BodySchema>>,
    /// The status of a successful reply, if it is declared.
    pub status: Option<u16>,
    /// Bytes of the action's value in the file, for mistakes found later (SQL).
    pub span: std::ops::Range<usize>,
}

/// Memory of a route without its texts: the endpoint, the router's node, its part of the OpenAPI document.
const ROUTE_BYTES: usize = 3072;
/// A declared parameter, as read from the file, in the endpoint and in the OpenAPI document.
const PARAMETER_BYTES: usize = 768;
/// An allowed value of a parameter.
const VALUE_BYTES: usize = 128;
/// A body's JSON Schema, compiled and in the OpenAPI document, as a multiple of its text.
const BODY_FACTOR: usize = 64;

/// What an endpoint does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answers with a document.
    Get(DocumentTarget),
    /// Creates a document in the collection.
    Insert(String),
    /// Merges a patch into a document (RFC 7396).
    Update(DocumentTarget),
    /// Replaces a document.
    Replace(DocumentTarget),
    /// Removes a document.
    Delete(DocumentTarget),
    /// Answers with rows.
    Query {
        /// The statement.
        sql: String,
        /// Whether the reply is one row instead of an array.
        one_row: bool,
        /// Name of the one field of an object that wraps the rows.
        wrap: Option<String>,
        /// Most rows.
        limit: Option<u64>,
        /// Its rows are returned in pages.
        page: Option<PageConfig>,
        /// The orders that `sort` of a request chooses from; the first is the default.
        sort: Vec<SortConfig>,
    },
    /// Runs statements in one transaction and answers with the rows of the last one.
    Steps {
        /// The statements.
        steps: Vec<StepConfig>,
        /// As for `Query`.
        one_row: bool,
        /// As for `Query`.
        wrap: Option<String>,
    },
    /// Answers with the files of a folder.
    Files(FilesConfig),
}

/// Lengths of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageConfig {
    /// Default number of rows.
    pub limit: u64,
    /// Largest allowed `limit` of a request.
    pub max: u64,
}

/// One of the orders of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortConfig {
    /// Its name in requests.
    pub name: String,
    /// ORDER BY, possibly with conditions before it.
    pub end: String,
    /// Bytes of `end` in the file, for mistakes found later.
    pub span: std::ops::Range<usize>,
}

/// `COLLECTION/{PARAMETER}`: a document named by the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentTarget {
    /// The collection.
    pub collection: String,
    /// The path parameter that holds the key.
    pub parameter: String,
}

impl EndpointConfig {
    /// Reads one entry of the list. Mistakes are recorded, and an invalid entry is left out.
    pub(crate) fn read(item: &Item<'_>, collections: &[String], guards: &[Arc<GuardConfig>]) -> Option<EndpointConfig> {
        let table = item.table()?;
        table.check_keys(&KEYS, &LATER);
        // If one part is wrong, the others are still read: all mistakes are reported at once.
        let has_rest = table.get("files").is_some();
        let route = table.require("route").and_then(|item| route(&item, has_rest));
        let known = route.as_ref().map(|(_, pattern)| pattern.as_str());
        let pattern = known.unwrap_or_default();
        let action = action(&table, route.as_ref(), collections);
        let writes = |action: &Action| {
            matches!(action, Action::Insert(_) | Action::Update(_) | Action::Replace(_) | Action::Delete(_))
        };
        if let (Some((Method::Get, _)), Some((action, _))) = (&route, &action)
            && writes(action)
        {
            table.mistake(GET_WRITES, GET_ALLOWED);
        }
        let require = table.get("require").and_then(|item| DocumentTarget::read(&item, known, collections));
        let params = table.get("params").and_then(|item| item.table());
        let (path_params, params) = params.map_or_else(Default::default, |params| read_params(&params, pattern));
        for (key, own) in [(SORT, SORT), (PAGE, LIMIT), (PAGE, AFTER)] {
            let is_there =
                || params.iter().any(|known| known.name == own) || path_parameters(pattern).any(|name| name == own);
            if let Some(item) = table.get(key).filter(|_| is_there()) {
                let of = if key == own { String::new() } else { format!(" of `{key}`") };
                let what = format!("`{own}` is a built-in parameter{of}, and the endpoint declares one of this name");
                item.mistake(what, "another name");
            }
        }
        let reply = table.get("reply").zip(action.as_ref()).and_then(|(item, (action, _))| reply(&item, action));
        let body = table.get("body").and_then(|item| read_body(&item, pattern, &params));
        let status = table.get("status").and_then(|item| item.integer(200..=299));
        let scope = scope(&table, route.as_ref().map_or(Method::Get, |(method, _)| *method));
        let guard = table.get("guard").and_then(|item| GuardConfig::named(&item, guards).zip(Some(item)));
        let params = match &guard {
            Some((guard, item)) => with_guards(params, guard, (pattern, body.as_deref()), item),
            None => params,
        };
        let guard_span = guard.as_ref().map_or(0..0, |(_, item)| item.span());
        let guard = guard.map(|(guard, _)| guard);
        let ((method, pattern), (action, span)) = (route?, action?);
        let action = match (&guard, action) {
            (Some(guard), Action::Steps { mut steps, one_row, wrap }) => {
                steps.insert(0, guard.step());
                Action::Steps { steps, one_row, wrap }
            }
            (_, action) => action,
        };
        Some(EndpointConfig {
            guard,
            guard_span,
            route: format!("{} {pattern}", method.name()),
            method,
            pattern,
            scope,
            action,
            require,
            params,
            path_params,
            reply,
            body,
            status: status.and_then(|status| u16::try_from(status).ok()),
            span,
        })
    }
}

impl EndpointConfig {
    /// Approximate bytes of memory, as configuration, as a route and in the OpenAPI document, without its prepared statements.
    pub(crate) fn bytes(&self) -> usize {
        let sql: usize = match &self.action {
            Action::Query { sql, sort, .. } => {
                sql.len() + sort.iter().map(|way| way.name.len() + way.end.len()).sum::<usize>()
            }
            Action::Steps { steps, .. } => steps
                .iter()
                .map(|step| {
                    size_of::<StepConfig>()
                        + step.sql.len()
                        + [&step.expect, &step.detail].into_iter().flatten().map(String::len).sum::<usize>()
                })
                .sum(),
            _ => 0,
        };
        let parameters = self.params.iter().chain(&self.path_params);
        let parameters: usize = parameters
            .map(|parameter| PARAMETER_BYTES + 4 * parameter.name.len() + parameter.values.len() * VALUE_BYTES)
            .sum();
        let body = self.body.as_ref().map_or(0, |body| BODY_FACTOR * body.schema_text().len());
        let reply = self.reply.as_ref().map_or(0, String::len);
        ROUTE_BYTES + 8 * self.route.len() + 3 * (sql + reply) + parameters + body
    }

    /// The patterns of its routes: its own, and that of the folder itself if its files have an index.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        let of_folder = match &self.action {
            Action::Files(FilesConfig { index: true, .. }) => folder_pattern(&self.pattern),
            _ => None,
        };
        [Some(self.pattern.as_str()), of_folder].into_iter().flatten()
    }

    /// The part of a request, or of the file, that gives a parameter of this name to the endpoint's statements.
    pub(crate) fn source_of(&self, name: &str, file: &[Parameter]) -> Option<&'static str> {
        let is_named = |parameter: &&Parameter| parameter.name == name;
        if path_parameters(&self.pattern).any(|part| part == name) {
            return Some("the path");
        }
        if let Some(parameter) = self.params.iter().find(is_named) {
            return Some(match parameter.from {
                ParameterPlace::Query => "the query of the request",
                ParameterPlace::Header(_) => "a header field of the request",
                ParameterPlace::Cookie(_) => "a cookie of the request",
            });
        }
        if self.body.iter().flat_map(|body| body.names()).any(|field| field == name) {
            return Some("the body of the request");
        }
        file.iter().find(is_named).map(|_| "the file's [params]")
    }

    /// The text of its query, or of the step at this place of the file.
    pub(crate) fn statement_at(&self, span: &std::ops::Range<usize>) -> Option<&str> {
        let steps = match &self.action {
            Action::Query { sql, .. } => return Some(sql),
            Action::Steps { steps, .. } => &steps[..],
            _ => return None,
        };
        let step = steps.iter().find(|step| step.spans.contains(span))?;
        if step.spans[0] == *span { Some(&step.sql) } else { step.expect.as_deref() }
    }

    /// The endpoint once for each order, with the order appended to its statement, by name; one without a name if there are no
    /// orders.
    pub(crate) fn sorted(&self) -> Vec<(String, EndpointConfig)> {
        let Action::Query { sql, one_row, wrap, limit, page, sort } = &self.action else { return Vec::new() };
        if sort.is_empty() {
            return vec![(String::new(), self.clone())];
        }
        let one = |way: &SortConfig| {
            let (sql, one_row, wrap) = (format!("{sql}\n{}", way.end), *one_row, wrap.clone());
            let action = Action::Query { sql, one_row, wrap, limit: *limit, page: *page, sort: Vec::new() };
            (way.name.clone(), EndpointConfig { action, span: way.span.clone(), ..self.clone() })
        };
        sort.iter().map(one).collect()
    }
}

/// An endpoint's parameters with those of its guard: a name must mean the same in the guard and in the endpoint's statements.
fn with_guards(
    mut params: Vec<Parameter>,
    guard: &GuardConfig,
    (pattern, body): (&str, Option<&docs::BodySchema>),
    item: &Item<'_>,
) -> Vec<Parameter> {
    for own in &guard.params {
        let of_path = path_parameters(pattern).any(|name| name == own.name);
        let is_other = of_path || body.is_some_and(|body| body.names().any(|name| name == own.name));
        match params.iter().find(|known| known.name == own.name) {
            None if !is_other => params.push(own.clone()),
            Some(known) if known == own => {}
            _ => {
                let what =
                    format!("the guard `{}` has a parameter `{}`, and the endpoint another", guard.name, own.name);
                item.mistake(what, "another name");
            }
        }
    }
    params
}

/// `allow = "token"` with `scope`; the default scope is `read` for GET and `write` for the others.
fn scope(table: &ConfigTable<'_>, method: Method) -> Option<String> {
    let needs_token = table.get("allow").and_then(|item| item.word(&[("anyone", false), ("token", true)]));
    let given = table.get("scope");
    if needs_token != Some(true) {
        if let Some(item) = given {
            item.mistake("`scope` without `allow = \"token\"`: nothing requires it", "both, or neither");
        }
        return None;
    }
    let Some(item) = given else {
        return Some(if method == Method::Get { token::READ } else { token::WRITE }.to_owned());
    };
    let text = item.text()?;
    check_scope(text, &item);
    Some(text.to_owned())
}

/// Reads a route. `has_rest`: its last segment may be the rest of the path.
fn route(item: &Item<'_>, has_rest: bool) -> Option<(Method, String)> {
    let allowed = "\"METHOD /path/{parameter}\" with GET, POST, PUT, PATCH or DELETE; /_/ is the general API's";
    let text = item.text()?;
    let parsed = text.split_once(' ').and_then(|(method, pattern)| {
        let (_, method) = METHODS.iter().find(|(name, _)| *name == method)?;
        (pattern.starts_with('/') && !pattern.starts_with("/_/")).then(|| (*method, pattern.to_owned()))
    });
    match &parsed {
        None => item.mistake(format!("`{}` is {text:?}", item.path()), allowed),
        Some((_, pattern)) => {
            if let Err(why) = check_pattern(pattern, has_rest) {
                item.mistake(format!("`{}` is {text:?}: {why}", item.path()), allowed);
                return None;
            }
        }
    }
    parsed
}

/// Whether requests can have such a path at all: it is compared with the target as sent (RFC 3986, section 3.3).
fn check_pattern(pattern: &str, has_rest: bool) -> Result<(), String> {
    let mut names: Vec<&str> = Vec::new();
    let (single, rest) = match rest_parameter(pattern).filter(|_| has_rest) {
        Some(rest) => (pattern.rsplit_once('/').map_or("", |(before, _)| before), Some(rest)),
        None => (pattern, None),
    };
    let segments = single.split('/').map(|segment| {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        (segment, name)
    });
    for (segment, name) in segments.chain(rest.map(|name| ("", Some(name)))) {
        if let Some(name) = name {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(plain) {
                return Err(format!("`{{{name}}}` is no parameter: a name of a-z, A-Z, 0-9 and _ in braces"));
            }
            if names.contains(&name) {
                return Err(format!("{{{name}}} is listed twice"));
            }
            names.push(name);
        } else {
            check_segment(segment)?;
        }
    }
    Ok(())
}

fn check_segment(segment: &str) -> Result<(), String> {
    if matches!(segment, "." | "..") {
        return Err(format!("clients remove the segment `{segment}` from a path"));
    }
    for (at, character) in segment.char_indices() {
        match character {
            '{' | '}' => return Err("a parameter is a whole segment of the path".to_owned()),
            '?' | '#' => return Err(format!("a path ends before `{character}`")),
            '%' => {
                let digits = segment.get(at + 1..at + 3).unwrap_or_default();
                if digits.len() != 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err("% is not followed by two hexadecimal digits".to_owned());
                }
            }
            _ if character.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@".contains(character) => {}
            _ => return Err(format!("{character:?} cannot stand in a path, unless escaped as %XX")),
        }
    }
    Ok(())
}

fn action(
    table: &ConfigTable<'_>,
    route: Option<&(Method, String)>,
    collections: &[String],
) -> Option<(Action, std::ops::Range<usize>)> {
    let given: Vec<Item<'_>> = ACTIONS.iter().filter_map(|name| table.get(name)).collect();
    let [item] = given.as_slice() else {
        let what = if given.is_empty() { "no action".to_owned() } else { format!("{} actions", given.len()) };
        table.mistake(format!("an endpoint with {what}"), format!("one of {}", ACTIONS.join(", ")));
        return None;
    };
    for (name, of) in BELONGS {
        if let Some(other) = table.get(name).filter(|_| !of.contains(&item.name())) {
            let of = of.join("` or `");
            other.mistake(format!("`{name}` belongs to `{of}`, this endpoint has `{}`", item.name()), "");
        }
    }
    for name in ["result", "wrap"] {
        if let Some(other) = table.get(name).filter(|_| item.name() == "steps" && table.get("reply").is_some()) {
            other.mistake(format!("`{name}` is about the last step's rows, and `reply` is sent instead of them"), "");
        }
    }
    let pattern = route.map(|(_, pattern)| pattern.as_str());
    let target = || DocumentTarget::read(item, pattern, collections);
    let action = match item.name() {
        "get" => Action::Get(target()?),
        "insert" => Action::Insert(collection(item, item.text()?, collections)?),
        "update" => Action::Update(target()?),
        "replace" => Action::Replace(target()?),
        "delete" => Action::Delete(target()?),
        "steps" => {
            let (one_row, wrap) = rows_of(table);
            Action::Steps { steps: steps::read(item)?, one_row, wrap }
        }
        "files" => Action::Files(FilesConfig::read(item, table, route)?),
        _ => query(item, table)?,
    };
    Some((action, item.span()))
}

fn query(item: &Item<'_>, table: &ConfigTable<'_>) -> Option<Action> {
    let sql = item.text()?.to_owned();
    let (one_row, wrap) = rows_of(table);
    let limit = table.get("limit").and_then(|item| item.integer(1..=1_000_000)).map(i64::unsigned_abs);
    let sort = table.get("sort").map(|item| read_sort(&item)).unwrap_or_default();
    let page = table.get(PAGE).and_then(|item| read_page(&item, table, (one_row, wrap.as_deref())));
    Some(Action::Query { sql, one_row, wrap, limit, page, sort })
}

/// `{ limit = 20, max = 100 }`.
fn read_page(item: &Item<'_>, endpoint: &ConfigTable<'_>, (one_row, wrap): (bool, Option<&str>)) -> Option<PageConfig> {
    let table = item.table()?;
    table.check_keys(&[LIMIT, "max"], &[]);
    let most = PAGE_ROWS_MAX as i64;
    let limit = table.require(LIMIT)?.integer(1..=most)?;
    let max = table.get("max").map_or(Some(limit), |item| item.integer(limit..=most))?;
    if let Some(other) = endpoint.get(LIMIT) {
        other.mistake("`limit` beside `page`: all rows come, by pages", "`limit` inside `page`");
    }
    if let Some(other) = endpoint.get("result").filter(|_| one_row) {
        other.mistake("a page of one row", "result = \"rows\", or no `page`");
    }
    if let Some(other) = endpoint.get("wrap").filter(|_| wrap == Some(AFTER)) {
        other.mistake("`after` is the name of the cursor beside the rows", "another name");
    }
    Some(PageConfig { limit: limit.unsigned_abs(), max: max.unsigned_abs() })
}

fn read_sort(item: &Item<'_>) -> Vec<SortConfig> {
    let Some(table) = item.table() else { return Vec::new() };
    let mut entries = table.entries();
    if entries.is_empty() || entries.len() > SORTS_MAX {
        item.mistake(format!("{} ways to sort", entries.len()), format!("1 to {SORTS_MAX}"));
        entries.truncate(SORTS_MAX);
    }
    let ways = entries.iter().filter_map(|item| {
        Some(SortConfig { name: item.name().to_owned(), end: item.text()?.to_owned(), span: item.span() })
    });
    ways.collect()
}

/// Whether the reply is one row, and the name of its wrapper.
fn rows_of(table: &ConfigTable<'_>) -> (bool, Option<String>) {
    let one_row = table.get("result").and_then(|item| item.word(&[("rows", false), ("row", true)])).unwrap_or(false);
    (one_row, table.get("wrap").and_then(|item| item.text().map(str::to_owned)))
}

/// The declared body. Its fields are parameters beside the others, so all names must differ.
fn read_body(item: &Item<'_>, pattern: &str, params: &[Parameter]) -> Option<Arc<docs::BodySchema>> {
    let body = docs::BodySchema::read(item)?;
    for name in body.names() {
        let of_query = params.iter().any(|parameter| parameter.name == name);
        if of_query || path_parameters(pattern).any(|part| part == name) {
            let other = if of_query { "a parameter of the query" } else { "a part of the path" };
            item.mistake(format!("the body has a field `{name}`, which is {other} too"), "another name");
        }
    }
    Some(Arc::new(body))
}

fn collection(item: &Item<'_>, name: &str, collections: &[String]) -> Option<String> {
    if collections.iter().any(|known| known == name) {
        return Some(name.to_owned());
    }
    item.mistake(
        format!("`{}` names the collection \"{name}\", which is not declared", item.path()),
        collections.join(", "),
    );
    None
}

impl DocumentTarget {
    /// `pattern`: the route's, if it is valid.
    fn read(item: &Item<'_>, pattern: Option<&str>, collections: &[String]) -> Option<DocumentTarget> {
        let text = item.text()?;
        let parts = text.split_once("/{").and_then(|(name, rest)| Some((name, rest.strip_suffix('}')?)));
        let Some((name, parameter)) = parts else {
            item.mistake(format!("`{}` is \"{text}\"", item.path()), "COLLECTION/{PARAMETER}, as in users/{id}");
            return None;
        };
        if let Some(pattern) = pattern.filter(|pattern| !pattern.contains(&format!("{{{parameter}}}"))) {
            item.mistake(
                format!("`{}` uses {{{parameter}}}, which the route {pattern} does not have", item.path()),
                "",
            );
            return None;
        }
        Some(DocumentTarget { collection: collection(item, name, collections)?, parameter: parameter.to_owned() })
    }
}

/// The declared parameters: those of the path, and those of the request's query.
fn read_params(table: &ConfigTable<'_>, pattern: &str) -> (Vec<Parameter>, Vec<Parameter>) {
    let (mut of_path, mut of_query) = (Vec::new(), Vec::new());
    for item in table.entries() {
        let parameter = Parameter::read(&item);
        if !path_parameters(pattern).any(|name| name == parameter.name) {
            of_query.push(parameter);
            continue;
        }
        if parameter.from != ParameterPlace::Query {
            item.mistake(format!("`{}` is a part of the path, and has `from`", parameter.name), "another name");
        }
        if parameter.required || parameter.default != ParameterDefault::Missing {
            let allowed = "type, enum, min, max";
            item.mistake(format!("`{}` is a part of the path, which is always given", parameter.name), allowed);
        }
        of_path.push(parameter);
    }
    if of_query.len() > DECLARED_MAX {
        table.mistake(format!("{} parameters", of_query.len()), format!("up to {DECLARED_MAX}"));
        of_query.truncate(DECLARED_MAX);
    }
    (of_path, of_query)
}

fn reply(item: &Item<'_>, action: &Action) -> Option<String> {
    if matches!(action, Action::Get(_) | Action::Query { .. }) {
        item.mistake("`reply` belongs to an endpoint that writes", "");
    }
    Some(docs::config::json_text(item))
}

/// Names of the parameters of a route's path.
pub(crate) fn path_parameters(pattern: &str) -> impl Iterator<Item = &str> {
    let names = pattern.split('{').skip(1).filter_map(|part| part.split('}').next());
    names.map(|name| name.strip_prefix('*').unwrap_or(name))
}
