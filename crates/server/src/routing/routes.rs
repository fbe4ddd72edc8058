//! Routes of requests and their handlers: the one module that knows the service and everything that uses it.

use crate::access::sender::{self, Listener};
use crate::declared::endpoint::{self, Endpoint};
use crate::declared::late_query::LateQuery;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::general::operation::Operation;
use crate::general::{documents, modify};
use crate::metrics::route_series::{CHANGES, GENERAL};
use crate::reads::direct::{DirectAnswer, Waiting};
use crate::replies::document;
use crate::service::kept_request::KeptRequest;
use crate::service::permission;
use crate::service::{Local, Service};
use docs::direct::DocumentOutcome;
use docs::{CollectionId, LARGE_BYTES, LONG_CHECK_BYTES, ReadError};
use http::{HttpRequest, LateReply, Method, Params, Reply, RequestOrder, RouteLookup, Router, Status};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A service and its routes. The general API has a router of its own: no declared route, whatever its parameters match, answers a
/// path below `/_/`.
pub(crate) struct Routing {
    pub(crate) service: Service,
    /// An endpoint that has several routes is shared by them.
    declared: Router<Arc<Endpoint>>,
    general: Router<Operation>,
    /// An endpoint runs steps.
    has_steps: bool,
    /// Documents of a collection are checked by a JSON Schema that is not plain, which may take long.
    checks_fully: bool,
    /// The first reads of an endpoint's requests are known from path and query.
    looks_ahead: bool,
}

/// The methods that the server calls: see [`http::Service`].
impl Routing {
    /// Joins the declared endpoints and the general API.
    pub(crate) fn new(service: Service, endpoints: Vec<Endpoint>) -> Routing {
        let (mut declared, mut general) = (Router::new(), Router::new());
        let has_steps = endpoints.iter().any(Endpoint::has_steps);
        let looks_ahead = endpoints.iter().any(Endpoint::looks_ahead);
        for mut endpoint in endpoints {
            let (method, pattern) = (endpoint.method, endpoint.pattern.clone());
            endpoint.series = service.series.of(&format!("{} {pattern}", method.name()));
            let endpoint = Arc::new(endpoint);
            for pattern in [Some(pattern.as_str()), endpoint.folder_pattern()].into_iter().flatten() {
                let added = declared.route(method, pattern, Arc::clone(&endpoint));
                debug_assert!(added.is_ok(), "clashes were told when the file was read: {added:?}");
            }
        }
        for (method, pattern, operation) in Operation::ALL {
            let added = general.route(method, pattern, operation);
            debug_assert!(added.is_ok(), "the general API's own routes do not clash: {added:?}");
        }
        let collections = service.database.catalog().collections.len();
        let checks_fully = (0..collections).any(|number| service.database.checks_fully(CollectionId(number)));
        Routing { service, declared, general, has_steps, checks_fully, looks_ahead }
    }

    pub(crate) fn order(&self, request: &HttpRequest<'_>) -> RequestOrder {
        match request.path() {
            // A query is a POST that only reads.
            Operation::QUERY if !modify::may_change(request) => RequestOrder::Read,
            Operation::QUERY => RequestOrder::Alone,
            _ if request.method().is_safe() => RequestOrder::Read,
            path if Operation::is_bulk(path) => RequestOrder::Alone,
            path if self.has_steps && self.leads_to_steps(request.method(), path) => RequestOrder::Alone,
            path if self.may_be_large(request, path) => RequestOrder::Alone,
            _ => RequestOrder::Write,
        }
    }

    /// Whether the body is taken in pieces.
    pub(super) fn takes_pieces(request: &HttpRequest<'_>) -> bool {
        request.method() == Method::Post && Operation::is_bulk(request.path())
    }

    /// Steps may continue on the pool: no other write of their connection may run beside them, so that the order is kept.
    fn leads_to_steps(&self, method: Method, path: &str) -> bool {
        self.endpoint(method, path).is_some_and(|(endpoint, _)| endpoint.has_steps())
    }

