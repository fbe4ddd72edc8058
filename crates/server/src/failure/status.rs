//! Failures of requests, and the one table that maps them to statuses.
//!
//! `[errors]` of the configuration may give three kinds other statuses on declared endpoints, and set their body; the general API
//! always answers with the table's status and a problem document (RFC 9457).

use http::Status;
use std::borrow::Cow;

/// The kinds of failures, by what the client can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No such path, key or document.
    NotFound,
    /// The path exists, but has other methods.
    MethodNotAllowed,
    /// Bad JSON, no body, a broken schema rule, a reference to a missing document, a bad parameter, bad SQL.
    Invalid,
    /// A key or unique value is in use, or a document is still referred to.
    Conflict,
    /// The requested changes are no longer kept.
    Gone,
    /// A step's expectation failed; the status is the endpoint's.
    Unmet,
    /// `If-Match` or `If-None-Match` did not hold.
    PreconditionFailed,
    /// A body, a result or a query's work is over a limit.
    TooLarge,
    /// The body is compressed.
    Coded,
    /// The time limit of a query was reached.
    OutOfTime,
    /// The sender has no permission.
    Forbidden,
    /// The token is invalid.
    Unauthorized,
    /// The sender's address has sent too many invalid tokens.
    TooManyTries,
    /// The name is reserved for a later version.
    NotYet,
    /// Queues are full: try again.
    Busy,
    /// The disk is full: try again when there is room.
    DiskFull,
    /// The store takes no writes (failed sync), or it is unknown whether the change is durable.
    Unavailable,
    /// Damaged data or a bug.
    Internal,
}

/// Value of `Retry-After`: queues are mostly empty again by then.
const RETRY_AFTER_SECONDS: &str = "1";

/// The same while the disk is full: somebody has to make room.
const RETRY_AFTER_FULL_SECONDS: &str = "10";

/// Kind, its status, and the problem document's title.
const TABLE: [(FailureKind, u16, &str); 18] = [
    (FailureKind::NotFound, 404, "Not found"),
    (FailureKind::MethodNotAllowed, 405, "Method not allowed"),
    (FailureKind::Invalid, 400, "Invalid request"),
    (FailureKind::Conflict, 409, "Conflict"),
    (FailureKind::Gone, 410, "Gone"),
    (FailureKind::Unmet, 409, "Expectation failed"),
    (FailureKind::PreconditionFailed, 412, "Precondition failed"),
    (FailureKind::TooLarge, 413, "Too large"),
    (FailureKind::Coded, 415, "Unsupported coding"),
    (FailureKind::OutOfTime, 504, "Time limit exceeded"),
    (FailureKind::Forbidden, 403, "Forbidden"),
    (FailureKind::Unauthorized, 401, "Unauthorized"),
    (FailureKind::TooManyTries, 429, "Too many requests"),
    (FailureKind::NotYet, 501, "Not yet"),
    (FailureKind::Busy, 503, "Busy, try again"),
    (FailureKind::DiskFull, 503, "Disk full"),
    (FailureKind::Unavailable, 503, "Unavailable"),
    (FailureKind::Internal, 500, "Internal error"),
];

impl FailureKind {
    fn row(self) -> (u16, &'static str) {
        let row = TABLE.iter().find(|row| row.0 == self);
        row.map_or((500, "Internal error"), |row| (row.1, row.2))
    }

    /// The title of its problem document.
    pub fn title(self) -> &'static str {
        self.row().1
    }

    /// The status, unless `[errors]` sets another.
    pub fn status(self) -> Status {
        Status(self.row().0)
    }
}

/// One failure, with its details for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub kind: FailureKind,
    /// The fault, its place, and the remedy.
    pub detail: Cow<'static, str>,
    /// A status of its own, instead of the kind's.
    pub status: Option<u16>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, detail: impl Into<Cow<'static, str>>) -> Failure {
        Failure { kind, detail: detail.into(), status: None }
    }

    /// Whether the sender has no permission, or has it no longer.
    pub(crate) fn is_of_permission(&self) -> bool {
        matches!(self.kind, FailureKind::Unauthorized | FailureKind::Forbidden)
    }

    /// The header field that its reply must have: after how many seconds a retry may succeed, for a temporary failure, or the
    /// authentication scheme (RFC 9110, section 15.5.2).
    pub fn field(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            FailureKind::Busy | FailureKind::TooManyTries => Some(("Retry-After", RETRY_AFTER_SECONDS)),
            FailureKind::DiskFull => Some(("Retry-After", RETRY_AFTER_FULL_SECONDS)),
            FailureKind::Unauthorized => Some(("WWW-Authenticate", "Bearer")),
            _ => None,
        }
    }

    /// The expectation of a step failed.
    pub fn unmet(status: u16, detail: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status: Some(status), ..Failure::new(FailureKind::Unmet, detail) }
    }
}

