//! Declared queries: prepared once, executed on the loop within a small budget. A query that takes longer than about a
//! millisecond, or makes a larger result, is run again on the pool with the service's whole budget, and answered late: a loop is
//! never blocked for long. The next queries of its kind go to the pool at once ([`crate::threads::loop_time`]), which rejects
//! them if its queue is full.

use super::kept_request::KeptRequest;
use super::late_query::{LateQuery, QueryRequest};
use super::path_parameter::of_path;
use crate::config::{Action, EndpointConfig, path_parameters};
use crate::failure::{Failure, refusal};
use crate::reads::cold::Room;
use crate::reads::named::Unread;
use crate::replies::large;
use crate::replies::media::{JSON, Shape};
use crate::requests::params;
use crate::requests::params::value_of;
use crate::service::query_limits::Whole;
use crate::service::{Local, PathTexts, Service, cold_read, permission};
use crate::statements::guard::{DeclaredGuard, Ended};
use crate::statements::paging::{self, ITEMS, Page, Pages};
use crate::threads::client::Watch;
use crate::threads::loop_time::{Habit, Habits, LoopTime};
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::Moment;
use docs::catalog::Catalog;
use docs::config::{Parameter, ParameterDefault};
use docs::sql::{Budget, COMPUTED, Guard, Outcome, OwnedValue, Query, QueryError, ROW, SqlError, Value};
use http::{LateReply, Params, Reply, Request, Status};
use std::sync::Arc;

/// A prepared declared query.
pub(crate) struct DeclaredQuery {
    /// Its endpoint's route, which the log shows instead of the text.
    pub(crate) route: Box<str>,
    pub(crate) query: Query,
    /// The declared parameters of the request's query.
    declared: Vec<Parameter>,
    /// Source of each slot of the statement.
    pub(super) slots: Vec<Source>,
    /// Query that must return a row in the state that the statement reads.
    pub(super) guard: Option<DeclaredGuard>,
    /// It calls date functions, so it needs the time.
    uses_clock: bool,
    pub(super) one_row: bool,
    pub(crate) habits: Habits,
    /// Bytes before and after the rows; for a page everything before its first row.
    pub(crate) before: Box<[u8]>,
    pub(crate) behind: Box<[u8]>,
    /// If it returns pages.
    pub(super) pages: Option<Box<Pages>>,
}

/// Source of a statement's parameter.
pub(super) enum Source {
    /// A declared parameter of the request, by its index.
    Request(usize),
    /// A path parameter, with its type.
    Path(Parameter),
    /// One of the file's `[params]`.
    File(Parameter),
    /// A column of the guard's row, known when the statement runs.
    Guard(usize),
}

impl DeclaredQuery {
    /// Prepares an endpoint's statement and finds the source of each of its parameters.
    pub(crate) fn prepare(
        endpoint: &EndpointConfig,
        file: &[Parameter],
        catalog: &Catalog,
    ) -> Option<Result<DeclaredQuery, String>> {
        let Action::Query { sql, one_row, wrap, limit, page, .. } = &endpoint.action else { return None };
        let prepared = Query::prepare(sql, catalog).map_err(|error: SqlError| error.to_string());
        Some(prepared.and_then(|query| {
            let query = match limit {
                Some(limit) => query.with_limit(*limit),
                None => query,
            };
            let guard = endpoint.guard.as_ref().map(|guard| DeclaredGuard::prepare(guard, file, catalog));
            let guard = guard.transpose()?;
            let of_guard = |name: &str| guard.as_ref().and_then(|guard| guard.column(name)).map(Source::Guard);
            let sources = query.parameters().iter().map(|name| {
                let found = source(name, endpoint, file, catalog);
                found.or_else(|problem| of_guard(name).ok_or(problem))
            });
            let slots = sources.collect::<Result<Vec<Source>, String>>()?;
            let pages = page.map(|page| Pages::prepare(sql, page, catalog)).transpose();
            let pages = pages.map_err(|error| error.to_string())?.map(Box::new);
            let wrap = wrap.as_deref().or(pages.as_ref().map(|_| ITEMS));
            let array = if pages.is_some() { "[" } else { "" };
            let before = wrap.map(|name| format!("{{{}:{array}", serde_json::Value::from(name)));
            Ok(DeclaredQuery {
                route: endpoint.route.as_str().into(),
                uses_clock: query.uses_clock(),
                query,
                declared: endpoint.params.clone(),
                slots,
                guard,
                one_row: *one_row,
                habits: Habits::default(),
                behind: before.iter().map(|_| b'}').collect(),
                before: before.unwrap_or_default().into_bytes().into(),
                pages,
            })
        }))
    }