    /// The declared endpoint of a path.
    #[inline]
    fn endpoint<'s, 'p>(&'s self, method: Method, path: &'p str) -> Option<(&'s Arc<Endpoint>, Params<'s, 'p>)> {
        if sender::is_general(path) {
            return None;
        }
        match self.declared.find(method, path) {
            RouteLookup::Found { value, params } => Some((value, params)),
            _ => None,
        }
    }

    /// Writes that may be prepared by the thread for large writes keep their order in the same way: a large body, and a patch of
    /// a document that may be large.
    #[inline]
    fn may_be_large(&self, request: &HttpRequest<'_>, path: &str) -> bool {
        match request.body().len() {
            bytes if bytes >= LARGE_BYTES => true,
            bytes if self.checks_fully => bytes >= LONG_CHECK_BYTES || self.leads_to_full_check(request.method(), path),
            _ => false,
        }
    }

    #[cold]
    fn leads_to_full_check(&self, method: Method, path: &str) -> bool {
        if let Some((endpoint, _)) = self.endpoint(method, path) {
            return endpoint.updates().is_some_and(|collection| self.service.database.checks_fully(collection));
        }
        let found = self.general.find(method, path);
        matches!(found, RouteLookup::Found { value: Operation::PatchDocument, .. })
    }

    pub(crate) fn foresee(&self, local: &mut Local, method: Method, path: &str, query: &str) {
        // While reads wait for the disk, looking up a leaf may wait too: it would block the whole loop.
        if !self.looks_ahead || local.cold.was_asking() {
            return;
        }
        if let Some((endpoint, params)) = self.endpoint(method, path) {
            endpoint.foresee(local, &params, query);
        }
    }

    #[inline]
    pub(crate) fn call(&self, local: &mut Local, request: &HttpRequest<'_>, mut reply: Reply<'_>) {
        if let Some(coding) = body_coding(request) {
            return self.service.fail(&coded(coding), reply);
        }
        if sender::is_general(request.path()) {
            self.answer_general(Listener::Public, local, request, reply);
        } else {
            match self.declared.find(request.method(), request.path()) {
                RouteLookup::Found { value: endpoint, params } => {
                    reply.count_under(endpoint.series);
                    if let Some(cors) = &self.service.cors {
                        cors.mark(request, &mut reply);
                    }
                    endpoint.answer(&self.service, local, request, &params, reply);
                }
                other => self.answer_unrouted(other, request, reply),
            }
        }
        local.shrink();
    }

    /// Serves a request of the general API's own listener.
    pub(super) fn call_admin(&self, local: &mut Local, request: &HttpRequest<'_>, reply: Reply<'_>) {
        if let Some(coding) = body_coding(request) {
            return refusal::fail(&coded(coding), reply);
        }
        // Declared endpoints are not served here.
        if sender::is_general(request.path()) {
            self.answer_general(Listener::Admin, local, request, reply);
        } else {
            self.fail_unrouted::<()>(RouteLookup::NotFound, reply);
        }
        local.shrink();
    }

    /// Handles every path below `/_/`. A client without access does not learn which routes exist.
    #[inline(never)]
    fn answer_general(&self, listener: Listener, local: &mut Local, request: &HttpRequest<'_>, mut reply: Reply<'_>) {
        let service = &self.service;
        let found = self.general.find(request.method(), request.path());
        let is_feed = matches!(found, RouteLookup::Found { value: Operation::Changes, .. });
        reply.count_under(if is_feed { CHANGES } else { GENERAL });
        match (found, permission::check(service, request, listener)) {
            (RouteLookup::Found { value: operation, params }, checked) => {
                operation.answer(service, local, request, (&params, checked), reply);
            }
            (_, Err(failure)) => refusal::fail(&failure, reply),
            (found, Ok(_)) => self.fail_unrouted(found, reply),
        }
    }

