//! The checked form of an application. Everything that is missing is found here, before the first request.

use super::endpoint::Endpoint;
use super::middleware::{Around, Next};
use super::request::Request;
use super::response::{Environment, Response};
use http::Router;
use std::sync::Arc;

/// A running application: what routes requests, and the environment that late replies share.
pub(crate) struct Built {
    pub(crate) router: Router<usize>,
    pub(crate) routes: Vec<Route>,
    pub(crate) around: Vec<Box<dyn Around>>,
    pub(crate) environment: Arc<Environment>,
}

/// A route of the application.
pub(crate) struct Route {
    pub(crate) method: http::Method,
    pub(crate) pattern: String,
    pub(crate) endpoint: Box<dyn Endpoint>,
}

impl Built {
    /// Runs the checks and layers before an endpoint, the functions around it, and the endpoint.
    #[inline]
    pub(crate) fn run(&self, endpoint: &dyn Endpoint, request: &Request<'_>) -> Response {
        match self.environment.before(request) {
            Some(response) => response,
            None => Next::new(&self.around, endpoint).run(request),
        }
    }
}
