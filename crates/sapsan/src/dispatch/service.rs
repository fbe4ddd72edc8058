//! The path of a request through an application, on its event loop.

use super::build::Built;
use super::endpoint::Endpoint;
use super::local::Local;
use super::needs::Needs;
use super::parts::Part;
use super::request::Request;
use super::respond::Respond;
use super::response::{Content, Later, Responder, Response};
use crate::reply::{Error, Head};
use http::{Reply, RouteLookup, Status};
use reactor::Loop;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An application that is served.
pub(crate) struct Service {
    pub(crate) built: Built,
}

impl http::Service for Service {
    type Local = Local;

    fn local(&self, lp: &Loop) -> Local {
        Local::new(lp, self.built.environment.resources.database.as_ref())
    }

    fn takes_pieces(&self, _local: &mut Local, request: &http::HttpRequest<'_>) -> bool {
        match self.built.router.find(request.method(), request.path()) {
            RouteLookup::Found { value, .. } => self.built.routes[*value].endpoint.takes_pieces(),
            _ => false,
        }
    }

    fn call(&self, local: &mut Local, request: &http::HttpRequest<'_>, reply: Reply<'_>) {
        local.stands_alone.set(false);
        match self.built.router.find(request.method(), request.path()) {
            RouteLookup::Found { value, params } => {
                let route = &self.built.routes[*value];
                let request = Request::new(request, Some(&params), &self.built.environment.resources, local);
                self.answer(&*route.endpoint, &request, reply);
            }
            RouteLookup::NotFound => self.miss(local, request, reply, || Error::not_found().respond()),
            RouteLookup::MethodNotAllowed { allow } => self.miss(local, request, reply, || {
                Error::new(Status(405), format!("allowed: {allow}")).with_header("Allow", allow.clone()).respond()
            }),
            RouteLookup::Options { allow } => {
                self.miss(local, request, reply, || Response::empty(Status(204)).with_header("Allow", allow.clone()))
            }
        }
    }

    fn became_alone(&self, local: &mut Local) -> bool {
        local.stands_alone.get()
    }

    fn completions(&self, _local: &Local) -> Option<RawFd> {
        None
    }

    fn tick_ended(&self, local: &mut Local) {
        if let Some(database) = &local.database {
            database.tick_ended(&local.lp);
        }
    }
}

/// Endpoint of a request that no route matches.
struct Miss<F>(F);

impl<F: Fn() -> Response + Send + Sync> Endpoint for Miss<F> {
    fn call(&self, _request: &Request<'_>) -> Response {
        (self.0)()
    }

    fn needs(&self, _needs: &mut Needs<'_>) {}
}

impl Service {
    #[cold]
    fn miss(
        &self,
        local: &Local,
        request: &http::HttpRequest<'_>,
        reply: Reply<'_>,
        answer: impl Fn() -> Response + Send + Sync,
    ) {
        self.answer(&Miss(answer), &Request::new(request, None, &self.built.environment.resources, local), reply);
    }

    fn answer(&self, endpoint: &dyn Endpoint, request: &Request<'_>, mut reply: Reply<'_>) {
        // A panic is that request's failure, answered like other failures, with the layers' header fields.
        let called = catch_unwind(AssertUnwindSafe(|| self.built.run(endpoint, request)));
        let mut response = called.unwrap_or_else(|panic| panicked(request, &*panic).respond());
        if let Content::Later(Later { start, keeps_order, body }) = response.body {
            request.local.stands_alone.set(!keeps_order);
            for (name, value) in response.fields.iter() {
                reply.header(name, value);
            }
            let late = match body {
                Some(body) => reply.later_in_pieces(body),
                None if keeps_order => reply.later(),
                None => reply.later_watched(),
            };
            let responder = Responder {
                environment: Arc::clone(&self.built.environment),
                exchange: request.exchange.take(),
                late,
                wants_html: request.accepts_html(),
            };
            return start(responder, Some(request.local));
        }
        let mut exchange = request.exchange.take();
        let mut head = Head::new(&mut reply);
        self.built.environment.behind(&mut exchange, &mut response, &mut head, || request.accepts_html());
        send(reply, response);
    }
}

#[cold]
fn panicked(request: &Request<'_>, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    let (method, path) = (request.method().name(), request.path());
    Error::internal(format!("the handler of {method} {path} panicked: {}", text.unwrap_or("no text")))
}

/// Writes a response.
fn send(mut reply: Reply<'_>, response: Response) {
    for (name, value) in response.fields.iter() {
        reply.header(name, value);
    }
    let (status, content_type) = (response.status, &*response.content_type);
    match response.body {
        Content::Static(bytes) => reply.send(status, content_type, bytes),
        Content::Owned(bytes) => reply.send(status, content_type, &bytes),
        Content::Buffer(bytes) => reply.send(status, content_type, &bytes),
        Content::Shared(bytes) => reply.send_shared(status, content_type, bytes),
        Content::Parts(parts) => {
            reply.send_parts(status, content_type, parts.list.iter().map(Part::as_sent));
        }
        Content::File(file) => file.send(reply),
        Content::Stream(stream) => reply.stream(status, content_type, stream.bytes, stream.source),
        // Neither is left here: see `Service::answer` and `Environment::behind`.
        Content::Later(_) | Content::Error(_) => {
            let error = Error::internal("a reply was not rendered");
            reply.send(error.status(), "application/problem+json", &error.problem());
        }
    }
}
