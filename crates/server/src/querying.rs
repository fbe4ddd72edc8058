//! Declared queries: prepared once, executed on the loop within a budget.

use crate::config::{Action, EndpointConfig};
use crate::endpoint::{JSON, path_parameters};
use crate::failure::{Failure, Kind};
use crate::params;
use crate::service::{Local, Service};
use docs::catalog::Catalog;
use docs::config::Parameter;
use docs::key::KeyType;
use docs::order::Scalar;
use docs::sql::{Budget, Query, QueryError, SqlError, Value};
use http::{Params, Reply, Request, Status};

/// A declared query, ready to run.
pub(crate) struct DeclaredQuery {
    query: Query,
    /// The declared parameters of the request's query.
    declared: Vec<Parameter>,
    /// What fills each slot of the statement.
    slots: Vec<Source>,
    one_row: bool,
    /// Bytes before and behind the rows.
    before: Box<[u8]>,
    behind: Box<[u8]>,
}

/// Where a parameter of the statement comes from.
enum Source {
    /// A declared parameter of the request, by its place.
    Request(usize),
    /// A part of the path; text, or an integer where it is plain digits of an integer key.
    Path { name: String, integer: bool },
    /// One of the file's `[params]`.
    File(Parameter),
}

impl DeclaredQuery {
    /// Prepares an endpoint's statement and finds a source for each of its parameters.
    pub(crate) fn prepare(
        endpoint: &EndpointConfig,
        file: &[Parameter],
        catalog: &Catalog,
    ) -> Option<Result<DeclaredQuery, String>> {
        let Action::Query { sql, one_row, wrap, limit } = &endpoint.action else { return None };
        let sql = limit.map_or_else(|| sql.clone(), |limit| format!("SELECT * FROM ({sql}) LIMIT {limit}"));
        let prepared = Query::prepare(&sql, catalog).map_err(|error: SqlError| error.to_string());
        Some(prepared.and_then(|query| {
            let sources = query.parameters().iter().map(|name| source(name, endpoint, file, catalog));
            let slots = sources.collect::<Result<Vec<Source>, String>>()?;
            let before = wrap.as_ref().map(|name| format!("{{{}:", serde_json::Value::from(name.as_str())));
            Ok(DeclaredQuery {
                query,
                declared: endpoint.params.clone(),
                slots,
                one_row: *one_row,
                behind: before.iter().map(|_| b'}').collect(),
                before: before.unwrap_or_default().into_bytes().into(),
            })
        }))
    }

    /// The statement.
    pub(crate) fn statement(&self) -> &Query {
        &self.query
    }

    /// Answers one request.
    pub(crate) fn answer(
        &self,
        service: &Service,
        local: &mut Local,
        request: &Request<'_>,
        params: &Params<'_, '_>,
        reply: Reply<'_>,
    ) {
        let Local { session, text, out, scratch, path_text, .. } = local;
        let outcome = self.values(request, params, text, path_text).and_then(|values| {
            let budget = Budget {
                rows_max: service.scan_rows_max,
                output_bytes_max: service.query_bytes,
                memory_bytes_max: service.query_bytes,
                ..Budget::default()
            };
            self.run(session, values.as_slice(), scratch, &budget, out)
        });
        match outcome {
            Ok(()) => reply.send(Status(200), JSON, out),
            Err(failure) => service.fail(&failure, reply),
        }
    }

