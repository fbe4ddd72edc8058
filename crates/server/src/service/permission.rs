//! Permission of one request, by its listener, its sender or its token: for the general API, for a declared endpoint with a
//! scope, and for the plan of a query.

use super::Service;
use crate::access::sender::{Granted, Listener};
use crate::access::token::{self, Permit};
use crate::failure::Failure;
use crate::threads::query_state::PLAN_FIELD;
use http::HttpRequest;

/// Whether the general API answers a request, and with which permissions.
pub(crate) fn check(service: &Service, request: &HttpRequest<'_>, listener: Listener) -> Result<Granted, Failure> {
    service.access.check_listener(listener)?;
    match service.tokens.of(request, &service.tries)? {
        Some(token) => Ok(Granted::Token(token)),
        None => service.access.check_sender(request).map(|()| Granted::All),
    }
}

/// Whether the token of a request has the scope that a declared endpoint requires. Local clients need a token too.
pub(crate) fn check_scope(service: &Service, request: &HttpRequest<'_>, scope: &str) -> Result<Permit, Failure> {
    match service.tokens.of(request, &service.tries)? {
        Some(token) => Granted::Token(token).need(scope),
        None => Err(token::missing()),
    }
}

/// Whether a declared endpoint's reply includes the query's plan: the request asks for it, and has the permission to read through
/// the general API, whichever listener that has.
#[cold]
pub(crate) fn wants_plan(service: &Service, request: &HttpRequest<'_>) -> bool {
    let sender = |token| match token {
        Some(token) => Granted::Token(token).need(token::READ).map(drop),
        None => service.access.check_sender(request),
    };
    request.header(PLAN_FIELD).is_some() && service.tokens.of(request, &service.tries).and_then(sender).is_ok()
}