    /// Answers a request for which no endpoint is declared.
    #[inline(never)]
    fn answer_unrouted(
        &self,
        found: RouteLookup<'_, '_, Arc<Endpoint>>,
        request: &HttpRequest<'_>,
        mut reply: Reply<'_>,
    ) {
        if let Some(cors) = &self.service.cors {
            match &found {
                RouteLookup::Options { allow } => cors.preflight(request, allow, &mut reply),
                _ => cors.mark(request, &mut reply),
            }
        }
        self.fail_unrouted(found, reply);
    }

    fn fail_unrouted<T>(&self, found: RouteLookup<'_, '_, T>, mut reply: Reply<'_>) {
        match found {
            RouteLookup::Found { .. } | RouteLookup::NotFound => {
                self.service.fail(&Failure::new(FailureKind::NotFound, "no route has this path"), reply);
            }
            RouteLookup::MethodNotAllowed { allow } => {
                reply.header("Allow", &allow);
                let failure = Failure::new(FailureKind::MethodNotAllowed, format!("this path takes {allow}"));
                self.service.fail(&failure, reply);
            }
            RouteLookup::Options { allow } => {
                reply.header("Allow", &allow);
                reply.send(Status(204), "", b"");
            }
        }
    }

    /// Routes a declared query again that waited for a thread with another configuration; `None` if it has been answered.
    #[cold]
    pub(crate) fn route_again(
        &self,
        request: &KeptRequest,
        ends: Instant,
        mut late: LateReply,
    ) -> Option<(Arc<LateQuery>, LateReply)> {
        let failure = match self.declared.find(request.method, &request.path) {
            RouteLookup::Found { value: endpoint, params } => {
                return endpoint.ask_again(&self.service, (request, &params), ends, late);
            }
            RouteLookup::MethodNotAllowed { allow } => {
                late.header("Allow", &allow);
                Failure::new(FailureKind::MethodNotAllowed, format!("this path takes {allow}"))
            }
            // The general API's paths are never declared, and OPTIONS runs no query.
            _ => Failure::new(FailureKind::NotFound, "no route has this path"),
        };
        refusal::refuse(&self.service.errors, late, &failure);
        None
    }

    /// Answers completed reads past the page cache.
    pub(crate) fn completed(&self, local: &mut Local) {
        if let Some(direct) = &mut local.direct {
            direct.ended(|waiting, outcome| answer_waiting(&self.service, waiting, outcome));
        }
    }
}

fn answer_waiting(service: &Service, waiting: Waiting, outcome: Result<DocumentOutcome<'_>, ReadError>) {
    let Waiting { late, document, kind } = waiting;
    let found = match outcome {
        Ok(DocumentOutcome::Found(found)) => {
            service.direct_reads.fetch_add(1, Ordering::Relaxed);
            Ok(found)
        }
        Ok(DocumentOutcome::Elsewhere) => {
            return match kind {
                DirectAnswer::Declared(precondition) => {
                    endpoint::read_elsewhere(service, (None, None), (document, precondition), late);
                }
                DirectAnswer::General(precondition) => documents::read_elsewhere(service, document, precondition, late),
            };
        }
        Err(error) => Err(refusal::of_read(&error)),
    };
    let found = found.and_then(document::numbered_text_of);
    match kind {
        DirectAnswer::Declared(precondition) => {
            document::answer_late(&service.replies, &service.errors, late, &precondition, found);
        }
        DirectAnswer::General(precondition) => {
            document::answer_late(&service.replies, &ErrorRules::default(), late, &precondition, found);
        }
    }
}

/// The coding of a compressed body (RFC 9110, section 8.4).
#[inline]
fn body_coding<'r>(request: &HttpRequest<'r>) -> Option<&'r [u8]> {
    if !request.has_coding() || request.body().is_empty() && !request.is_in_pieces() {
        return None;
    }
    request.fields_named("content-encoding").find(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

#[cold]
fn coded(coding: &[u8]) -> Failure {
    let shown = String::from_utf8_lossy(&coding[..coding.len().min(CODING_BYTES)]);
    Failure::new(
        FailureKind::Coded,
        format!("Content-Encoding is `{shown}`: bodies are taken as they are, send it without"),
    )
}

/// Bytes of a coding's name that a message quotes.
const CODING_BYTES: usize = 100;
