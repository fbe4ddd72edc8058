//! Declared queries: prepared once with the source of each parameter, run within a budget. [`super::query_answer`] answers requests.

use super::path_parameter::of_path;
use crate::config::{Action, EndpointConfig, path_parameters};
use crate::failure::Failure;
use crate::requests::params;
use crate::requests::params::value_of;
use crate::service::{Local, PathTexts};
use crate::statements::guard::DeclaredGuard;
use crate::statements::guard::Ended;
use crate::statements::paging::{ITEMS, Page, Pages};
use crate::threads::client::ClientWatch;
use crate::threads::loop_time::{Habit, Habits};
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::Moment;
use docs::catalog::Catalog;
use docs::config::{Parameter, ParameterDefault};
use docs::sql::{Budget, ExecutionCounts, OwnedValue, PreparedQuery, QueryError, SqlError, Value};
use docs::statements::Guard;
use http::{LateReply, Params};
use std::sync::Arc;

/// A prepared declared query.
pub(crate) struct DeclaredQuery {
    /// Its endpoint's route, which the log shows instead of the text.
    pub(crate) route: Box<str>,
    pub(crate) query: PreparedQuery,
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
        let prepared = PreparedQuery::prepare(sql, catalog).map_err(|error: SqlError| error.to_string());
        Some(prepared.and_then(|query| {
            let query = match limit {
                Some(limit) => query.with_limit(*limit),
                None => query,
            };
            let guard = endpoint.guard.as_ref().map(|guard| DeclaredGuard::prepare(guard, file, catalog));
            let guard = guard.transpose()?;
            // No other source has the name of such a column: that is a mistake of the file (`lifecycle::loading`).
            let of_guard = |name: &str| guard.as_ref().and_then(|guard| guard.column(name)).map(Source::Guard);
            let sources = query
                .parameters()
                .iter()
                .map(|name| of_guard(name).map_or_else(|| source(name, endpoint, file, catalog), Ok));
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
    pub(crate) fn statement(&self) -> &PreparedQuery {
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
    pub(super) fn report_plan(
        &self,
        queries: &Queries,
        outcome: &ExecutionCounts,
        asked: (&[Value<'_>], Option<&Page>),
    ) {
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
        session: &docs::ReaderSession,
        (values, page, guard): (&[OwnedValue], Option<&Page>, Option<&Guard>),
        budget: &Budget<'_>,
        queries: &Queries,
    ) -> Result<WholeReply, Ended> {
        let values: Vec<Value<'_>> = values.iter().map(OwnedValue::value).collect();
        let mut out = Vec::new();
        let outcome = self.run(session, (&values, page, guard), &mut docs::sql::Scratch::new(), budget, &mut out)?;
        if queries.is_reported(&outcome) {
            self.report_plan(queries, &outcome, (&values, page));
        }
        Ok((out, self.plan_of((&values, page)).0))
    }

    /// The same with helper threads; it is counted, and a reply may include the plan.
    pub(super) fn run_long(
        &self,
        session: &docs::ReaderSession,
        (values, page, guard): (&[OwnedValue], Option<&Page>, Option<&Guard>),
        budget: &Budget<'_>,
        queries: &Queries,
        (client, late): (&ClientWatch, Option<&mut LateReply>),
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
        session: &docs::ReaderSession,
        (values, page, guard): (&[Value<'_>], Option<&Page>, Option<&Guard>),
        scratch: &mut docs::sql::Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, Ended> {
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
        let run = if self.one_row { PreparedQuery::write_row } else { PreparedQuery::write_array };
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
        let mut given = params::ParamValues::default();
        params::read(&self.declared, query, text, &mut given)?;
        let mut path_texts = path_texts.iter_mut();
        for (slot, value) in self.slots.iter().zip(values) {
            *value = match slot {
                Source::Request(place) => value_of(given.get(*place)),
                Source::File(parameter) => value_of(params::default_of(parameter)),
                Source::Guard(_) => Value::Null,
                Source::Path(parameter) => {
                    // A path has no more parameters than there are buffers: the router refuses such routes.
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