/// Answers of declared endpoints to failures: `[errors]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRules {
    /// Status of [`FailureKind::Invalid`].
    pub invalid: u16,
    /// Status of [`FailureKind::Conflict`].
    pub conflict: u16,
    /// Status of [`FailureKind::NotFound`].
    pub not_found: u16,
    /// The body of every failure; `None`: a problem document.
    pub body: Option<String>,
}

impl Default for ErrorRules {
    fn default() -> ErrorRules {
        ErrorRules {
            invalid: FailureKind::Invalid.row().0,
            conflict: FailureKind::Conflict.row().0,
            not_found: FailureKind::NotFound.row().0,
            body: None,
        }
    }
}

impl ErrorRules {
    /// The status of a kind under these rules.
    pub fn status(&self, kind: FailureKind) -> Status {
        match kind {
            FailureKind::Invalid => Status(self.invalid),
            FailureKind::Conflict => Status(self.conflict),
            FailureKind::NotFound => Status(self.not_found),
            other => other.status(),
        }
    }

    /// Status, content type and body of the reply to a failure.
    pub fn reply<'f>(&'f self, failure: &Failure) -> (Status, &'static str, Cow<'f, [u8]>) {
        let status = failure.status.map_or_else(|| self.status(failure.kind), Status);
        match &self.body {
            Some(body) => (status, "text/plain; charset=utf-8", Cow::Borrowed(body.as_bytes())),
            None => (status, PROBLEM, Cow::Owned(problem(status, failure))),
        }
    }
}

/// The media type of problem documents.
pub const PROBLEM: &str = "application/problem+json";

/// A problem document (RFC 9457): `{"title":…,"status":…,"detail":…}`; its type is `about:blank`, which is left out.
pub fn problem(status: Status, failure: &Failure) -> Vec<u8> {
    problem_with(status, failure, serde_json::Map::new())
}

/// The same with members of its own (RFC 9457, section 3.2).
pub(super) fn problem_with(
    status: Status,
    failure: &Failure,
    mut document: serde_json::Map<String, serde_json::Value>,
) -> Vec<u8> {
    document.insert("title".to_owned(), title(status, failure.kind).into());
    document.insert("status".to_owned(), status.0.into());
    if !failure.detail.is_empty() {
        document.insert("detail".to_owned(), failure.detail.as_ref().into());
    }
    serde_json::Value::Object(document).to_string().into_bytes()
}

/// The title of a problem document. Each kind of failure has its own title. Only for [`FailureKind::Unmet`] does the endpoint choose the
/// status; its title is the one of that status.
fn title(status: Status, kind: FailureKind) -> &'static str {
    let row = TABLE.iter().find(|row| row.1 == status.0);
    if kind == FailureKind::Unmet { row.map_or(kind.title(), |row| row.2) } else { kind.title() }
}

#[cfg(test)]
mod mapping {
    use super::{ErrorRules, Failure, FailureKind, TABLE};

    #[test]
    fn every_kind_has_its_row() {
        for (kind, status, _) in TABLE {
            assert_eq!(kind.status().0, status, "{kind:?}");
        }
        assert_eq!(FailureKind::Conflict.status().0, 409);
    }

    #[test]
    fn rules_change_the_status_of_their_kinds_and_the_body() {
        let rules = ErrorRules { invalid: 422, conflict: 400, not_found: 410, body: Some("no".to_owned()) };
        let (status, _, body) = rules.reply(&Failure::new(FailureKind::Conflict, "email in use"));
        assert_eq!((status.0, body.as_ref()), (400, b"no".as_slice()));
        assert_eq!(rules.status(FailureKind::Busy).0, 503);
        assert_eq!(rules.status(FailureKind::NotFound).0, 410);
        assert_eq!(rules.status(FailureKind::Invalid).0, 422);
    }

    #[test]
    fn a_problem_document_tells_title_status_and_detail() {
        let rules = ErrorRules::default();
        let (status, media, body) = rules.reply(&Failure::new(FailureKind::Invalid, "mark: 6 is more than 5"));
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((status.0, media), (400, "application/problem+json"));
        assert_eq!(body["title"], "Invalid request");
        assert_eq!(body["detail"], "mark: 6 is more than 5");
        assert_eq!(body["status"], 400);
        // An endpoint's step chooses its status; the title is that of the status.
        for (status, title) in [(401, "Unauthorized"), (409, "Conflict"), (418, "Expectation failed")] {
            let (_, _, body) = rules.reply(&Failure::unmet(status, "sign in first"));
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!((&body["title"], &body["status"]), (&title.into(), &status.into()));
        }
    }
}
