//! Failures as replies: a page if the client accepts HTML, else a problem document (RFC 9457).

use http::Status;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// The failure of a request, as the client sees it. The cause of an internal error is logged and never sent.
#[derive(Debug)]
pub struct Error {
    what: Box<What>,
}

#[derive(Debug)]
struct What {
    status: Status,
    detail: Cow<'static, str>,
    fields: Vec<(&'static str, Cow<'static, str>)>,
    /// For the log only.
    cause: Option<String>,
}

/// RFC 9457, without a problem type of its own.
#[derive(Serialize)]
struct Problem<'e> {
    title: &'e str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'e str>,
}

/// Makes the page of an error; the text is sent as `text/html`.
pub type ErrorPage = Box<dyn Fn(&Error) -> String + Send + Sync>;

impl Error {
    /// An error with a status and a text for the client's user.
    pub fn new(status: Status, detail: impl Into<Cow<'static, str>>) -> Error {
        Error { what: Box::new(What { status, detail: detail.into(), fields: Vec::new(), cause: None }) }
    }

    /// 400: the request is wrong; `detail` says how.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Status(400), detail)
    }

    /// 403.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Status(403), detail)
    }

    /// 404.
    pub fn not_found() -> Error {
        Error::new(Status(404), "")
    }

    /// 409: the request conflicts with the present state.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Status(409), detail)
    }

    /// 503 with `Retry-After: 1`: nothing was done, the client may try again.
    pub fn busy(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Status(503), detail).with_header("Retry-After", "1")
    }

    /// 500. The cause is logged; the client does not see it.
    pub fn internal(cause: impl fmt::Display) -> Error {
        let mut error = Error::new(Status(500), "");
        error.what.cause = Some(cause.to_string());
        error
    }

    /// The same error with a cause for the log.
    pub(crate) fn with_cause(mut self, cause: impl fmt::Display) -> Error {
        self.what.cause = Some(cause.to_string());
        self
    }

    /// The same error with another text.
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Error {
        self.what.detail = detail.into();
        self
    }

    /// The same error with one more header field.
    pub fn with_header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Error {
        self.what.fields.push((name, value.into()));
        self
    }

    /// The reply's status.
    pub fn status(&self) -> Status {
        self.what.status
    }

    /// The status in words.
    pub fn title(&self) -> &'static str {
        self.what.status.reason()
    }

    /// The text beside the status; may be empty.
    pub fn detail(&self) -> &str {
        &self.what.detail
    }

    pub(crate) fn fields(&self) -> &[(&'static str, Cow<'static, str>)] {
        &self.what.fields
    }

    /// The cause of an internal error, for the log.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.what.cause.as_deref()
    }

    /// The problem document.
    pub(crate) fn problem(&self) -> Vec<u8> {
        let detail = Some(self.detail()).filter(|detail| !detail.is_empty());
        let problem = Problem { title: self.title(), status: self.what.status.0, detail };
        // Text and numbers can always be serialized.
        serde_json::to_vec(&problem).unwrap_or_default()
    }

    /// The page, if the application sets none of its own.
    pub(crate) fn page(&self) -> String {
        let (status, title) = (self.what.status.0, self.title());
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status} {title}</title></head>\n\
             <body><h1>{status} {title}</h1>"
        );
        if !self.what.detail.is_empty() {
            page.push_str(&format!("<p>{}</p>", escaped(self.detail())));
        }
        page.push_str("</body></html>\n");
        page
    }
}

/// Text escaped for a page, so that nothing in it is markup: `&`, `<`, `>` and both quotes are escaped.
pub fn escaped(text: &str) -> impl fmt::Display + '_ {
    Escaped(text)
}

struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what.status.0, self.title())?;
        if !self.what.detail.is_empty() {
            write!(f, ": {}", self.detail())?;
        }
        match &self.what.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// An I/O error of the program: 500, with its text in the log.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::internal(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::internal(error)
    }
}

impl From<std::fmt::Error> for Error {
    fn from(error: std::fmt::Error) -> Error {
        Error::internal(error)
    }
}
