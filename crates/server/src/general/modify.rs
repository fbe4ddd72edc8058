//! `POST /_/query` with an INSERT, UPDATE or DELETE: one transaction, answered when it is durable with the number of documents
//! and, with RETURNING, their rows.
//!
//! It runs on the pool, where it may wait. So it is [`http::RequestOrder::Alone`] among the requests of its connection: earlier requests
//! are answered first, and later ones wait.

use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::replies::large;
use crate::requests::params;
use crate::service::Service;
use crate::service::query_limits::QueryLimits;
use crate::statements::modify::ModifyingStatement;
use crate::statements::statement::{ParameterValues, RowFormat};
use crate::threads::background;
use crate::threads::client::ClientWatch;
use crate::threads::in_flight::Taken;
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::sql::Budget;
use docs::statements::ModifyError;
use docs::{DocumentDatabase, WriteError};
use http::{HttpRequest, LateReply, Reply, Status};
use std::sync::Arc;

/// The header field with the number of documents that were inserted, changed or deleted.
const CHANGED: &str = "Sapsan-Changed";

/// Whether a request's body may contain such a statement: it contains one of the keywords, or an escape.
pub(crate) fn may_change(request: &HttpRequest<'_>) -> bool {
    let body = request.body();
    [&b"insert"[..], b"update", b"delete", b"replace", b"\\u"]
        .iter()
        .any(|word| body.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
}

/// Runs a statement from the request.
pub(super) fn run(
    service: &Service,
    (sql, arguments, taken): (String, ParameterValues, Taken),
    (shape, media): (RowFormat, &'static str),
    (permit, reply): (&Permit, Reply<'_>),
) {
    let (database, replies) = (service.database.clone(), service.replies.clone());
    let limits = QueryLimits::of(service).of_change();
    let errors = Arc::new(ErrorRules::default());
    let queries = Arc::clone(&service.queries);
    let late = reply.later_watched();
    let client = Arc::new(ClientWatch::of(&late, permit, &service.pool));
    background::run_until(limits.ends(), &service.pool, &Arc::clone(&errors), late, move |mut late| {
        let result = execute(&database, (&sql, &arguments), shape, (&limits, &client), &queries, &mut late);
        drop((sql, arguments, taken));
        match result {
            Ok((count, body)) => {
                late.header(CHANGED, &count.to_string());
                large::send_late(&replies, &errors, late, Status(200), media, body);
            }
            Err(failure) => refusal::refuse(&errors, late, &failure),
        }
    });
}

/// Runs it with the newest configuration, and again if another one takes over before anything was written.
fn execute(
    database: &DocumentDatabase,
    (sql, arguments): (&str, &ParameterValues),
    shape: RowFormat,
    (limits, client): (&QueryLimits, &Arc<ClientWatch>),
    queries: &Queries,
    late: &mut LateReply,
) -> Result<(u64, Vec<u8>), Failure> {
    loop {
        // While it waited, its token may have ended.
        client.permitted(Ok(()))?;
        let database = database.newest();
        let change = ModifyingStatement::prepare(sql, database.catalog())
            .map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
        let values = change
            .bind(arguments)
            .map_err(|name| Failure::new(FailureKind::Invalid, format!("the parameter :{name} is not given")))?;
        let (plan, scans) = change.plan_line(&values);
        let mut out = Vec::new();
        let run = |budget: &Budget<'_>| change.write(&database, &values, shape, budget, &mut out);
        let ran = limits.clone().run_change(client, params::unix_ms(), run);
        if let Err(ModifyError::Write(WriteError::Busy)) = ran
            && database.is_superseded()
        {
            continue;
        }
        late.header(PLAN_FIELD, &plan);
        let outcome = ran.map_err(|error| {
            if let ModifyError::Query(error) = &error {
                queries.count_ended(error, &plan, scans, sql, Some(client.presence()));
            }
            client.failure(refusal::of_modify(&error))
        })?;
        queries.count(&outcome, &plan, scans, sql, Some(client.presence()));
        return Ok((outcome.rows, out));
    }
}
