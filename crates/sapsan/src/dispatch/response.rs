//! A reply as a value: status, header fields, body.

use super::late::Later;
use crate::reply::{Buffer, Error, Fields, Stream};
use http::{FileReply, Status};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The content type of pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

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

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Part {
    /// Constant data of the program.
    Static(&'static [u8]),
    /// Shared by many replies.
    Shared(Arc<[u8]>),
    /// Owned by this reply.
    Owned(Vec<u8>),
}

impl Part {
    /// The part as the HTTP server takes it.
    pub(super) fn as_sent(&self) -> http::BodyPart<'_> {
        match self {
            Part::Static(bytes) => http::BodyPart::Static(bytes),
            Part::Shared(bytes) => http::BodyPart::Shared(bytes),
            Part::Owned(bytes) => http::BodyPart::Copied(bytes),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Static(bytes) => bytes,
            Part::Shared(bytes) => bytes,
            Part::Owned(bytes) => bytes,
        }
    }
}

impl From<&'static str> for Part {
    fn from(text: &'static str) -> Part {
        Part::Static(text.as_bytes())
    }
}

impl From<&'static [u8]> for Part {
    fn from(bytes: &'static [u8]) -> Part {
        Part::Static(bytes)
    }
}

impl From<Arc<[u8]>> for Part {
    fn from(bytes: Arc<[u8]>) -> Part {
        Part::Shared(bytes)
    }
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Part {
        Part::Owned(bytes)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Part {
        Part::Owned(text.into_bytes())
    }
}

/// A body in parts, sent in one write without joining them. Parts below [`http::UNCOPIED_BYTES_MIN`] and owned parts are copied into the
/// write queue; larger ones are not copied. Useful for a page whose frame is always the same.
///
/// ```
/// # use sapsan::Parts;
/// fn page() -> Parts {
///     Parts::html().with("<h1>").with(format!("{} seats", 3)).with("</h1>")
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Parts {
    pub(crate) content_type: Cow<'static, str>,
    pub(crate) list: Vec<Part>,
}

impl Parts {
    /// An empty body of this media type.
    pub fn new(content_type: impl Into<Cow<'static, str>>) -> Parts {
        Parts { content_type: content_type.into(), list: Vec::new() }
    }

    /// An empty HTML page.
    pub fn html() -> Parts {
        Parts::new(HTML)
    }

    /// The same body with one more part.
    pub fn with(mut self, part: impl Into<Part>) -> Parts {
        self.list.push(part.into());
        self
    }

    /// Adds a part.
    pub fn push(&mut self, part: impl Into<Part>) {
        self.list.push(part.into());
    }
}