    /// Approximate bytes of memory, without its plans.
    pub(crate) fn bytes(&self) -> usize {
        let pages = self.pages.as_deref().map_or(0, Pages::bytes);
        size_of::<DeclaredQuery>() + self.query.bytes() + pages + self.slots.len() * size_of::<Source>()
    }

    /// The statement.
    pub(crate) fn statement(&self) -> &Query {
        &self.query
    }

    /// Records the first range of a request's run for prefetching.
    #[inline]
    pub(crate) fn foresee(&self, local: &mut Local, params: &Params<'_, '_>, query: &str) {
        let Local { session, text, out: from, scratch, .. } = local;
        self.query.with_first_range(scratch, |range| {
            let Some(range) = range else { return };
            from.clear();
            for slot in range.slots() {
                let value = match self.slots.get(slot) {
                    Some(Source::Request(place)) => {
                        self.declared.get(*place).and_then(|parameter| params::sent(parameter, query))
                    }
                    Some(Source::File(parameter)) => Some(params::default_of(parameter)),
                    Some(Source::Path(parameter)) => params::of_path(parameter, params, text).ok(),
                    Some(Source::Guard(_)) | None => None,
                };
                // The range begins there or later; the run reports errors.
                let Some(value) = value else { break };
                docs::order::lower(value, from);
            }
            session.foresee_range(&range, from);
        });
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
        let Local { session, text, out, scratch, path_texts, cold, lp, .. } = local;
        let mut values = Values::new(self.slots.len());
        match self.read_values(request.query(), params, text, path_texts, values.slots()) {
            Ok(()) => {}
            // A missing required document takes precedence over a bad parameter.
            Err(failure) if unread.is_some() => return self.fail_late(service, failure, unread, reply),
            Err(failure) => return service.fail(&failure, reply),
        }
        let page = match self.pages.as_deref().map(|pages| self.page(pages, request.query(), values.as_slice())) {
            None => None,
            Some(Ok(page)) => Some(page),
            Some(Err(failure)) if unread.is_some() => return self.fail_late(service, failure, unread, reply),
            Some(Err(failure)) => return service.fail(&failure, reply),
        };
        let guard = match self.guard.as_ref().map(|guard| guard.of(request)).transpose() {
            Ok(guard) => guard,
            Err(failure) => return service.fail(&failure, reply),
        };
        let asks = |page, now_ms, unread| {
            self.asked((service, request), (values.as_slice(), page), now_ms, (guard.clone(), unread))
        };
        if request.names_media() && !self.one_row {
            let shape = Shape::of_accept(request);
            if shape != Shape::Json && page.is_none() {
                let asked = asks(None, self.now_ms(), unread);
                return self.hand_over(service, asked, reply);
            } else if shape != Shape::Json {
                return service.fail(&paging::not_json(), reply);
            }
        }
        let habit = Habit::of(values.as_slice());
        if self.habits.is_long(habit, lp) && unread.is_none() {
            return self.hand_over(service, asks(page, self.now_ms(), None), reply);
        }
        let time = LoopTime::new(lp);
        let is_over = || time.is_over();
        let budget = Budget {
            rows_max: service.scan_rows_max,
            output_bytes_max: service.loop_query_bytes,
            memory_bytes_max: service.loop_query_bytes,
            spill: None,
            deadline: Some(&is_over),
            now_ms: self.now_ms(),
        };
        let ran = if unread.is_some() {
            Err(Ended::Query(QueryError::Store(store::Error::NotInMemory)))
        } else {
            self.run(session, (values.as_slice(), page.as_ref(), guard.as_ref()), scratch, &budget, out)
        };
        match ran {
            Err(Ended::Query(QueryError::Store(store::Error::NotInMemory))) => {
                self.answer_cold(service, asks(page, budget.now_ms, unread), reply);
                cold_read::count_cold(service, cold);
            }
            Ok(outcome) => {
                let mut reply = reply;
                let asked = (values.as_slice(), page.as_ref());
                if service.queries.is_told(&outcome) {
                    self.tell(&service.queries, &outcome, asked);
                }
                if request.header(PLAN_FIELD).is_some() && permission::wants_plan(service, request) {
                    reply.header(PLAN_FIELD, &self.plan_of(asked).0);
                }
                large::send(&service.replies, &service.errors, reply, Status(200), JSON, out);
            }
            // Any other limit would be reached on the pool again.
            Err(Ended::Query(error))
                if matches!(error, QueryError::Deadline | QueryError::Limit { what: COMPUTED | ROW, .. })
                    || matches!(error, QueryError::Limit { limit, .. } if limit == service.loop_query_bytes as u64) =>
            {
                out.clear();
                self.habits.set_long(habit, lp);
                service.queries.count_left_loop();
                self.hand_over(service, asks(page, budget.now_ms, None), reply);
            }
            Err(ended) if ended.is_of_reload() => {
                out.clear();
                self.hand_over(service, asks(page, budget.now_ms, None), reply);
            }
            Err(ended) => service.fail(&ended.failure(), reply),
        }
    }