    fn run(
        &self,
        session: &docs::Session,
        values: &[Value<'_>],
        scratch: &mut docs::sql::Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        out.extend_from_slice(&self.before);
        let now = session.now();
        let run = if self.one_row { Query::write_row } else { Query::write_array };
        let outcome = run(&self.query, now.view(), values, scratch, budget, out).map_err(|error| of_query(&error))?;
        if self.one_row && outcome.rows == 0 {
            return Err(Failure::new(Kind::NotFound, "the query has no row"));
        }
        out.extend_from_slice(&self.behind);
        Ok(())
    }

    /// The statement's values by slot.
    fn values<'v>(
        &'v self,
        request: &Request<'v>,
        params: &Params<'_, 'v>,
        text: &'v mut Vec<u8>,
        path_text: &'v mut Vec<u8>,
    ) -> Result<Values<'v>, Failure> {
        let mut given = params::Given::default();
        params::read(&self.declared, request.query(), text, &mut given)?;
        let mut values = Values::default();
        let path_text = path_of(&self.slots, params, path_text)?;
        for slot in &self.slots {
            values.push(match slot {
                Source::Request(place) => value_of(given.get(*place)),
                Source::File(parameter) => value_of(params::default_of(parameter)),
                Source::Path { integer: true, .. } => path_text.parse().map_or(Value::Null, Value::Integer),
                Source::Path { .. } => Value::text(path_text),
            });
        }
        Ok(values)
    }
}

/// The values of one execution, by slot, without allocation.
struct Values<'v> {
    values: [Value<'v>; docs::sql::PARAMETERS_MAX],
    count: usize,
}

impl Default for Values<'_> {
    fn default() -> Self {
        Values { values: [Value::Null; docs::sql::PARAMETERS_MAX], count: 0 }
    }
}

impl<'v> Values<'v> {
    fn push(&mut self, value: Value<'v>) {
        if let Some(place) = self.values.get_mut(self.count) {
            *place = value;
            self.count += 1;
        }
    }

    fn as_slice(&self) -> &[Value<'v>] {
        &self.values[..self.count]
    }
}

/// The text of the path parameter that the statement uses (there is one at most: see [`source`]).
fn path_of<'v>(slots: &[Source], params: &Params<'_, 'v>, text: &'v mut Vec<u8>) -> Result<&'v str, Failure> {
    let name = slots.iter().find_map(|slot| match slot {
        Source::Path { name, .. } => Some(name.as_str()),
        _ => None,
    });
    let Some(name) = name else { return Ok("") };
    let found = params.get(name, text).and_then(Result::ok);
    found.ok_or_else(|| Failure::new(Kind::NotFound, format!("the path's `{name}` is badly escaped")))
}

/// Finds what fills a parameter of the statement: a declared parameter, a part of the path, or the file's `[params]`.
fn source(name: &str, endpoint: &EndpointConfig, file: &[Parameter], catalog: &Catalog) -> Result<Source, String> {
    if let Some(place) = endpoint.params.iter().position(|parameter| parameter.name == name) {
        return Ok(Source::Request(place));
    }
    if path_parameters(&endpoint.pattern).any(|parameter| parameter == name) {
        let target = endpoint.require.as_ref().filter(|target| target.parameter == name);
        let kind = target.and_then(|target| Some(catalog.collection(&target.collection)?.key.kind));
        return Ok(Source::Path { name: name.to_owned(), integer: matches!(kind, Some(KeyType::U32 | KeyType::I64)) });
    }
    if let Some(parameter) = file.iter().find(|parameter| parameter.name == name) {
        return Ok(Source::File(parameter.clone()));
    }
    Err(format!(
        "the query uses :{name}, which is no parameter of the endpoint, no part of the path {}, and not in [params]",
        endpoint.pattern
    ))
}

fn value_of(scalar: Scalar<'_>) -> Value<'_> {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Integer(integer) => Value::Integer(integer),
        Scalar::Real(real) => Value::Real(real),
        Scalar::Text(text) => Value::text(text),
    }
}

/// What a query that ended without its whole result is to the client.
pub(crate) fn of_query(error: &QueryError) -> Failure {
    let kind = match error {
        QueryError::Limit { .. } | QueryError::Deadline => Kind::TooLarge,
        QueryError::Value(_) | QueryError::Parameters { .. } => Kind::Invalid,
        _ => {
            tracing::error!(%error, "a query failed");
            Kind::Internal
        }
    };
    Failure::new(kind, error.to_string())
}
