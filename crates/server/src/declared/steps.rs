//! Endpoints of several statements: one transaction, submitted from the loop within a small budget. If it scans more rows, or
//! makes a larger reply, it is run again on the pool with the service's whole budget.

use super::path_parameter::of_path;
use crate::access::token::Permit;
use crate::config::{Action, EndpointConfig, StepConfig, path_parameters};
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::reads::named::Named;
use crate::replies::large;
use crate::replies::media::JSON;
use crate::requests::params;
use crate::requests::params::value_of;
use crate::service::permission;
use crate::service::query_limits::QueryLimits;
use crate::service::write;
use crate::service::{Local, PathTexts, Service, Shared};
use crate::threads::background;
use crate::threads::client::ClientWatch;
use crate::threads::in_flight::Taken;
use crate::threads::loop_time::{Habit, Habits};
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::catalog::Catalog;
use docs::config::Parameter;
use docs::order::Scalar;
use docs::sql::{Budget, ColumnType, ExecutionCounts, JsonTypes, OwnedValue, QueryError, Value};
use docs::statements::{ModifyError, StepMistake, StepText, Steps, StepsDid, StepsError};
use docs::{BodySchema, DocumentDatabase, RowsWanted, StepsCall, WriteError};
use http::{HttpRequest, LateReply, Params, Reply, Status};
use std::ops::Range;
use std::sync::Arc;

/// Rows that steps may scan while others wait for them: on a loop, and when the store prepares them again.
const LOOP_ROWS_MAX: u64 = 20_000;
/// Limit of the bytes of rows that they hold there, and of their parameters: steps with more begin on the pool.
const LOOP_BYTES_MAX: usize = 256 << 10;
/// Limit of a reply that waits with its transaction.
const REPLY_BYTES_MAX: usize = 4 << 10;

/// Prepared steps of an endpoint.
pub(crate) struct DeclaredSteps {
    steps: Arc<Steps>,
    /// Declared parameters of the request's query. The steps' parameters are in this order: these, the path's, the body's, the
    /// file's.
    declared: Vec<Parameter>,
    path: Vec<Parameter>,
    body: Option<Arc<BodySchema>>,
    file: Vec<Parameter>,
    rows: RowsWanted,
    reply: Arc<Answered>,
    habits: Arc<Habits>,
}

/// How the result of the steps is answered.
struct Answered {
    /// For the log.
    route: Box<str>,
    status: Status,
    /// Bytes before and after the rows; if no rows are returned, the whole reply is before.
    before: Box<[u8]>,
    behind: Box<[u8]>,
    /// By step: status and detail if its expectation fails.
    otherwise: Vec<(u16, String)>,
}

/// A mistake in the file: its bytes, and a description.
pub(super) type Misplaced = (Range<usize>, String);

impl DeclaredSteps {
    /// Prepares an endpoint's steps; `None` if it has none.
    pub(crate) fn prepare(
        endpoint: &EndpointConfig,
        file: &[Parameter],
        catalog: &Catalog,
    ) -> Option<Result<DeclaredSteps, Vec<Misplaced>>> {
        let Action::Steps { steps, one_row, wrap } = &endpoint.action else { return None };
        let prepared = match prepare_steps(steps, endpoint, file, catalog) {
            Ok(prepared) => prepared,
            Err(mistakes) => {
                let place = |mistake: &StepMistake| {
                    let step = steps.get(mistake.step);
                    step.map_or(endpoint.span.clone(), |step| step.spans[usize::from(mistake.in_expect)].clone())
                };
                let placed = mistakes.iter().map(|mistake| (place(mistake), mistake.error.to_string()));
                return Some(Err(placed.collect()));
            }
        };
        let path = path_parameters(&endpoint.pattern).map(|name| of_path(name, endpoint, catalog)).collect();
        let gives = !prepared.columns().is_empty() && endpoint.reply.is_none();
        if *one_row && endpoint.reply.is_none() && !gives {
            let what = "`result = \"row\"`, but the last step gives no rows: it has no RETURNING".to_owned();
            return Some(Err(vec![(endpoint.span.clone(), what)]));
        }
        let rows = match (gives, one_row) {
            (false, _) => RowsWanted::None,
            (true, false) => RowsWanted::All,
            (true, true) => RowsWanted::First,
        };
        Some(Ok(DeclaredSteps {
            steps: Arc::new(prepared),
            declared: endpoint.params.clone(),
            path,
            body: endpoint.body.clone(),
            file: file.to_vec(),
            rows,
            reply: Arc::new(Answered::new(endpoint, steps, gives, wrap.as_deref())),
            habits: Arc::default(),
        }))
    }

