//! What an application sees: a request, a reply, and the service that joins them.

use std::net::SocketAddr;

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

/// A status code, 200 to 599.
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
    /// Per-loop state: readers, caches, scratch buffers. Never leaves its thread.
    type Local: 'static;
    /// Made once on each loop's thread.
    fn local(&self, lp: &reactor::Loop) -> Self::Local;
    /// Order against earlier unanswered requests of the connection. Default: safe methods read, others write.
    fn order(&self, request: &Request<'_>) -> Order;
    /// Answers now through `reply`, or takes `reply.later()` and answers from any thread, or `reply.stream(...)`.
    /// A panic here answers 500 and takes nothing else down.
    fn call(&self, local: &mut Self::Local, request: &Request<'_>, reply: Reply<'_>);
}

/// A request, borrowed from the connection's read buffer for the time of the call.
pub struct Request<'r> {
    _todo: &'r (),
}

impl<'r> Request<'r> {
    /// The method.
    pub fn method(&self) -> Method {
        unimplemented!()
    }
    /// The path as sent (ASCII, percent-escapes intact), without the query.
    pub fn path(&self) -> &'r str {
        unimplemented!()
    }
    /// The query as sent, without `?`; empty where there is none.
    pub fn query(&self) -> &'r str {
        unimplemented!()
    }
    /// The first header field of this name (ASCII case folded).
    pub fn header(&self, _name: &str) -> Option<&'r [u8]> {
        unimplemented!()
    }
    /// The whole body (its size is within the limit), chunks already joined.
    pub fn body(&self) -> &'r [u8] {
        unimplemented!()
    }
    /// Peer of the connection.
    pub fn peer(&self) -> SocketAddr {
        unimplemented!()
    }
}

/// The duty to answer one request. Dropped unanswered, it answers 500.
pub struct Reply<'r> {
    _todo: &'r mut (),
}

impl<'r> Reply<'r> {
    /// Adds a header field to the reply (before `send` or `stream`). Names and values are checked for CR, LF, NUL.
    pub fn header(&mut self, _name: &str, _value: &str) -> &mut Self {
        unimplemented!()
    }
    /// Answers with a body given in one piece, copied once into the connection's write queue.
    pub fn send(self, _status: Status, _content_type: &str, _body: &[u8]) {
        unimplemented!()
    }
    /// Answers with a body given in pieces, without joining them first.
    pub fn send_pieces(self, _status: Status, _content_type: &str, _pieces: &[&[u8]]) {
        unimplemented!()
    }
    /// Keeps the reply for later, from any thread. The connection's later replies wait behind it.
    pub fn later(self) -> LateReply {
        unimplemented!()
    }
    /// Answers with a stream: `source` is pulled on the loop's thread whenever the write queue is below its low-water
    /// mark. Chunked framing unless `length` is known; HTTP/1.0 without length closes at the end.
    pub fn stream(self, _status: Status, _content_type: &str, _length: Option<u64>, _source: Box<dyn BodySource>) {
        unimplemented!()
    }
}

/// A reply that is answered later, from any thread; owns all it needs. Dropped unanswered, it answers 500.
pub struct LateReply {
    _todo: (),
}

impl LateReply {
    /// Adds a header field.
    pub fn header(&mut self, _name: &str, _value: &str) -> &mut Self {
        unimplemented!()
    }
    /// Answers. The bytes travel through the loop's mailbox.
    pub fn send(self, _status: Status, _content_type: &str, _body: Vec<u8>) {
        unimplemented!()
    }
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
    /// Appends the next piece (about 64 KB) to `out`.
    fn pull(&mut self, out: &mut Vec<u8>) -> More;
}
