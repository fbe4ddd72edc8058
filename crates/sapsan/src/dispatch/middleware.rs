//! Functions around handlers.

use super::endpoint::Endpoint;
use super::needs::Needs;
use super::request::Request;
use super::response::Response;
use std::sync::Arc;

/// A function around the handlers: it sees the request, calls the inner functions and the handler by [`Next::run`], and sees the
/// response.
///
/// Implemented by functions and closures of the form `fn(&Request<'_>, Next<'_>) -> Response`. Of a late reply it sees only that
/// it is late ([`Response::is_late`]); header fields that it adds are sent with the reply all the same.
pub trait Around: Send + Sync + 'static {
    /// Answers the request, by [`Next::run`] or itself.
    fn around(&self, request: &Request<'_>, next: Next<'_>) -> Response;
}

impl<F> Around for F
where
    F: Fn(&Request<'_>, Next<'_>) -> Response + Send + Sync + 'static,
{
    fn around(&self, request: &Request<'_>, next: Next<'_>) -> Response {
        self(request, next)
    }
}

/// The inner functions (those added later), then the handler.
pub struct Next<'n> {
    around: &'n [Box<dyn Around>],
    endpoint: &'n dyn Endpoint,
}

impl<'n> Next<'n> {
    pub(crate) fn new(around: &'n [Box<dyn Around>], endpoint: &'n dyn Endpoint) -> Next<'n> {
        Next { around, endpoint }
    }

    /// Runs them.
    pub fn run(self, request: &Request<'_>) -> Response {
        match self.around.split_first() {
            Some((first, rest)) => first.around(request, Next { around: rest, endpoint: self.endpoint }),
            None => self.endpoint.call(request),
        }
    }
}

/// An endpoint with functions that run around it only.
pub(crate) struct Surrounded {
    pub(crate) around: Arc<[Box<dyn Around>]>,
    pub(crate) endpoint: Box<dyn Endpoint>,
}

impl Endpoint for Surrounded {
    fn call(&self, request: &Request<'_>) -> Response {
        Next::new(&self.around, &*self.endpoint).run(request)
    }

    fn needs(&self, needs: &mut Needs<'_>) {
        self.endpoint.needs(needs);
    }

    fn takes_pieces(&self) -> bool {
        self.endpoint.takes_pieces()
    }
}
