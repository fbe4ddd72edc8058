//! A request as handlers, extraction and middleware see it.

use super::exchange::Exchange;
use super::local::Local;
use super::resources::Resources;
use crate::reply::Error;
use http::{Method, Params};
use std::any::Any;
use std::cell::{OnceCell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};

/// A request, borrowed from its connection during the call.
pub struct Request<'r> {
    pub(crate) http: &'r http::HttpRequest<'r>,
    params: Option<&'r Params<'r, 'r>>,
    pub(crate) resources: &'r Resources,
    pub(crate) local: &'r Local,
    pub(crate) exchange: RefCell<Exchange>,
    /// The path's parameters, decoded. Filled only if one of them has an escape.
    decoded: OnceCell<Vec<Result<Box<str>, http::DecodeError>>>,
}

impl<'r> Request<'r> {
    pub(crate) fn new(
        http: &'r http::HttpRequest<'r>,
        params: Option<&'r Params<'r, 'r>>,
        resources: &'r Resources,
        local: &'r Local,
    ) -> Request<'r> {
        Request { http, params, resources, local, exchange: RefCell::default(), decoded: OnceCell::new() }
    }

    /// The request as it came over the wire.
    pub fn http(&self) -> &'r http::HttpRequest<'r> {
        self.http
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.http.method()
    }

    /// The path as sent, without the query.
    pub fn path(&self) -> &'r str {
        self.http.path()
    }

    /// The query as sent, without `?`; empty if there is none.
    pub fn query(&self) -> &'r str {
        self.http.query()
    }

    /// The first header field of this name (ASCII case is ignored), if it is UTF-8 text.
    pub fn header(&self, name: &str) -> Option<&'r str> {
        self.http.header(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The whole body. Its size is within [`http::ClientLimits::body_bytes_max`].
    pub fn body(&self) -> &'r [u8] {
        self.http.body()
    }

    /// The peer of the connection: if there is a proxy, the proxy.
    pub fn peer(&self) -> SocketAddr {
        self.http.peer()
    }

    /// The client's address: the last hop that is not a trusted proxy ([`crate::App::trusted_proxies`]).
    pub fn client(&self) -> IpAddr {
        self.http.client()
    }

    /// A state of the application ([`crate::App::state`]).
    pub fn state<T: Any + Send + Sync>(&self) -> Option<&'r T> {
        self.resources.states.get()
    }

    /// The values that middleware, layers and handlers of this request pass to one another.
    ///
    /// # Panics
    ///
    /// If the caller still holds the result of an earlier call.
    pub fn exchange(&self) -> RefMut<'_, Exchange> {
        self.exchange.borrow_mut()
    }

    /// Number of parameters in the route's path.
    pub fn path_parameters(&self) -> usize {
        self.params.map_or(0, |params| params.iter().count())
    }

    /// A parameter of the path by its index, decoded. If its escapes are invalid, 404: no valid link leads there.
    pub fn path_parameter(&self, place: usize) -> Result<&str, Error> {
        let raw = self.params.and_then(|params| params.iter().nth(place)).map(|(_, raw)| raw);
        let Some(raw) = raw else { return Err(Error::internal(format!("the route has no path parameter {place}"))) };
        if !raw.contains('%') {
            return Ok(raw);
        }
        let decoded = self.decoded.get_or_init(|| self.decode());
        match decoded.get(place) {
            Some(Ok(text)) => Ok(&**text),
            Some(Err(error)) => Err(Error::not_found().with_detail(format!("the path {error}"))),
            None => Err(Error::not_found()),
        }
    }

    /// The last parameter of the path, not decoded; empty if there is none.
    pub(crate) fn last_parameter_as_sent(&self) -> &'r str {
        self.params.and_then(|params| params.iter().last()).map_or("", |(_, raw)| raw)
    }

    fn decode(&self) -> Vec<Result<Box<str>, http::DecodeError>> {
        let mut scratch = Vec::new();
        let raw = self.params.into_iter().flat_map(|params| params.iter());
        raw.map(|(_, raw)| http::query::decode_path(raw, &mut scratch).map(Box::from)).collect()
    }

    /// Whether the client accepts pages: its Accept field names HTML.
    pub fn accepts_html(&self) -> bool {
        self.header("Accept").is_some_and(|accept| accept.contains("text/html"))
    }
}