    /// Approximate bytes of memory, without their plans.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<DeclaredSteps>() + self.steps.bytes()
    }

    /// Whether a step may write.
    pub(crate) fn writes(&self) -> bool {
        self.steps.writes()
    }

    /// The columns of the last step, by the types of the declared parameters.
    pub(crate) fn column_types(&self, parameter: &dyn Fn(&str) -> JsonTypes) -> Vec<ColumnType> {
        self.steps.column_types(parameter)
    }

    /// Answers one request. The `required` document must exist when the transaction is done.
    pub(crate) fn answer(
        &self,
        service: &Service,
        local: &mut Local,
        request: &HttpRequest<'_>,
        params: &Params<'_, '_>,
        (required, permit): (Option<&Named>, Permit),
        reply: Reply<'_>,
    ) {
        let Local { session, held, text, path_texts, lp, .. } = local;
        let required = required.and_then(|named| named.required(params, text));
        let before = match self.before_body(request, params, text, path_texts) {
            Ok(before) => before,
            Err(failure) => return service.fail(&failure, reply),
        };
        let of_body = match self.body.as_ref().map(|body| body.values_on_loop(request.body())).transpose() {
            Ok(of_body) => of_body,
            Err(error) => return service.fail(&refusal::of_write(&error), reply),
        };
        let long_body = self.body.as_ref().filter(|_| matches!(of_body, Some(None)));
        let of_body = of_body.flatten().unwrap_or_default();
        let given = |value: &OwnedValue| !matches!(value.value(), Value::Null);
        let habit = Habit::of_given(before.iter().chain(&of_body).map(given));
        let body_bytes = if long_body.is_some() { request.body().len() } else { 0 };
        let bytes: usize = before.iter().chain(&of_body).map(|value| size_of::<OwnedValue>() + value.bytes()).sum();
        let Some(taken) = service.writes.take(write::WAITING_BYTES + bytes + body_bytes + REPLY_BYTES_MAX) else {
            return service.fail(&refusal::of_write(&WriteError::Busy), reply);
        };
        let call = StepsCall {
            steps: Arc::clone(&self.steps),
            parameters: before,
            required,
            rows: self.rows,
            now_ms: params::unix_ms(),
            rows_max: service.scan_rows_max.min(LOOP_ROWS_MAX),
            bytes_max: service.loop_query_bytes.min(LOOP_BYTES_MAX),
            reply_bytes_max: REPLY_BYTES_MAX,
        };
        let owed = Owed {
            database: service.database.clone(),
            shared: Arc::clone(&service.shared),
            errors: Arc::clone(&service.errors),
            reply: Arc::clone(&self.reply),
            late: reply.later_watched(),
            permit,
            wants_plan: permission::wants_plan(service, request),
            taken,
            habits: Arc::clone(&self.habits),
            habit,
        };
        let behind: Vec<OwnedValue> = self.file.iter().map(|parameter| owned(params::default_of(parameter))).collect();
        let with_all = move |mut call: StepsCall, of_body: Vec<OwnedValue>| {
            call.parameters.extend(of_body.into_iter().chain(behind));
            call
        };
        if let Some(body) = long_body {
            let (body, text) = (Arc::clone(body), request.body().to_vec());
            return owed.run(move || {
                let of_body = body.values(&text).map_err(|error| refusal::of_write(&error))?;
                Ok(with_all(call, of_body))
            });
        }
        if bytes > LOOP_BYTES_MAX || self.habits.is_long(habit, lp) {
            return owed.run(move || Ok(with_all(call, of_body)));
        }
        let done = move |call, did, outcome| owed.told(call, &did, outcome);
        held.steps(&service.database, session, with_all(call, of_body), Box::new(done));
    }

    /// The values of the parameters before those of the body, in the steps' order.
    fn before_body(
        &self,
        request: &HttpRequest<'_>,
        params: &Params<'_, '_>,
        text: &mut Vec<u8>,
        path_texts: &mut PathTexts,
    ) -> Result<Vec<OwnedValue>, Failure> {
        let mut given = params::ParamValues::default();
        params::read(&self.declared, request.query(), text, &mut given)?;
        let mut values: Vec<OwnedValue> = (0..self.declared.len()).map(|place| owned(given.get(place))).collect();
        for (parameter, text) in self.path.iter().zip(path_texts) {
            values.push(owned(params::of_path(parameter, params, text)?));
        }
        Ok(values)
    }
}

