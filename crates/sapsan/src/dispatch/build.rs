//! The checked form of an application. Everything that is missing is found here, before the first request.

use super::endpoint::Endpoint;
use super::exchange::Exchange;
use super::layer::Layer;
use super::middleware::{Around, Next};
use super::pools::Pools;
use super::request::Request;
use super::respond::Respond;
use super::response::{Content, HTML, Response};
use crate::database::Database;
use crate::protection::Protection;
use crate::reply::{Error, ErrorPage, Head};
use http::Router;
use std::any::{Any, TypeId};
use std::borrow::Cow;

/// A running application, shared by all loops.
pub(crate) struct Built {
    pub(crate) router: Router<usize>,
    pub(crate) routes: Vec<Route>,
    pub(crate) states: States,
    pub(crate) layers: Vec<Box<dyn Layer>>,
    pub(crate) around: Vec<Box<dyn Around>>,
    pub(crate) protection: Protection,
    pub(crate) database: Option<Database>,
    pub(crate) pools: Pools,
    pub(crate) error_page: Option<ErrorPage>,
}

/// A route of the application.
pub(crate) struct Route {
    pub(crate) method: http::Method,
    pub(crate) pattern: String,
    pub(crate) endpoint: Box<dyn Endpoint>,
}

/// The application's states, one of each type. There are few, so the search is linear.
#[derive(Default)]
pub(crate) struct States(Vec<StateOf>);

struct StateOf {
    id: TypeId,
    name: &'static str,
    state: Box<dyn Any + Send + Sync>,
}

impl States {
    /// Adds a state; `false` if there is already one of its type.
    pub(crate) fn insert<T: Any + Send + Sync>(&mut self, state: T) -> bool {
        let is_new = self.get::<T>().is_none();
        if is_new {
            let (id, name) = (TypeId::of::<T>(), std::any::type_name::<T>());
            self.0.push(StateOf { id, name, state: Box::new(state) });
        }
        is_new
    }

    #[inline]
    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.0.iter().find(|known| known.id == id).and_then(|known| known.state.downcast_ref())
    }

    /// Adds others. Returns the names of the types that are there already.
    pub(crate) fn merge(&mut self, others: States) -> Vec<&'static str> {
        let is_here = |other: &StateOf| self.0.iter().any(|known| known.id == other.id);
        let (twice, new): (Vec<StateOf>, Vec<StateOf>) = others.0.into_iter().partition(is_here);
        self.0.extend(new);
        twice.into_iter().map(|other| other.name).collect()
    }
}

impl Built {
    /// Runs the checks and layers before an endpoint, the functions around it, and the endpoint.
    #[inline]
    pub(crate) fn run(&self, endpoint: &dyn Endpoint, request: &Request<'_>) -> Response {
        let checked = self.protection.before(request.http, &mut request.exchange.borrow_mut().session);
        if let Err(refusal) = checked {
            return refusal.respond();
        }
        for layer in &self.layers {
            if let Some(response) = layer.before(request) {
                return response;
            }
        }
        Next::new(&self.around, endpoint).run(request)
    }

    /// Renders an error and passes the reply through the layers, just before it is written.
    #[inline]
    pub(crate) fn behind(
        &self,
        exchange: &mut Exchange,
        response: &mut Response,
        head: &mut Head<'_>,
        wants_html: impl FnOnce() -> bool,
    ) {
        if let Content::Error(error) = &response.body {
            let (content_type, body) = self.render(error, wants_html());
            (response.content_type, response.body) = (Cow::Borrowed(content_type), Content::Owned(body));
        }
        for layer in self.layers.iter().rev() {
            layer.behind(exchange, response, head);
        }
        self.protection.behind(exchange.session.as_ref(), response.status, &response.fields, head);
    }

    #[cold]
    fn render(&self, error: &Error, wants_html: bool) -> (&'static str, Vec<u8>) {
        if let Some(cause) = error.cause() {
            tracing::error!(status = error.status().0, cause, "a request failed");
        }
        match (&self.error_page, wants_html) {
            (_, false) => ("application/problem+json", error.problem()),
            (Some(page), true) => (HTML, page(error).into_bytes()),
            (None, true) => (HTML, error.page().into_bytes()),
        }
    }
}

/// Checks what a route's handler needs of its application. Used once, at the start.
pub struct Needs<'b> {
    pub(crate) built: &'b Built,
    pub(crate) route: &'b Route,
    pub(crate) missing: Vec<String>,
}

impl Needs<'_> {
    /// Requires a state of this type.
    pub fn state<T: Any + Send + Sync>(&mut self) {
        if self.built.states.get::<T>().is_none() {
            let name = std::any::type_name::<T>();
            self.missing.push(format!("a state of type {name} is missing: give one by App::state"));
        }
    }

    /// Requires a database.
    pub fn database(&mut self) {
        if self.built.database.is_none() {
            self.missing.push("a database is missing: give one by App::database".to_owned());
        }
    }

    /// Requires a condition; if it does not hold, `otherwise` is reported.
    pub fn that(&mut self, is_there: bool, otherwise: &str) {
        if !is_there {
            self.missing.push(otherwise.to_owned());
        }
    }

    /// Requires that the path has this number of parameters.
    pub fn path_parameters(&mut self, count: usize) {
        let has = self.route.pattern.replace("{{", "").matches('{').count();
        if has != count {
            self.missing.push(format!("its handler takes {count} path parameters, the path has {has}"));
        }
    }

    /// Requires an executor of this name.
    pub fn executor(&mut self, name: &str) {
        if !self.built.pools.has(name) {
            self.missing.push(format!("an executor \"{name}\" is missing: give one by App::executor"));
        }
    }
}
