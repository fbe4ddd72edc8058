//! Functions around handlers.

use crate::build::Needs;
use crate::handler::Endpoint;
use crate::request::Request;
use crate::response::Response;
use std::sync::Arc;

/// A function around the handlers: looks at the request, calls what is further in by [`Next::run`], looks at the response.
///
/// Functions and closures of this form are ones: `fn(&Request<'_>, Next<'_>) -> Response`. Of a late reply it sees that it is late
/// ([`Response::is_late`]); header fields that it adds go with the reply all the same.
pub trait Around: Send + Sync + 'static {
    /// Answers the request, by calling further or not.
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

/// What is further in: the functions added later, then the handler.
pub struct Next<'n> {
    around: &'n [Box<dyn Around>],
    endpoint: &'n dyn Endpoint,
}

impl<'n> Next<'n> {
    pub(crate) fn new(around: &'n [Box<dyn Around>], endpoint: &'n dyn Endpoint) -> Next<'n> {
        Next { around, endpoint }
    }

    /// Calls it.
    pub fn run(self, request: &Request<'_>) -> Response {
        match self.around.split_first() {
            Some((first, rest)) => first.around(request, Next { around: rest, endpoint: self.endpoint }),
            None => self.endpoint.call(request),
        }
    }
}

/// An endpoint with functions around it alone.
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
