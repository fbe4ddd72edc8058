//! `POST /_/query`: `{"sql": …, "params": {…}}`; rows as JSON or, by Accept, NDJSON or CSV. `EXPLAIN` before the query returns
//! its plan (`statements/explain.rs`).
//!
//! With `"limit": N` and `"after": TOKEN` it returns pages (`pages.rs`). Writing statements are handled by `modify.rs`. A query
//! runs on the pool, never on a loop, with limits of rows, bytes and time.

use super::pages::PageWanted;
use super::{fail, modify};
use crate::access::sender::Granted;
use crate::access::token;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::replies::media::RowFormat;
use crate::replies::pipe;
use crate::requests::{json_body, params};
use crate::service::Service;
use crate::service::query_limits::QueryLimits;
use crate::service::write;
use crate::statements::modify::ModifyingStatement;
use crate::statements::statement::{ParameterValues, Statement};
use crate::threads::background;
use crate::threads::client::ClientWatch;
use crate::threads::in_flight::Taken;
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::DocumentDatabase;
use docs::sql::Budget;
use http::{HttpRequest, Reply};
use std::sync::Arc;

/// Limit of a request's body: a statement of the largest size, escaped, and as much for its parameters.
const BODY_BYTES_MAX: usize = 128 << 10;
/// Memory of a waiting request, as a multiple of its bytes: its values as a tree.
const WAITING_PER_BYTE: usize = 4;

pub(super) fn run(service: &Service, request: &HttpRequest<'_>, granted: &Granted, reply: Reply<'_>) {
    let permit = match granted.need(token::READ) {
        Ok(permit) => permit,
        Err(failure) => return fail(&failure, reply),
    };
    let shape = RowFormat::of_accept(request);
    let (taken, (sql, arguments, page)) =
        match admit(service, request.body()).and_then(|taken| Ok((taken, read(request.body())?))) {
            Ok(admitted) => admitted,
            Err(failure) => return fail(&failure, reply),
        };
    if let Some(page) = page {
        return page.answer(service, (sql, arguments, taken), shape, (&permit, reply));
    }
    if ModifyingStatement::is_one(&sql) {
        return match granted.need(token::WRITE) {
            Ok(permit) => modify::run(service, (sql, arguments, taken), (shape, shape.media()), (&permit, reply)),
            Err(failure) => fail(&failure, reply),
        };
    }
    let (database, replies) = (service.database.clone(), service.replies.clone());
    let limits = QueryLimits::of(service);
    let late = reply.later_watched();
    let client = ClientWatch::of(&late, &permit, &service.pool);
    let errors = Arc::new(ErrorRules::default());
    let queries = Arc::clone(&service.queries);
    let pool = Arc::clone(&service.pool);
    background::run_until(limits.ends(), &service.pool, &Arc::clone(&errors), late, move |late| {
        let mut reply = pipe::Reply::new(late, (&replies, &errors, &pool), shape.media(), limits.bytes_max());
        let mut rest = Vec::new();
        let of = (&sql[..], &arguments);
        // While it waited, another configuration may have taken over.
        let ran = loop {
            let ran = execute(&database.newest(), of, shape, (&limits, &client), &queries, (&mut reply, &mut rest));
            if let Some(ran) = ran.transpose() {
                break ran;
            }
        };
        drop((sql, arguments, taken));
        reply.end(rest, client.permitted(ran));
    });
}

/// Counts the request as waiting.
fn admit(service: &Service, body: &[u8]) -> Result<Taken, Failure> {
    if body.len() > BODY_BYTES_MAX {
        let detail = format!("a query of {} bytes; allowed: {BODY_BYTES_MAX} with its parameters", body.len());
        return Err(Failure::new(FailureKind::TooLarge, detail));
    }
    let taken = service.writes.take(write::WAITING_BYTES + WAITING_PER_BYTE * body.len());
    taken.ok_or_else(|| Failure::new(FailureKind::Busy, "too many requests wait"))
}

/// The statement, its parameters, and the requested page, if any.
fn read(body: &[u8]) -> Result<(String, ParameterValues, Option<PageWanted>), Failure> {
    let invalid = |detail: String| Failure::new(FailureKind::Invalid, detail);
    let body = json_body::read(body).map_err(invalid)?;
    let serde_json::Value::Object(mut body) = body else {
        return Err(invalid("the body is no object; allowed: {\"sql\": …, \"params\": {…}}".to_owned()));
    };
    let Some(serde_json::Value::String(sql)) = body.remove("sql") else {
        return Err(invalid("`sql` is missing or no text".to_owned()));
    };
    let parameters = match body.remove("params") {
        None => serde_json::Map::new(),
        Some(serde_json::Value::Object(parameters)) => parameters,
        Some(_) => return Err(invalid("`params` is no object".to_owned())),
    };
    let page = PageWanted::read(body.remove("limit"), body.remove("after"), &sql, &parameters)?;
    match body.keys().next() {
        Some(unknown) => {
            Err(invalid(format!("unknown field `{}`; allowed: sql, params, limit, after", params::echo(unknown))))
        }
        None => Ok((sql, ParameterValues::new(parameters), page)),
    }
}

/// Runs it; `None` if another configuration has taken over before it began.
fn execute(
    database: &DocumentDatabase,
    (sql, arguments): (&str, &ParameterValues),
    shape: RowFormat,
    (limits, client): (&QueryLimits, &ClientWatch),
    queries: &Queries,
    (reply, rest): (&mut pipe::Reply<'_>, &mut Vec<u8>),
) -> Result<Option<()>, Failure> {
    let statement = Statement::kept(sql, database.catalog(), &queries.statements);
    let statement = statement.map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
    let statement = statement.with_workers(Arc::clone(&queries.workers));
    let values = statement
        .bind(arguments)
        .map_err(|name| Failure::new(FailureKind::Invalid, format!("the parameter :{name} is not given")))?;
    let session = database.session().map_err(|_| Failure::new(FailureKind::Busy, "no reader is free"))?;
    let now = session.now();
    if now.is_superseded() {
        return Ok(None);
    }
    let (plan, scans) = statement.plan_line(&values);
    reply.header(PLAN_FIELD, &plan);
    let run =
        |reply: &mut pipe::Reply<'_>, budget: &Budget<'_>| statement.flow(&now, &values, shape, budget, (reply, rest));
    let ran = limits.clone().run_for(client, params::unix_ms(), |budget| reply.run(budget, run));
    let outcome = ran.map_err(|error| {
        queries.count_ended(&error, &plan, scans, sql, Some(client.presence()));
        client.failure(refusal::of_query(&error))
    })?;
    queries.count(&outcome, &plan, scans, sql, Some(client.presence()));
    Ok(Some(()))
}