fn owned(value: Scalar<'_>) -> OwnedValue {
    OwnedValue::new(&value_of(value))
}

impl Answered {
    fn new(endpoint: &EndpointConfig, steps: &[StepConfig], gives: bool, wrap: Option<&str>) -> Answered {
        let before = match (gives, wrap) {
            (true, Some(name)) => format!("{{{}:", serde_json::Value::from(name)),
            (true, None) => String::new(),
            (false, _) => endpoint.reply.clone().unwrap_or_else(|| "{}".to_owned()),
        };
        let behind: Box<[u8]> = if gives && wrap.is_some() { Box::new([b'}']) } else { Box::default() };
        let told = |(number, step): (usize, &StepConfig)| {
            let expect = step.expect.as_deref().unwrap_or_default();
            let detail = step.detail.clone();
            (step.otherwise, detail.unwrap_or_else(|| format!("step {} expects {expect}", number + 1)))
        };
        Answered {
            route: endpoint.route.as_str().into(),
            status: Status(endpoint.status.unwrap_or(200)),
            before: before.into_bytes().into(),
            behind,
            otherwise: steps.iter().enumerate().map(told).collect(),
        }
    }

    /// Counts and logs the steps like a single statement.
    fn count(
        &self,
        queries: &Queries,
        did: &StepsDid,
        error: Option<&StepsError>,
        (late, wants_plan): (&mut LateReply, bool),
    ) {
        if did.scans && wants_plan {
            late.header(PLAN_FIELD, &did.plan);
        }
        match error {
            Some(StepsError::Failed { error: ModifyError::Query(error), .. }) => {
                queries.count_ended(error, &did.plan, did.scans, &self.route, Some(&late.presence()));
            }
            _ => {
                let outcome = ExecutionCounts { rows: 0, rows_read: did.rows_read, scans: did.scans };
                queries.count(&outcome, &did.plan, did.scans, &self.route, Some(&late.presence()));
            }
        }
    }

    fn body(&self, rows: &[u8]) -> Vec<u8> {
        [&self.before, rows, &self.behind].concat()
    }

    fn failure(&self, error: StepsError) -> Failure {
        match error {
            StepsError::Failed { error, .. } => refusal::of_modify(&error),
            StepsError::Unmet { step, rows } => {
                let told = self.otherwise.get(step);
                let (status, detail) = told.map_or((409, ""), |(status, detail)| (*status, detail.as_str()));
                tracing::debug!(step, rows, "an expectation does not hold");
                Failure::unmet(status, detail.to_owned())
            }
            StepsError::NoRow => Failure::new(FailureKind::NotFound, "the last step has no row"),
            StepsError::Missing => Failure::new(FailureKind::NotFound, "there is no such document"),
            StepsError::Store(error) => refusal::of_store(error),
            other => Failure::new(FailureKind::Internal, format!("{other:?}")),
        }
    }
}

