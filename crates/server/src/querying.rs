//! Declared queries: prepared once, executed on the loop within a small budget. One that looks at more rows than that, or
//! makes a larger result, is run again on the pool with the service's whole budget, and answered late: a loop is never held for long.

use crate::background;
use crate::cold::{self, Room};
use crate::config::{Action, EndpointConfig};
use crate::endpoint::{JSON, Unread, count_cold, path_parameters};
use crate::failure::{Failure, Kind};
use crate::large;
use crate::params;
use crate::queries::{PLAN_FIELD, Queries};
use crate::service::{Local, PathTexts, Service};
use crate::writing;
use docs::catalog::Catalog;
use docs::config::{Parameter, ParameterDefault, ParameterKind};
use docs::key::KeyType;
use docs::order::Scalar;
use docs::sql::{Budget, Outcome, OwnedValue, Query, QueryError, SpillSpace, SqlError, Value};
use http::{LateReply, Params, Reply, Request, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows that a query may look at on a loop: a few milliseconds at worst.
const LOOP_ROWS_MAX: u64 = 20_000;
/// What the log says instead of a text.
const DECLARED: &str = "of a declared endpoint";

/// What one query on the pool may use.
#[derive(Clone)]
pub(crate) struct Whole {
    rows_max: u64,
    bytes_max: usize,
    time_max: Duration,
    /// Where it puts what exceeds its memory, if it may.
    spill: Option<Arc<SpillSpace>>,
}

impl Whole {
    pub(crate) fn of(service: &Service) -> Whole {
        Whole {
            rows_max: service.scan_rows_max,
            bytes_max: service.query_bytes,
            time_max: service.queries.time_max,
            spill: service.queries.spill.clone(),
        }
    }

    /// The same for a statement that writes: the other half is what its transaction holds, and that holds no file.
    pub(crate) fn of_change(self) -> Whole {
        Whole { bytes_max: self.bytes_max / 2, spill: None, ..self }
    }

    /// Bytes of its result that may be held.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// As much of it as there is room for.
    fn within(self, room: Room) -> Whole {
        let spill = if room.is_cold() { None } else { self.spill };
        let (rows_max, bytes_max) = (self.rows_max.min(room.rows_max), self.bytes_max.min(room.bytes_max));
        Whole { rows_max, bytes_max, spill, ..self }
    }

    /// Runs a query within it, from now on.
    pub(crate) fn run<R>(self, now_ms: i64, run: impl FnOnce(&Budget<'_>) -> R) -> R {
        let ends = Instant::now() + self.time_max;
        let over = || {
            let now = Instant::now();
            executor::let_others(now);
            now > ends
        };
        let (rows_max, output_bytes_max) = (self.rows_max, self.bytes_max);
        let (memory_bytes_max, spill) = (self.bytes_max, self.spill.as_ref());
        run(&Budget { rows_max, output_bytes_max, memory_bytes_max, spill, deadline: Some(&over), now_ms })
    }
}

/// A declared query, ready to run.
pub(crate) struct DeclaredQuery {
    query: Query,
    /// The declared parameters of the request's query.
    declared: Vec<Parameter>,
    /// What fills each slot of the statement.
    slots: Vec<Source>,
    /// It calls date functions, so it is told the time.
    uses_clock: bool,
    one_row: bool,
    /// Bytes before and behind the rows.
    before: Box<[u8]>,
    behind: Box<[u8]>,
}

/// Where a parameter of the statement comes from.
enum Source {
    /// A declared parameter of the request, by its place.
    Request(usize),
    /// A part of the path, and its type.
    Path(Parameter),
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
        let Action::Query { sql, one_row, wrap, limit, .. } = &endpoint.action else { return None };
        let prepared = Query::prepare(sql, catalog).map_err(|error: SqlError| error.to_string());
        Some(prepared.and_then(|query| {
            let query = match limit {
                Some(limit) => query.with_limit(*limit),
                None => query,
            };
            let sources = query.parameters().iter().map(|name| source(name, endpoint, file, catalog));
            let slots = sources.collect::<Result<Vec<Source>, String>>()?;
            let before = wrap.as_ref().map(|name| format!("{{{}:", serde_json::Value::from(name.as_str())));
            Ok(DeclaredQuery {
                uses_clock: query.uses_clock(),
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
        self: &Arc<Self>,
        service: &Service,
        local: &mut Local,
        request: &Request<'_>,
        params: &Params<'_, '_>,
        unread: Option<Unread>,
        reply: Reply<'_>,
    ) {
        let Local { session, text, out, scratch, path_texts, cold, .. } = local;
        let mut values = Values::new(self.slots.len());
        match self.read_values(request, params, text, path_texts, values.slots()) {
            Ok(()) => {}
            // A document that is required and not there goes before a bad parameter.
            Err(failure) if unread.is_some() => return self.fail_late(service, failure, unread, reply),
            Err(failure) => return service.fail(&failure, reply),
        }
        let budget = Budget {
            rows_max: service.scan_rows_max.min(LOOP_ROWS_MAX),
            output_bytes_max: service.loop_query_bytes,
            memory_bytes_max: service.loop_query_bytes,
            spill: None,
            deadline: None,
            now_ms: if self.uses_clock { params::unix_ms() } else { 0 },
        };
        let ran = if unread.is_some() {
            Err(Ended::Query(QueryError::Store(store::Error::NotInMemory)))
        } else {
            self.run(session, values.as_slice(), scratch, &budget, out)
        };
        match ran {
            Err(Ended::Query(QueryError::Store(store::Error::NotInMemory))) => {
                self.answer_cold(service, values.as_slice(), budget.now_ms, unread, reply);
                count_cold(service, cold);
            }
            Ok(outcome) => {
                let mut reply = reply;
                if service.queries.is_told(&outcome)
                    && let Some(plan) = self.tell(&service.queries, &outcome, values.as_slice())
                {
                    reply.header(PLAN_FIELD, plan);
                }
                large::send(&service.replies, &service.errors, reply, Status(200), JSON, out);
            }
            // Any other limit would be met on the pool again.
            Err(Ended::Query(QueryError::Limit { limit, .. }))
                if limit == budget.rows_max && service.scan_rows_max > LOOP_ROWS_MAX
                    || limit == service.loop_query_bytes as u64 =>
            {
                out.clear();
                self.answer_late(service, values.as_slice(), budget.now_ms, reply);
            }
            Err(ended) => service.fail(&ended.failure(), reply),
        }
    }

    /// Counts a run that is worth a word, and gives the plan where the reply is to tell it.
    #[cold]
    fn tell(&self, queries: &Queries, outcome: &Outcome, values: &[Value<'_>]) -> Option<&str> {
        let (plan, _) = self.query.plan_line(values);
        queries.count(outcome, plan, outcome.scans, DECLARED);
        outcome.scans.then_some(plan)
    }

    /// Runs it again, from its beginning, where it may wait for the disk.
    fn answer_cold(
        self: &Arc<Self>,
        service: &Service,
        values: &[Value<'_>],
        now_ms: i64,
        required: Option<Unread>,
        reply: Reply<'_>,
    ) {
        let (query, whole, queries) = (Arc::clone(self), Whole::of(service), Arc::clone(&service.queries));
        let (errors, replies) = (Arc::clone(&service.errors), service.replies.clone());
        let values: Vec<OwnedValue> = values.iter().map(OwnedValue::new).collect();
        let read = move |session: &docs::Session, room: Room| {
            required.iter().try_for_each(|required| required.check(session))?;
            match whole.clone().within(room).run(now_ms, |budget| query.run_whole(session, &values, budget, &queries)) {
                Err(Ended::Query(QueryError::Limit { .. })) if room.is_cold() => Ok(None),
                outcome => outcome.map(Some).map_err(Ended::failure),
            }
        };
        cold::read_late(service, &service.errors, reply.later(), read, move |mut late, body| match body {
            Ok((body, plan)) => {
                if let Some(plan) = plan {
                    late.header(PLAN_FIELD, &plan);
                }
                large::send_late(&replies, &errors, late, Status(200), JSON, body);
            }
            Err(failure) => writing::refuse(&errors, late, &failure),
        });
    }

    /// Runs it again, from its beginning, on the pool.
    fn answer_late(self: &Arc<Self>, service: &Service, values: &[Value<'_>], now_ms: i64, reply: Reply<'_>) {
        let (query, database) = (Arc::clone(self), service.database.clone());
        let sessions = Arc::clone(&service.pool_sessions);
        let (errors, replies) = (Arc::clone(&service.errors), service.replies.clone());
        let whole = Whole::of(service);
        let values: Vec<OwnedValue> = values.iter().map(OwnedValue::new).collect();
        let queries = Arc::clone(&service.queries);
        background::run(&service.pool, &service.errors, reply.later(), move |mut late| {
            let body = sessions.with(&database, |session| {
                let ran = whole.run(now_ms, |budget| query.run_long(session, &values, budget, &queries, &mut late));
                ran.map_err(Ended::failure)
            });
            match body {
                Ok(body) => large::send_late(&replies, &errors, late, Status(200), JSON, body),
                Err(failure) => writing::refuse(&errors, late, &failure),
            }
        });
    }

    /// A request that has failed, unless it fails for a required document that is not there.
    #[cold]
    fn fail_late(&self, service: &Service, failure: Failure, required: Option<Unread>, reply: Reply<'_>) {
        let errors = Arc::clone(&service.errors);
        let read = move |session: &docs::Session, _: Room| {
            required.iter().try_for_each(|required| required.check(session)).map(Some)
        };
        cold::read_late(service, &service.errors, reply.later(), read, move |late, checked| {
            writing::refuse(&errors, late, &checked.err().unwrap_or(failure));
        });
    }

    /// The result, and the plan where the reply is to tell it.
    fn run_whole(
        &self,
        session: &docs::Session,
        values: &[OwnedValue],
        budget: &Budget<'_>,
        queries: &Queries,
    ) -> Result<(Vec<u8>, Option<String>), Ended> {
        let values: Vec<Value<'_>> = values.iter().map(OwnedValue::value).collect();
        let mut out = Vec::new();
        let outcome = self.run(session, &values, &mut docs::sql::Scratch::new(), budget, &mut out)?;
        let is_told = queries.is_told(&outcome);
        let plan = if is_told { self.tell(queries, &outcome, &values) } else { None };
        Ok((out, plan.map(str::to_owned)))
    }

    /// The same where it may have helpers; it is counted, and the reply tells the plan.
    fn run_long(
        &self,
        session: &docs::Session,
        values: &[OwnedValue],
        budget: &Budget<'_>,
        queries: &Queries,
        late: &mut LateReply,
    ) -> Result<Vec<u8>, Ended> {
        let values: Vec<Value<'_>> = values.iter().map(OwnedValue::value).collect();
        let mut out = Vec::new();
        let outcome = self.run(session, &values, &mut queries.scratch(), budget, &mut out)?;
        let (plan, scans) = self.query.plan_line(&values);
        queries.count(&outcome, plan, scans, DECLARED);
        late.header(PLAN_FIELD, plan);
        Ok(out)
    }

    fn run(
        &self,
        session: &docs::Session,
        values: &[Value<'_>],
        scratch: &mut docs::sql::Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Ended> {
        out.clear();
        out.extend_from_slice(&self.before);
        let now = session.now();
        let run = if self.one_row { Query::write_row } else { Query::write_array };
        let outcome = run(&self.query, now.view(), values, scratch, budget, out).map_err(Ended::Query)?;
        // Rows are copies; what they were copied from was really there.
        now.check_indexes().map_err(|error| Ended::Query(QueryError::Store(error)))?;
        if self.one_row && outcome.rows == 0 {
            return Err(Ended::NoRow);
        }
        out.extend_from_slice(&self.behind);
        Ok(outcome)
    }

    /// The statement's values by slot.
    fn read_values<'v>(
        &'v self,
        request: &Request<'v>,
        params: &Params<'_, 'v>,
        text: &'v mut Vec<u8>,
        path_texts: &'v mut PathTexts,
        values: &mut [Value<'v>],
    ) -> Result<(), Failure> {
        let mut given = params::Given::default();
        params::read(&self.declared, request.query(), text, &mut given)?;
        let mut path_texts = path_texts.iter_mut();
        for (slot, value) in self.slots.iter().zip(values) {
            *value = match slot {
                Source::Request(place) => value_of(given.get(*place)),
                Source::File(parameter) => value_of(params::default_of(parameter)),
                Source::Path(parameter) => {
                    // A path has no more parameters than there are buffers: the router refuses such routes.
                    let Some(text) = path_texts.next() else { return Err(params::no_such_path(&parameter.name)) };
                    value_of(params::of_path(parameter, params, text)?)
                }
            };
        }
        Ok(())
    }
}

/// Statements of more parameters have their values on the heap.
const VALUES_INLINE: usize = 16;

/// The values of one execution, by slot; those of all but the longest statements without allocation.
struct Values<'v> {
    inline: [Value<'v>; VALUES_INLINE],
    spilled: Vec<Value<'v>>,
    count: usize,
}

impl<'v> Values<'v> {
    /// NULL for each of so many slots.
    fn new(count: usize) -> Self {
        let spilled = if count > VALUES_INLINE { vec![Value::Null; count] } else { Vec::new() };
        Values { inline: [Value::Null; VALUES_INLINE], spilled, count }
    }

    fn slots(&mut self) -> &mut [Value<'v>] {
        if self.count > VALUES_INLINE { &mut self.spilled } else { &mut self.inline[..self.count] }
    }

    fn as_slice(&self) -> &[Value<'v>] {
        if self.count > VALUES_INLINE { &self.spilled } else { &self.inline[..self.count] }
    }
}

/// Why a run gave no result.
enum Ended {
    Query(QueryError),
    NoRow,
}

impl Ended {
    fn failure(self) -> Failure {
        match self {
            Ended::Query(error) => of_query(&error),
            Ended::NoRow => Failure::new(Kind::NotFound, "the query has no row"),
        }
    }
}

/// Finds what fills a parameter of the statement: a declared parameter, a part of the path, or the file's `[params]`.
fn source(name: &str, endpoint: &EndpointConfig, file: &[Parameter], catalog: &Catalog) -> Result<Source, String> {
    if let Some(place) = endpoint.params.iter().position(|parameter| parameter.name == name) {
        return Ok(Source::Request(place));
    }
    if path_parameters(&endpoint.pattern).any(|parameter| parameter == name) {
        let declared = endpoint.path_params.iter().find(|parameter| parameter.name == name);
        return Ok(Source::Path(declared.cloned().unwrap_or_else(|| of_target(name, endpoint, catalog))));
    }
    if let Some(parameter) = file.iter().find(|parameter| parameter.name == name) {
        return Ok(Source::File(parameter.clone()));
    }
    Err(format!(
        "the query uses :{name}, which is no parameter of the endpoint, no part of the path {}, and not in [params]",
        endpoint.pattern
    ))
}

/// A part of the path that is not declared: of the type of the key that `require` finds with it, else text.
pub(crate) fn of_target(name: &str, endpoint: &EndpointConfig, catalog: &Catalog) -> Parameter {
    let target = endpoint.require.as_ref().filter(|target| target.parameter == name);
    let kind = target.and_then(|target| Some(catalog.collection(&target.collection)?.key.kind));
    let integer = matches!(kind, Some(KeyType::U32 | KeyType::I64));
    Parameter {
        name: name.to_owned(),
        kind: if integer { ParameterKind::Integer } else { ParameterKind::Text },
        values: Vec::new(),
        min: None,
        max: None,
        default: ParameterDefault::Missing,
        required: false,
    }
}

pub(crate) fn value_of(scalar: Scalar<'_>) -> Value<'_> {
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
        QueryError::Spill(error) if error.kind() == std::io::ErrorKind::StorageFull => Kind::Unavailable,
        QueryError::Value(_) | QueryError::Parameters { .. } => Kind::Invalid,
        QueryError::Store(store::Error::Busy) => {
            return Failure::new(Kind::Busy, "the configuration has just changed: try again");
        }
        _ => {
            tracing::error!(%error, "a query failed");
            Kind::Internal
        }
    };
    Failure::new(kind, error.to_string())
}
