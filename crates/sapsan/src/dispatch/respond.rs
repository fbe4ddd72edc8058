//! Results of handlers as replies.

use super::parts::{HTML, Parts};
use super::response::{Content, Response};
use crate::reply::{Buffer, Error, Stream};
use http::Status;
use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::sync::Arc;

const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

/// A type that a handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reply",
    note = "text, `Html`, `Json`, `Redirect`, `Status`, `(Status, reply)`, \
    `Option`, `Result<reply, impl Into<sapsan::Error>>`, `Stream`, `Parts`, `Later` and `Response` are"
)]
pub trait Respond {
    /// The reply.
    fn respond(self) -> Response;
}

impl Respond for Response {
    fn respond(self) -> Response {
        self
    }
}

/// 204.
impl Respond for () {
    fn respond(self) -> Response {
        Response::empty(Status(204))
    }
}

/// Plain text.
impl Respond for &'static str {
    fn respond(self) -> Response {
        Response::of(Status(200), Cow::Borrowed(TEXT), Content::Static(self.as_bytes()))
    }
}

/// Plain text.
impl Respond for String {
    fn respond(self) -> Response {
        Response::of(Status(200), Cow::Borrowed(TEXT), Content::Owned(self.into_bytes()))
    }
}

/// Plain text.
impl Respond for Cow<'static, str> {
    fn respond(self) -> Response {
        match self {
            Cow::Borrowed(text) => text.respond(),
            Cow::Owned(text) => text.respond(),
        }
    }
}

/// Bytes of no known type.
impl Respond for &'static [u8] {
    fn respond(self) -> Response {
        Response::of(Status(200), Cow::Borrowed(BYTES), Content::Static(self))
    }
}

/// Bytes of no known type.
impl Respond for Vec<u8> {
    fn respond(self) -> Response {
        Response::of(Status(200), Cow::Borrowed(BYTES), Content::Owned(self))
    }
}

/// Bytes of no known type, sent uncopied.
impl Respond for Arc<[u8]> {
    fn respond(self) -> Response {
        Response::of(Status(200), Cow::Borrowed(BYTES), Content::Shared(self))
    }
}

/// A page: anything that implements `Display`, such as a string or a template. The text must be HTML whose values are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Html<T>(pub T);

impl<T: Display> Respond for Html<T> {
    fn respond(self) -> Response {
        let mut page = Buffer::take();
        match write!(page, "{}", self.0) {
            Ok(()) => Response::of(Status(200), Cow::Borrowed(HTML), Content::Buffer(page)),
            Err(_) => Error::internal("a page could not be displayed").respond(),
        }
    }
}

/// Redirects the client to another address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    status: Status,
    to: Cow<'static, str>,
}

impl Redirect {
    /// 303: fetch that address by GET. The usual reply to a submitted form.
    pub fn to(to: impl Into<Cow<'static, str>>) -> Redirect {
        Redirect { status: Status(303), to: to.into() }
    }

    /// 302: as 303, for older clients.
    pub fn found(to: impl Into<Cow<'static, str>>) -> Redirect {
        Redirect { status: Status(302), to: to.into() }
    }

    /// 307: moved temporarily; the method stays.
    pub fn temporary(to: impl Into<Cow<'static, str>>) -> Redirect {
        Redirect { status: Status(307), to: to.into() }
    }

    /// 308: moved permanently; the method stays.
    pub fn permanent(to: impl Into<Cow<'static, str>>) -> Redirect {
        Redirect { status: Status(308), to: to.into() }
    }
}

impl Respond for Redirect {
    fn respond(self) -> Response {
        Response::empty(self.status).with_header("Location", self.to)
    }
}

/// A status without a body; an error (400 and above) is a page or a problem document.
impl Respond for Status {
    fn respond(self) -> Response {
        if self.0 >= 400 { Error::new(self, "").respond() } else { Response::empty(self) }
    }
}

/// Another reply under this status.
impl<T: Respond> Respond for (Status, T) {
    fn respond(self) -> Response {
        self.1.respond().with_status(self.0)
    }
}

/// `None` is 404.
impl<T: Respond> Respond for Option<T> {
    fn respond(self) -> Response {
        self.map_or_else(|| Error::not_found().respond(), Respond::respond)
    }
}

impl<T: Respond, E: Into<Error>> Respond for Result<T, E> {
    fn respond(self) -> Response {
        self.map_or_else(|error| error.into().respond(), Respond::respond)
    }
}

impl Respond for Error {
    fn respond(self) -> Response {
        let mut response = Response::empty(self.status());
        for (name, value) in self.fields() {
            response.header(*name, value.clone());
        }
        response.body = Content::Error(self);
        response
    }
}

impl Respond for Parts {
    fn respond(mut self) -> Response {
        let content_type = std::mem::take(&mut self.content_type);
        Response::of(Status(200), content_type, Content::Parts(self))
    }
}

impl Respond for Stream {
    fn respond(mut self) -> Response {
        let content_type = std::mem::take(&mut self.content_type);
        Response::of(Status(200), content_type, Content::Stream(self))
    }
}