/// The pending reply of submitted steps.
struct Owed {
    database: DocumentDatabase,
    shared: Arc<Shared>,
    errors: Arc<ErrorRules>,
    reply: Arc<Answered>,
    late: LateReply,
    permit: Permit,
    wants_plan: bool,
    taken: Taken,
    habits: Arc<Habits>,
    habit: Habit,
}

impl Owed {
    /// Answers, unless the steps exceed their limits here: then they are run on the pool.
    fn told(mut self, call: StepsCall, did: &StepsDid, outcome: Result<Vec<u8>, StepsError>) {
        if let Err(StepsError::Failed {
            error:
                error @ (ModifyError::Query(QueryError::Limit { .. } | QueryError::Deadline)
                | ModifyError::Write(WriteError::Busy)),
            ..
        }) = &outcome
        {
            // A conflict with other writes says nothing about how long the steps take.
            if !matches!(error, ModifyError::Write(_))
                && let Some(lp) = self.shared.loops.first()
            {
                self.habits.set_long(self.habit, lp);
            }
            self.shared.queries.count_left_loop();
            return self.run(move || Ok(call));
        }
        let told = (&mut self.late, self.wants_plan);
        self.reply.count(&self.shared.queries, did, outcome.as_ref().err(), told);
        match outcome {
            Ok(rows) => self.late.send(self.reply.status, JSON, self.reply.body(&rows)),
            Err(error) => refusal::refuse(&self.errors, self.late, &self.reply.failure(error)),
        }
    }

    #[cold]
    fn run(self, call: impl FnOnce() -> Result<StepsCall, Failure> + Send + 'static) {
        let Owed { database, shared, errors, reply, late, permit, wants_plan, taken, habits, habit } = self;
        let limits = QueryLimits::of(&shared).of_change();
        let (pool, replies, queries) = (Arc::clone(&shared.pool), shared.replies.clone(), Arc::clone(&shared.queries));
        let client = Arc::new(ClientWatch::of(&late, &permit, &pool));
        let place = match pool.place(late.host(), 0, habits.expected(habit)) {
            Ok(place) => place,
            Err(failure) => return refusal::refuse(&errors, late, &failure),
        };
        background::run_placed(limits.ends(), (&pool, place), &Arc::clone(&errors), late, move |mut late| {
            let running = habits.begin(habit);
            let cancel_check = limits.cancel_check(&client);
            let call = match client.permitted(docs::with_cancel_check(Some(&cancel_check), call)) {
                Ok(call) => call,
                // The check of its body may have been ended.
                Err(_) if cancel_check() => {
                    let failure = client.failure(refusal::of_query(&QueryError::Deadline));
                    return refusal::refuse(&errors, late, &failure);
                }
                Err(failure) => return refusal::refuse(&errors, late, &failure),
            };
            let mut did = StepsDid::default();
            let run = |budget: &Budget<'_>| database.run_steps(&call, budget, &mut did);
            let outcome = limits.run_change(&client, call.now_ms, run);
            drop((call, taken, running));
            reply.count(&queries, &did, outcome.as_ref().err(), (&mut late, wants_plan));
            match outcome {
                Ok(rows) => large::send_late(&replies, &errors, late, reply.status, JSON, reply.body(&rows)),
                Err(error) => refusal::refuse(&errors, late, &client.failure(reply.failure(error))),
            }
        });
    }
}

/// Prepares an endpoint's steps with the parameters that it gives them, in this order.
pub(crate) fn prepare_steps(
    steps: &[StepConfig],
    endpoint: &EndpointConfig,
    file: &[Parameter],
    catalog: &Catalog,
) -> Result<Steps, Vec<StepMistake>> {
    let mut outside: Vec<&str> = endpoint.params.iter().map(|known| known.name.as_str()).collect();
    outside.extend(path_parameters(&endpoint.pattern));
    outside.extend(endpoint.body.iter().flat_map(|body| body.names()));
    outside.extend(file.iter().map(|known| known.name.as_str()));
    let texts: Vec<StepText<'_>> =
        steps.iter().map(|step| StepText { sql: &step.sql, expect: step.expect.as_deref() }).collect();
    Steps::prepare(&texts, &outside, catalog)
}
