//! A reply as a value: status, header fields, body.
//!
//! The types of late replies and of layers are declared here too, because they refer to one another: a response may be a late reply,
//! a responder ends a late reply with a response, a response passes the layers of its environment, and a layer changes responses.
//! How late replies are begun and sent is in `late`; how layers are called is in `layer`.

use super::exchange::Exchange;
use super::local::Local;
use super::parts::Parts;
use super::request::Request;
use super::resources::Resources;
use crate::reply::{Buffer, Error, ErrorPage, Fields, Head, Stream};
use http::{BodySink, FileReply, LateReply, Status};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The reply to a request, before it is written.
pub struct Response {
    pub(crate) status: Status,
    pub(crate) content_type: Cow<'static, str>,
    pub(crate) fields: Fields,
    pub(crate) body: Content,
}

/// The body of a response.
pub(crate) enum Content {
    Static(&'static [u8]),
    Owned(Vec<u8>),
    /// Bytes in one of the thread's buffers.
    Buffer(Buffer),
    Shared(Arc<[u8]>),
    Parts(Parts),
    File(FileReply),
    Stream(Stream),
    /// The reply is sent later.
    Later(Later),
    /// Rendered as a page or a problem document when it is known which of them the client wants.
    Error(Error),
}

impl Response {
    /// A response with a body of bytes.
    pub fn new(status: Status, content_type: impl Into<Cow<'static, str>>, body: impl Into<Vec<u8>>) -> Response {
        Response::of(status, content_type.into(), Content::Owned(body.into()))
    }

    pub(crate) fn of(status: Status, content_type: Cow<'static, str>, body: Content) -> Response {
        Response { status, content_type, fields: Fields::default(), body }
    }

    /// A response without a body.
    pub fn empty(status: Status) -> Response {
        Response::of(status, Cow::Borrowed(""), Content::Static(b""))
    }

    /// The status. The status of a late reply is not known yet and reads as 202.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The same response with another status.
    pub fn with_status(mut self, status: Status) -> Response {
        self.status = status;
        self
    }

    /// The media type of the body; empty if there is none.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The same response with another media type.
    pub fn with_content_type(mut self, content_type: impl Into<Cow<'static, str>>) -> Response {
        self.content_type = content_type.into();
        self
    }

    /// Adds a header field. A field that would break the head, or contradict a field that the server sets itself (`Content-Length`, `Date`,
    /// …), is left out when the head is written.
    pub fn header(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> &mut Response {
        self.fields.push(name.into(), value.into());
        self
    }

    /// The same response with one more header field.
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> Response {
        self.header(name, value);
        self
    }

    /// The header fields that were added, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.texts()
    }

    /// Whether the reply is late.
    pub fn is_late(&self) -> bool {
        matches!(self.body, Content::Later(_))
    }

    /// The error, if the response is one.
    pub fn error(&self) -> Option<&Error> {
        match &self.body {
            Content::Error(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Response { status, content_type, fields, .. } = self;
        f.debug_struct("Response")
            .field("status", status)
            .field("type", content_type)
            .field("fields", fields)
            .finish_non_exhaustive()
    }
}

/// Begins the work behind a late reply. On a loop it is given the loop's state, on other threads `None`.
pub(crate) type Start = Box<dyn FnOnce(Responder, Option<&Local>)>;

/// A reply that is sent later.
pub struct Later {
    pub(crate) start: Start,
    /// Later requests of the connection that may change something can run meanwhile, because the work keeps its order by itself and ends
    /// soon.
    pub(super) keeps_order: bool,
    /// Receives the request's body in pieces.
    pub(crate) body: Option<Box<dyn BodySink>>,
}

/// The duty to answer one request, from any thread. If it is dropped unanswered, the reply is 500.
pub struct Responder {
    pub(crate) environment: Arc<Environment>,
    pub(crate) exchange: Exchange,
    pub(crate) late: LateReply,
    pub(super) wants_html: bool,
}

/// Sees every request before its handler, and adds header fields to every reply, late ones included.
///
/// A layer differs from a function around a handler ([`crate::Around`]): it sees the reply when its head is written, on whichever thread
/// that happens, so it sees late replies too. Layers see requests in the order in which they were added, and replies in the opposite
/// order. All layers run outside the functions that [`crate::App::around`] adds.
pub trait Layer: Send + Sync + 'static {
    /// Called before the handler. If it returns a reply, the layers after this one and the handler are not called.
    fn before(&self, _request: &Request<'_>) -> Option<Response> {
        None
    }

    /// Called when the head of a reply is written, and may change the reply. Fields added through `head` are written without a further
    /// copy. Called once for each request, whether its handler replied, failed, panicked or answered late, but not if its
    /// [`crate::Responder`] was dropped unanswered.
    fn behind(&self, _exchange: &mut Exchange, _response: &mut Response, _head: &mut Head<'_>) {}
}

/// What the requests and replies of an application share: the resources of handlers, the layers, and the page of errors.
pub(crate) struct Environment {
    pub(crate) resources: Resources,
    pub(crate) layers: Vec<Box<dyn Layer>>,
    pub(crate) error_page: Option<ErrorPage>,
}