    /// The request's query, for a thread that waits.
    #[cold]
    fn asked(
        &self,
        (service, request): (&Service, &Request<'_>),
        (values, page): (&[Value<'_>], Option<Page>),
        now_ms: i64,
        (guard, required): (Option<Guard>, Option<Unread>),
    ) -> QueryRequest {
        let values = values.iter().map(OwnedValue::new).collect();
        QueryRequest { kept: KeptRequest::of(service, request), values, page, guard, now_ms, required }
    }

    /// Runs it on the pool, from the beginning.
    #[cold]
    fn hand_over(self: &Arc<Self>, service: &Service, asked: QueryRequest, reply: Reply<'_>) {
        let query = LateQuery::new(self, service, asked, Whole::of(service));
        Arc::new(query).start(reply.later_watched());
    }

    /// The query of a request that began with another configuration's endpoint; or an answer, if it is invalid.
    #[cold]
    pub(super) fn asked_again(
        self: &Arc<Self>,
        service: &Service,
        (request, params): (&KeptRequest, &Params<'_, '_>),
        whole: Whole,
    ) -> Result<LateQuery, Failure> {
        let (mut text, mut path_texts) = (Vec::new(), PathTexts::default());
        let mut values = Values::new(self.slots.len());
        self.read_values(&request.query, params, &mut text, &mut path_texts, values.slots())?;
        let page = self.pages.as_deref().map(|pages| self.page(pages, &request.query, values.as_slice()));
        let page = page.transpose()?;
        if page.is_some() && request.shape != Shape::Json {
            return Err(paging::not_json());
        }
        let values = values.as_slice().iter().map(OwnedValue::new).collect();
        let (kept, now_ms) = (request.clone(), self.now_ms());
        // Endpoints with a guard do not come here: the kept request has no header fields.
        let asked = QueryRequest { kept, values, page, guard: None, now_ms, required: None };
        Ok(LateQuery::new(self, service, asked, whole))
    }

    /// Runs it again, from the beginning, on threads that may wait for the disk.
    fn answer_cold(self: &Arc<Self>, service: &Service, asked: QueryRequest, reply: Reply<'_>) {
        let wants_plan = asked.kept.wants_plan;
        let (errors, replies) = (Arc::clone(&service.errors), service.replies.clone());
        let query = Arc::new(LateQuery::new(self, service, asked, Whole::of(service)));
        let for_pool = Arc::clone(&query);
        let read = move |session: &docs::Session, room: Room| query.run_cold(session, room);
        let done = move |mut late: LateReply, told: Result<WholeReply, Failure>| match told {
            Ok((body, plan)) => {
                if wants_plan {
                    late.header(PLAN_FIELD, &plan);
                }
                large::send_late(&replies, &errors, late, Status(200), JSON, body);
            }
            Err(failure) => refusal::refuse(&errors, late, &failure),
        };
        let late = reply.later_watched();
        cold_read::read_or(service, &service.errors, late, (read, done), |late, _| for_pool.start(late));
    }

    /// Answers a failed request, with 404 if a required document does not exist.
    #[cold]
    fn fail_late(&self, service: &Service, failure: Failure, required: Option<Unread>, reply: Reply<'_>) {
        let errors = Arc::clone(&service.errors);
        let read = move |session: &docs::Session, _: Room| {
            required.iter().try_for_each(|required| required.check(session)).map(Some)
        };
        cold_read::read_late(service, &service.errors, reply.later_watched(), read, move |late, checked| {
            refusal::refuse(&errors, late, &checked.err().unwrap_or(failure));
        });
    }

    /// The columns of the guard's row, empty without a guard; ends the request if there is no row.
    pub(crate) fn admit(&self, guard: Option<&Guard>, now: &Moment<'_>) -> Result<Vec<OwnedValue>, Ended> {
        match (&self.guard, guard) {
            (None, _) => Ok(Vec::new()),
            (Some(declared), Some(guard)) => declared.admit(guard, now),
            // A guard that was not run gives no permission.
            (Some(declared), None) => Err(Ended::Refused(declared.refused())),
        }
    }

    /// The statement's values with those of the guard's row.
    pub(super) fn filled<'v>(&self, values: &[Value<'v>], row: &'v [OwnedValue]) -> Vec<Value<'v>> {
        let filled = self.slots.iter().zip(values).map(|(slot, value)| match slot {
            Source::Guard(column) => row.get(*column).map_or(Value::Null, OwnedValue::value),
            Source::Request(_) | Source::Path(_) | Source::File(_) => *value,
        });
        filled.collect()
    }

    /// Whether its result is one row instead of an array.
    pub(super) fn has_one_row(&self) -> bool {
        self.one_row
    }

    /// How the rows of a run are found, in one line, and whether a whole collection is read.
    pub(super) fn plan_of(&self, (values, page): (&[Value<'_>], Option<&Page>)) -> (Arc<str>, bool) {
        match self.pages.as_deref().zip(page) {
            Some((pages, page)) => pages.plan_line(page, values),
            None => self.query.plan_line(values),
        }
    }

    /// Counts a run that scanned a whole collection or many rows.
    #[cold]
    pub(super) fn tell(&self, queries: &Queries, outcome: &Outcome, asked: (&[Value<'_>], Option<&Page>)) {
        queries.count(outcome, &self.plan_of(asked).0, outcome.scans, &self.route, None);
    }

    /// The time of the statement's date functions.
    #[inline]
    pub(super) fn now_ms(&self) -> i64 {
        if self.uses_clock { params::unix_ms() } else { 0 }
    }

    /// The requested page. A cursor depends on the values that the request gave, not on values that the server filled in.
    #[cold]
    pub(super) fn page(&self, pages: &Pages, query: &str, values: &[Value<'_>]) -> Result<Page, Failure> {
        let is_given = |slot: &Source| match slot {
            Source::Path(_) => true,
            Source::File(_) | Source::Guard(_) => false,
            Source::Request(place) => self.declared.get(*place).is_some_and(|parameter| {
                let clock = parameter.default == ParameterDefault::Clock;
                !clock || http::query::pairs(query).any(|(name, _)| name == parameter.name)
            }),
        };
        let given = self.slots.iter().zip(values).filter(|(slot, _)| is_given(slot));
        pages.wanted(query, given.map(|(_, value)| value))
    }

    /// The result and its plan.
    pub(super) fn run_whole(
        &self,
        session: &docs::Session,
        (values, page, guard): (&[OwnedValue], Option<&Page>, Option<&Guard>),
        budget: &Budget<'_>,
        queries: &Queries,
    ) -> Result<WholeReply, Ended> {
        let values: Vec<Value<'_>> = values.iter().map(OwnedValue::value).collect();
        let mut out = Vec::new();
        let outcome = self.run(session, (&values, page, guard), &mut docs::sql::Scratch::new(), budget, &mut out)?;
        if queries.is_told(&outcome) {
            self.tell(queries, &outcome, (&values, page));
        }
        Ok((out, self.plan_of((&values, page)).0))
    }

    /// The same with helper threads; it is counted, and a reply may include the plan.
    pub(super) fn run_long(
        &self,
        session: &docs::Session,
        (values, page, guard): (&[OwnedValue], Option<&Page>, Option<&Guard>),
        budget: &Budget<'_>,
        queries: &Queries,
        (client, late): (&Watch, Option<&mut LateReply>),
    ) -> Result<Vec<u8>, Ended> {
        let values: Vec<Value<'_>> = values.iter().map(OwnedValue::value).collect();
        let (mut out, running) = (Vec::new(), self.habits.begin(Habit::of(&values)));
        let ran = self.run(session, (&values, page, guard), &mut queries.scratch(), budget, &mut out);
        drop(running);
        let (plan, scans) = self.plan_of((&values, page));
        if let Err(ended @ Ended::Query(error)) = &ran
            && !ended.is_of_reload()
        {
            queries.count_ended(error, &plan, scans, &self.route, Some(client.presence()));
        }
        queries.count(&ran?, &plan, scans, &self.route, Some(client.presence()));
        if let Some(late) = late {
            late.header(PLAN_FIELD, &plan);
        }
        Ok(out)
    }

    pub(super) fn run(
        &self,
        session: &docs::Session,
        (values, page, guard): (&[Value<'_>], Option<&Page>, Option<&Guard>),
        scratch: &mut docs::sql::Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Ended> {
        out.clear();
        out.extend_from_slice(&self.before);
        let now = session.now();
        let (row, filled);
        let values = match self.guard {
            None => values,
            Some(_) => {
                row = self.admit(guard, &now)?;
                filled = self.filled(values, &row);
                &filled
            }
        };
        if let Some((pages, page)) = self.pages.as_deref().zip(page) {
            let outcome = pages.write((&now, page), values, scratch, budget, out).map_err(Ended::Query)?;
            now.check_indexes().map_err(|error| Ended::Query(QueryError::Store(error)))?;
            return Ok(outcome);
        }
        let run = if self.one_row { Query::write_row } else { Query::write_array };
        let outcome = run(&self.query, now.view(), values, scratch, budget, out).map_err(Ended::Query)?;
        // Rows are copies; this checks that their source was valid.
        now.check_indexes().map_err(|error| Ended::Query(QueryError::Store(error)))?;
        if self.one_row && outcome.rows == 0 {
            return Err(Ended::NoRow);
        }
        out.extend_from_slice(&self.behind);
        Ok(outcome)
    }

    /// The statement's values by slot.
    pub(super) fn read_values<'v>(
        &'v self,
        query: &'v str,
        params: &Params<'_, 'v>,
        text: &'v mut Vec<u8>,
        path_texts: &'v mut PathTexts,
        values: &mut [Value<'v>],
    ) -> Result<(), Failure> {
        let mut given = params::Given::default();
        params::read(&self.declared, query, text, &mut given)?;
        let mut path_texts = path_texts.iter_mut();
        for (slot, value) in self.slots.iter().zip(values) {
            *value = match slot {
                Source::Request(place) => value_of(given.get(*place)),
                Source::File(parameter) => value_of(params::default_of(parameter)),
                Source::Guard(_) => Value::Null,
                Source::Path(parameter) => {
                    // A path has no more parameters than there are buffers: the router rejects such routes.
                    let Some(text) = path_texts.next() else { return Err(params::no_such_path(parameter)) };
                    value_of(params::of_path(parameter, params, text)?)
                }
            };
        }
        Ok(())
    }
}

/// More values than this are on the heap.
const VALUES_INLINE: usize = 16;

/// The values of one execution, by slot; without allocation for all but the longest statements.
pub(super) struct Values<'v> {
    inline: [Value<'v>; VALUES_INLINE],
    spilled: Vec<Value<'v>>,
    count: usize,
}

impl<'v> Values<'v> {
    /// NULL for each slot.
    pub(super) fn new(count: usize) -> Self {
        let spilled = if count > VALUES_INLINE { vec![Value::Null; count] } else { Vec::new() };
        Values { inline: [Value::Null; VALUES_INLINE], spilled, count }
    }

    pub(super) fn slots(&mut self) -> &mut [Value<'v>] {
        if self.count > VALUES_INLINE { &mut self.spilled } else { &mut self.inline[..self.count] }
    }

    pub(super) fn as_slice(&self) -> &[Value<'v>] {
        if self.count > VALUES_INLINE { &self.spilled } else { &self.inline[..self.count] }
    }
}

/// A reply's body, and the plan for replies that include it.
pub(super) type WholeReply = (Vec<u8>, Arc<str>);

/// Finds the source of a statement's parameter: a declared parameter, a path parameter, or the file's `[params]`.
fn source(name: &str, endpoint: &EndpointConfig, file: &[Parameter], catalog: &Catalog) -> Result<Source, String> {
    if let Some(place) = endpoint.params.iter().position(|parameter| parameter.name == name) {
        return Ok(Source::Request(place));
    }
    if path_parameters(&endpoint.pattern).any(|parameter| parameter == name) {
        return Ok(Source::Path(of_path(name, endpoint, catalog)));
    }
    if let Some(parameter) = file.iter().find(|parameter| parameter.name == name) {
        return Ok(Source::File(parameter.clone()));
    }
    Err(format!(
        "the query uses :{name}, which is no parameter of the endpoint, no part of the path {}, and not in [params]",
        endpoint.pattern
    ))
}
