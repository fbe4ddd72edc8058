//! Extraction: the arguments of handlers, from a request.

use crate::dispatch::{Needs, Request};
use crate::reply::Error;
use std::any::Any;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

/// A type that a handler can take as an argument.
pub trait Extract {
    /// The type itself, with the lifetime of what it borrows from the request.
    type Item<'r>;

    /// Extracts it from a request. On an error the handler is not called, and the error is the reply.
    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error>;

    /// Checks that the application has what the extraction needs. Called once for each route, when the application
    /// starts.
    fn needs(_needs: &mut Needs<'_>) {}
}

/// The request itself.
impl Extract for &Request<'_> {
    type Item<'r> = &'r Request<'r>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error> {
        Ok(request)
    }
}

/// A state of the application ([`crate::App::state`]), borrowed.
#[derive(Clone, Copy, Debug)]
pub struct State<'r, T>(pub &'r T);

impl<T> Deref for State<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Any + Send + Sync> Extract for State<'_, T> {
    type Item<'r> = State<'r, T>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error> {
        request.state().map(State).ok_or_else(missing_state::<T>)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.state::<T>();
    }
}

/// A state of the application that was given as `Arc<T>`, for handlers that move it to another thread.
#[derive(Debug)]
pub struct Shared<T>(pub Arc<T>);

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Any + Send + Sync> Extract for Shared<T> {
    type Item<'r> = Shared<T>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error> {
        request.state().map(|state| Shared(Arc::clone(state))).ok_or_else(missing_state::<Arc<T>>)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.state::<Arc<T>>();
    }
}

/// Unreachable: the start checks that the state is there.
#[cold]
fn missing_state<T>() -> Error {
    Error::internal(format!("the application has no state of type {}", std::any::type_name::<T>()))
}

/// The client's address: the last hop that is not a trusted proxy ([`crate::App::trusted_proxies`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl Extract for ClientAddress {
    type Item<'r> = ClientAddress;

    fn extract(request: &Request<'_>) -> Result<ClientAddress, Error> {
        Ok(ClientAddress(request.client()))
    }
}

/// The request's header fields.
#[derive(Clone, Copy)]
pub struct Headers<'r>(&'r http::HttpRequest<'r>);

impl<'r> Headers<'r> {
    /// The first field of this name (ASCII case is ignored), if it is UTF-8 text.
    pub fn get(&self, name: &str) -> Option<&'r str> {
        self.0.header(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All fields in the order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (&'r str, &'r [u8])> + '_ {
        self.0.headers()
    }
}

impl Extract for Headers<'_> {
    type Item<'r> = Headers<'r>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Headers<'r>, Error> {
        Ok(Headers(request.http()))
    }
}

/// The request's body as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Body<'r>(pub &'r [u8]);

impl Extract for Body<'_> {
    type Item<'r> = Body<'r>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Body<'r>, Error> {
        Ok(Body(request.body()))
    }
}

/// The request's body as text; 400 if it is not UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Text<'r>(pub &'r str);

impl Extract for Text<'_> {
    type Item<'r> = Text<'r>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Text<'r>, Error> {
        let text = std::str::from_utf8(request.body());
        text.map(Text).map_err(|error| Error::bad_request(format!("the body is not UTF-8: {error}")))
    }
}

/// The argument if it can be extracted. A failure does not fail the request.
impl<T: Extract> Extract for Option<T> {
    type Item<'r> = Option<T::Item<'r>>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error> {
        Ok(T::extract(request).ok())
    }

    fn needs(needs: &mut Needs<'_>) {
        T::needs(needs);
    }
}

/// The argument, or the error of its extraction.
impl<T: Extract> Extract for Result<T, Error> {
    type Item<'r> = Result<T::Item<'r>, Error>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error> {
        Ok(T::extract(request))
    }

    fn needs(needs: &mut Needs<'_>) {
        T::needs(needs);
    }
}
