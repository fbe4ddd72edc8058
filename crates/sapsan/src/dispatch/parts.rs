//! A body in parts.

use std::borrow::Cow;
use std::sync::Arc;

/// The content type of pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

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
