//! `GET /_/views` and `GET /_/views/NAME` report the state of views; `POST /_/views/NAME/verify` computes a view again from its
//! documents, on the pool and as of one moment, and reports the differences ([`crate::maintenance::verification`]). Rows of views
//! are read by `POST /_/query`.

use super::fail;
use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::maintenance::verification::Run;
use crate::replies::media::JSON;
use crate::requests::params::echo;
use crate::service::Service;
use crate::service::query_limits::QueryLimits;
use crate::threads::background;
use crate::threads::client::ClientWatch;
use docs::RuleState;
use docs::engine::ErrorKind;
use docs::error::there_are;
use docs::views::ViewStatus;
use docs::{DocumentDatabase, ReadError};
use http::{HttpRequest, Params, Reply, Status};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Instant;

pub(super) fn list(service: &Service, reply: Reply<'_>) {
    let views: Vec<Json> = service.database.views().iter().map(json_of).collect();
    super::report(service, reply, JSON, Json::Array(views).to_string());
}

pub(super) fn get(service: &Service, params: &Params<'_, '_>, reply: Reply<'_>) {
    match named(&service.database, params) {
        Ok(view) => reply.send(Status(200), JSON, json_of(&view).to_string().as_bytes()),
        Err(failure) => fail(&failure, reply),
    }
}

pub(super) fn verify(
    service: &Service,
    request: &HttpRequest<'_>,
    params: &Params<'_, '_>,
    (permit, reply): (&Permit, Reply<'_>),
) {
    let view = match named(&service.database, params) {
        Ok(view) if request.body().is_empty() => view,
        Ok(_) => return fail(&Failure::new(FailureKind::Invalid, "a verification takes no body"), reply),
        Err(failure) => return fail(&failure, reply),
    };
    let turn = match service.verifications.take_turn() {
        Ok(turn) => turn,
        Err(failure) => return fail(&failure, reply),
    };
    let (database, waits_until) = (service.database.clone(), QueryLimits::of(service).ends());
    let errors = Arc::new(ErrorRules::default());
    let late = reply.later_watched();
    let client = Arc::new(ClientWatch::of(&late, permit, &service.pool));
    background::run_until(waits_until, &service.pool, &Arc::clone(&errors), late, move |late| {
        let report = verified(&database.newest(), &view.name, &client, &turn.begin());
        drop(turn);
        match client.permitted(report) {
            Ok(report) => late.send(Status(200), JSON, report.to_string().into_bytes()),
            Err(failure) => refusal::refuse(&errors, late, &failure),
        }
    });
}

/// The declared view named by the path. An old definition, which serves until it is replaced, comes after it in the list.
fn named(database: &DocumentDatabase, params: &Params<'_, '_>) -> Result<ViewStatus, Failure> {
    let mut text = Vec::new();
    let name = params.get("name", &mut text).and_then(Result::ok).unwrap_or_default();
    let views = database.views();
    views.iter().find(|view| view.name == name).cloned().ok_or_else(|| {
        let known: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
        Failure::new(FailureKind::NotFound, format!("there is no view `{}`; {}", echo(name), there_are(&known)))
    })
}

/// The first declared view that could not be built, and the reason. Writes ignore it.
pub(super) fn failure(service: &Service) -> Option<String> {
    let failed = service.database.failed_view()?;
    Some(format!("{}: {}", failed.name, failed.failure.unwrap_or_default()))
}

fn json_of(view: &ViewStatus) -> Json {
    let state = match view.state {
        RuleState::Declared | RuleState::Building => "building",
        RuleState::Ready => "ready",
        RuleState::Dropped => "retired",
        RuleState::Refused => "failed",
    };
    let (done, parts) = view.parts;
    json!({
        "name": view.name, "query": view.query, "state": state, "failure": view.failure,
        "build": {
            "documents": view.documents, "parts_done": done, "parts": parts,
            "seconds": view.elapsed.as_secs_f64(), "seconds_left": view.remaining.map(|left| left.as_secs_f64()),
        },
    })
}

fn verified(database: &DocumentDatabase, name: &str, client: &ClientWatch, run: &Run<'_>) -> Result<Json, Failure> {
    // A view of few documents ends before the first check.
    if let Some(failure) = run.end(Instant::now()) {
        return Err(failure);
    }
    let goes_on = || run.end(Instant::now()).is_none() && !client.is_over(Instant::now());
    let found = database.verify_view_while(name, &goes_on).map_err(|error| match error {
        ReadError::Stopped => {
            let left = || client.failure(Failure::new(FailureKind::OutOfTime, error.to_string()));
            run.end(Instant::now()).unwrap_or_else(left)
        }
        error if error.engine() == Some(ErrorKind::DiskFull) => {
            let detail = "disk full: the rows of the view are sorted in files in the data folder; make room, or restore a backup on \
                          another disk and run `sapsan verify COPY --config FILE --views`";
            Failure::new(FailureKind::DiskFull, detail)
        }
        error => refusal::of_read(&error),
    })?;
    let unbuilt = || Failure::new(FailureKind::Unavailable, format!("the view `{name}` is not built"));
    let report = found.ok_or_else(unbuilt)?;
    let faults: Vec<&str> = report.faults.iter().map(|fault| fault.what.as_str()).collect();
    Ok(json!({
        "view": report.view, "version": report.version, "documents": report.documents, "rows": report.rows,
        "clean": report.is_clean(), "differences": faults, "more": report.more,
    }))
}
