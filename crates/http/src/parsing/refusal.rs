//! Reasons to refuse a request before the service is called: one table of reasons, statuses and texts.
//!
//! Every refusal closes the connection: after a request that could be interpreted in two ways, the start of the next one is
//! unknown.

use crate::body::BodyFault;
use crate::limits::ClientLimits;
use crate::status::Status;
use std::borrow::Cow;

/// A reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    BareCarriageReturn,
    BareLineFeed,
    NulByte,
    BlankLines,
    RequestLine,
    Target,
    FieldLine,
    HostMissing,
    HostRepeated,
    HostValue,
    LengthRepeated,
    LengthValue,
    BothFramings,
    CodingRepeated,
    CodingInHttp10,
    CodingUnknown,
    ChunkSize,
    ChunkExtension,
    ChunkEnd,
    Trailer,
    Cut,
    HeadDeadline,
    BodyDeadline,
    BodyTooLarge,
    TargetTooLong,
    Expectation,
    HeadTooLarge,
    TooManyFields,
    MethodUnknown,
    TooManyBodies,
    NoBuffers,
    NoPlace,
    Stopping,
    Version,
}

impl Refusal {
    /// The status, and a description for the client's developer.
    pub(crate) fn status_and_detail(self) -> (Status, &'static str) {
        use Refusal::*;
        let (status, detail) = match self {
            BareCarriageReturn => (400, "a carriage return without a line feed"),
            BareLineFeed => (400, "a line feed without a carriage return"),
            NulByte => (400, "a NUL byte in the head"),
            BlankLines => (400, "too many empty lines before the request"),
            RequestLine => (400, "the request line is not METHOD TARGET HTTP/1.x"),
            Target => (400, "the request target is not a path or an http URL in ASCII"),
            FieldLine => (400, "a header line is not NAME: VALUE"),
            HostMissing => (400, "no Host header"),
            HostRepeated => (400, "more than one Host header"),
            HostValue => (400, "the Host header is not a host"),
            LengthRepeated => (400, "more than one Content-Length"),
            LengthValue => (400, "Content-Length is not a number"),
            BothFramings => (400, "both Content-Length and Transfer-Encoding"),
            CodingRepeated => (400, "Transfer-Encoding is not the one word chunked"),
            CodingInHttp10 => (400, "Transfer-Encoding in an HTTP/1.0 request"),
            CodingUnknown => (501, "a transfer coding other than chunked"),
            ChunkSize => (400, "a chunk size is not a hexadecimal number"),
            ChunkExtension => (400, "chunk extensions are malformed or too long"),
            ChunkEnd => (400, "a chunk does not end with CR LF"),
            Trailer => (400, "the trailer is malformed or too long"),
            Cut => (400, "the request ends half-way"),
            HeadDeadline => (408, "the head of the request did not arrive in time"),
            BodyDeadline => (408, "the body of the request did not arrive in time"),
            BodyTooLarge => (413, "the body is larger than this server takes"),
            TargetTooLong => (414, "the request target is longer than this server takes"),
            Expectation => (417, "an expectation other than 100-continue"),
            HeadTooLarge => (431, "the head of the request is larger than this server takes"),
            TooManyFields => (431, "more header fields than this server takes"),
            MethodUnknown => (501, "a method that this server does not know"),
            TooManyBodies => {
                (503, "request bodies take too much memory at the moment, and this one most: send it again")
            }
            NoBuffers => {
                (503, "unfinished requests take too much memory at the moment, and this one most: send it again")
            }
            NoPlace => (503, "there are too many connections: connect again later"),
            Stopping => (503, "the server is being stopped"),
            Version => (505, "a version other than HTTP/1.0 and HTTP/1.1"),
        };
        (Status(status), detail)
    }

    /// The same for a sink of a body in pieces.
    pub(crate) fn fault(self, limits: &ClientLimits) -> BodyFault {
        BodyFault { status: self.status_and_detail().0, detail: self.detail(limits) }
    }

    /// The description with the limit that was exceeded, and the name of its setting.
    pub(crate) fn detail(self, limits: &ClientLimits) -> Cow<'static, str> {
        let (number, of) = match self {
            Refusal::BodyTooLarge => (limits.body_bytes_max, "bytes, of `[server] body_bytes_max`"),
            Refusal::HeadTooLarge => (limits.head_bytes_max, "bytes, of `[server] head_bytes_max`"),
            Refusal::TargetTooLong => (limits.target_bytes_max, "bytes, half of `[server] head_bytes_max`"),
            Refusal::TooManyFields => (limits.fields_max, "fields"),
            other => return other.status_and_detail().1.into(),
        };
        format!("{}: {number} {of}", self.status_and_detail().1).into()
    }
}
