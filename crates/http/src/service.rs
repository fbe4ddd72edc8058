//! What an application is made of: the service, and the few words it shares with the server.

use crate::reply::Reply;
use crate::request::Request;

/// A request method. Others than these are answered 501 before a service sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    /// All methods, in the order in which `Allow` lists them.
    pub const ALL: [Method; 7] =
        [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Options];

    /// The method of this name. Names are case-sensitive (RFC 9110 section 9.1).
    pub fn from_name(name: &str) -> Option<Method> {
        Some(match name.as_bytes() {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"PATCH" => Method::Patch,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            _ => return None,
        })
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        }
    }

    /// Whether the method promises to change nothing (RFC 9110 section 9.2.1).
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options)
    }
}

/// A status code, 200 to 599. Another number is a mistake of the service, and is answered as 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

/// How a request stands to the unanswered ones before it on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Waits until every earlier request of the connection that may change something is answered.
    Read,
    /// Is handed to the service at once; replies still leave in the order of the requests.
    Write,
}

/// The application. One value for all loops; what a loop needs for itself is in `Local`.
pub trait Service: Send + Sync + 'static {
    /// Per-loop state: readers, caches, scratch buffers. Never leaves its thread. A panic in [`Service::call`] leaves
    /// it as it was at that moment, so it must stay usable between any two of its own operations.
    type Local: 'static;
    /// Made once on each loop's thread.
    fn local(&self, lp: &reactor::Loop) -> Self::Local;
    /// Order against earlier unanswered requests of the connection. Default: safe methods read, others write.
    fn order(&self, request: &Request<'_>) -> Order {
        if request.method().is_safe() { Order::Read } else { Order::Write }
    }
    /// A request without a body has arrived, and will be called soon after others: the time to note what it will touch.
    /// A hint that comes for part of the requests; the path is as [`Request::path`] gives it.
    fn foresee(&self, _local: &mut Self::Local, _method: Method, _path: &str) {}
    /// Some requests were foreseen and are called next: the time to fetch what was noted.
    fn prepare(&self, _local: &mut Self::Local) {}
    /// Answers now through `reply`, or takes `reply.later()` and answers from any thread, or `reply.stream(...)`.
    /// A panic here answers 500 and takes nothing else down.
    fn call(&self, local: &mut Self::Local, request: &Request<'_>, reply: Reply<'_>);
}

/// What a pull from a [`BodySource`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// There is more: pull again at the next low-water mark.
    Yes,
    /// The body is complete.
    No,
    /// Something went wrong half-way: the connection is cut, so that the client sees a broken body.
    Broken,
}

/// A streamed body. Lives on the loop's thread.
pub trait BodySource: 'static {
    /// Appends the next piece (about 64 KB) to `out`, and touches nothing before it. Must not wait: a source that has
    /// nothing yet holds up its whole loop.
    fn pull(&mut self, out: &mut Vec<u8>) -> More;
}
