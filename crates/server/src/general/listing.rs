//! `GET /_/collections/NAME?after=ID&limit=N`: documents in key order, one page at a time. A page may have fewer documents than
//! `limit`, or none, if many documents are hidden because they have expired.

use super::{collection, fail};
use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::reads::cold::OnLoop;
use crate::replies::large;
use crate::replies::media::JSON;
use crate::requests::params::echo;
use crate::service::cold_read;
use crate::service::query_limits::QueryLimits;
use crate::service::{Local, Service};
use crate::threads::background;
use crate::threads::client::ClientWatch;
use crate::threads::loop_time::LoopTime;
use docs::engine::ErrorKind;
use docs::key::{Key, KeyType};
use docs::order::Scalar;
use docs::sql::QueryError;
use docs::{CollectionId, ReadError, ReaderSession};
use http::{HttpRequest, Params, Reply, Status, query};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The parameters of the query.
pub(super) const PARAMETERS: [&str; 2] = ["after", "limit"];
/// Default of documents in a page.
const LIMIT_DEFAULT: usize = 100;
/// Limit of documents in a page.
const LIMIT_MAX: usize = 1_000;
/// A page ends early at this size, or at the limit of a query on a loop.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// `{"items":[…],"after":KEY}`; `after` is null at the end.
pub(super) fn list(
    service: &Service,
    local: &mut Local,
    request: &HttpRequest<'_>,
    params: &Params<'_, '_>,
    (permit, reply): (&Permit, Reply<'_>),
) {
    let page = collection(service, params, &mut local.text).and_then(|(id, info)| {
        let (after, limit) = page_of(request.query())?;
        Ok((id, info, after, limit))
    });
    let (id, info, after, limit) = match page {
        Ok(page) => page,
        Err(failure) => return fail(&failure, reply),
    };
    let after = match after.as_deref().map(|text| info.key.kind.of_text(text).ok_or(text)) {
        None => None,
        Some(Ok(key)) => Some(key),
        Some(Err(text)) => {
            let detail = format!("after is `{}`, but keys of {} are {}", echo(text), info.name, info.key.kind.name());
            return fail(&Failure::new(FailureKind::Invalid, detail), reply);
        }
    };
    let Local { session, out, cold, lp, .. } = local;
    let bytes_max = PAGE_BYTES_MAX.min(service.loop_query_bytes);
    let time = LoopTime::new(lp);
    let outcome = {
        let _on_loop = OnLoop::new(session, cold.is_asking());
        let limits = (limit, bytes_max);
        write_page(session, (id, info.key.kind), after.as_ref(), limits, &|| !time.is_over(), out)
    };
    match outcome {
        Ok(()) => large::send(&service.replies, &ErrorRules::default(), reply, Status(200), JSON, out),
        Err(error) if error.engine() == Some(ErrorKind::WouldWait) => {
            out.clear();
            cold_read::count_cold(service, cold);
            let after = after.map(|key| key.as_bytes().to_vec());
            list_late(service, (id, info.key.kind), after, (limit, bytes_max), (permit, reply));
        }
        // It takes longer than a loop allows.
        Err(ReadError::Stopped) => {
            out.clear();
            let after = after.map(|key| key.as_bytes().to_vec());
            list_late(service, (id, info.key.kind), after, (limit, bytes_max), (permit, reply));
        }
        Err(error) => fail(&refusal::of_read(&error), reply),
    }
}

/// The same on the pool, whose threads may wait.
#[cold]
fn list_late(
    service: &Service,
    (id, kind): (CollectionId, KeyType),
    after: Option<Vec<u8>>,
    limits: (usize, usize),
    (permit, reply): (&Permit, Reply<'_>),
) {
    let (database, sessions) = (service.database.clone(), Arc::clone(&service.pool_sessions));
    let (errors, replies) = (Arc::new(ErrorRules::default()), service.replies.clone());
    let (of_query, late) = (QueryLimits::of(service), reply.later_watched());
    let client = Arc::new(ClientWatch::of(&late, permit, &service.pool));
    background::run_until(of_query.ends(), &service.pool, &Arc::clone(&errors), late, move |late| {
        let is_over = of_query.cancel_check(&client);
        let body = sessions.with(&database, |session| {
            let mut out = Vec::new();
            let after = after.as_deref().and_then(|key| kind.of_bytes(key));
            let written = write_page(session, (id, kind), after.as_ref(), limits, &|| !is_over(), &mut out);
            written.map(|()| out).map_err(|error| match error {
                ReadError::Stopped => client.failure(refusal::of_query(&QueryError::Deadline)),
                error => refusal::of_read(&error),
            })
        });
        match client.permitted(body) {
            Ok(body) => large::send_late(&replies, &errors, late, Status(200), JSON, body),
            Err(failure) => refusal::refuse(&errors, late, &failure),
        }
    });
}

/// Writes a page of at most this many documents and about this many bytes.
fn write_page(
    session: &ReaderSession,
    (id, kind): (CollectionId, KeyType),
    after: Option<&Key<'_>>,
    (limit, bytes_max): (usize, usize),
    goes_on: &dyn Fn() -> bool,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    out.extend_from_slice(b"{\"items\":[");
    let (mut count, mut last) = (0, None);
    let goes_on_behind = session.now().list_while(id, after, limit, goes_on, &mut |key, stored| {
        if count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(stored.text()?);
        count += 1;
        let full = count == limit || out.len() >= bytes_max;
        last = full.then(|| key_json(key));
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let last = last.or_else(|| kind.of_bytes(&goes_on_behind?).as_ref().map(key_json));
    out.extend_from_slice(b"],\"after\":");
    out.extend_from_slice(last.as_deref().unwrap_or("null").as_bytes());
    out.push(b'}');
    Ok(())
}

fn key_json(key: &Key<'_>) -> String {
    match key.scalar() {
        Scalar::Text(text) => serde_json::Value::from(text).to_string(),
        Scalar::Integer(number) => number.to_string(),
        Scalar::Null | Scalar::Real(_) => "null".to_owned(),
    }
}

/// The parameters of the request. A repeated one is refused: a client whose parts disagree would otherwise read a wrong page
/// without notice.
fn page_of(text: &str) -> Result<(Option<String>, usize), Failure> {
    let (mut after, mut limit, mut scratch) = (None, None, Vec::new());
    for (name, value) in query::pairs(text) {
        let value = query::decode(value, &mut scratch)
            .map_err(|error| Failure::new(FailureKind::Invalid, format!("parameter `{}`: {error}", echo(name))))?;
        let is_second = match name {
            "after" => after.is_some(),
            _ => limit.is_some(),
        };
        if is_second {
            return Err(Failure::new(FailureKind::Invalid, format!("parameter `{name}` is given more than once")));
        }
        match name {
            "after" => after = Some(value.to_owned()),
            // Any other name has been refused.
            _ => {
                let number = value.parse().ok().filter(|number| (1..=LIMIT_MAX).contains(number));
                let detail = || format!("limit is `{}`; allowed: 1 to {LIMIT_MAX}", echo(value));
                limit = Some(number.ok_or_else(|| Failure::new(FailureKind::Invalid, detail()))?);
            }
        }
    }
    Ok((after, limit.unwrap_or(LIMIT_DEFAULT)))
}
