//! A request as handlers, extraction and middleware see it.

use crate::build::Built;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::service::Local;
use http::{Method, Params};
use std::any::Any;
use std::cell::{OnceCell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};

/// A request, borrowed from the connection for the time of the call.
pub struct Request<'r> {
    pub(crate) http: &'r http::Request<'r>,
    params: Option<&'r Params<'r, 'r>>,
    pub(crate) built: &'r Built,
    pub(crate) local: &'r Local,
    pub(crate) exchange: RefCell<Exchange>,
    /// The path's parameters, decoded: made where one of them holds an escape.
    decoded: OnceCell<Vec<Result<Box<str>, http::DecodeError>>>,
}

impl<'r> Request<'r> {
    pub(crate) fn new(
        http: &'r http::Request<'r>,
        params: Option<&'r Params<'r, 'r>>,
        built: &'r Built,
        local: &'r Local,
    ) -> Request<'r> {
        Request { http, params, built, local, exchange: RefCell::default(), decoded: OnceCell::new() }
    }

    /// The request as it came over the wire.
    pub fn http(&self) -> &'r http::Request<'r> {
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

    /// The query as sent, without `?`; empty where there is none.
    pub fn query(&self) -> &'r str {
        self.http.query()
    }

    /// The first header field of this name (ASCII case folded), where it is text.
    pub fn header(&self, name: &str) -> Option<&'r str> {
        self.http.header(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The whole body. Its size is within [`http::Limits::body_bytes_max`].
    pub fn body(&self) -> &'r [u8] {
        self.http.body()
    }

    /// The other end of the connection: a proxy, where there is one.
    pub fn peer(&self) -> SocketAddr {
        self.http.peer()
    }

    /// The client's address: of the last hop that is no trusted proxy ([`crate::App::trusted_proxies`]).
    pub fn client(&self) -> IpAddr {
        self.http.client()
    }

    /// A state that the application was given ([`crate::App::state`]).
    pub fn state<T: Any + Send + Sync>(&self) -> Option<&'r T> {
        self.built.states.get()
    }

    /// The values of this request that middleware, layers and handlers leave for one another.
    ///
    /// Panics where the caller still holds what an earlier call gave.
    pub fn exchange(&self) -> RefMut<'_, Exchange> {
        self.exchange.borrow_mut()
    }

    /// How many parameters the route's path has.
    pub fn path_parameters(&self) -> usize {
        self.params.map_or(0, |params| params.iter().count())
    }

    /// A parameter of the path by its place, decoded. 404 where its escapes are wrong: no such path was ever given out.
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

    /// The last parameter of the path, not decoded; empty where there is none.
    pub(crate) fn last_parameter_as_sent(&self) -> &'r str {
        self.params.and_then(|params| params.iter().last()).map_or("", |(_, raw)| raw)
    }

    fn decode(&self) -> Vec<Result<Box<str>, http::DecodeError>> {
        let mut scratch = Vec::new();
        let raw = self.params.into_iter().flat_map(|params| params.iter());
        raw.map(|(_, raw)| http::query::decode_path(raw, &mut scratch).map(Box::from)).collect()
    }

    /// Whether the client is one that shows pages: its Accept names HTML.
    pub fn accepts_html(&self) -> bool {
        self.header("Accept").is_some_and(|accept| accept.contains("text/html"))
    }
}
