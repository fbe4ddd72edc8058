//! Access log: one line for each reply of the service, through a queue that never blocks. Off by default.
//!
//! ```text
//! 2026-11-23T22:03:41.784898Z 127.0.0.1:40312 "GET /users/7?x=1 HTTP/1.1" 200 183 42us
//! ```
//!
//! Time of the reply (RFC 3339, UTC), peer (or, if a trusted proxy forwarded the request, the client's address without a port),
//! request line, status, bytes of the reply, and the time from parsing to the reply's place in the
//! write queue. A `"` in the target is written as `%22`; control bytes cannot occur there.

use std::fmt::Display;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use jiff::Timestamp;

use crate::method::Method;
use crate::queued_writer::QueuedWriter;
use crate::request::HttpRequest;
use crate::status::Status;

/// Destination of the lines.
#[derive(Clone, Debug)]
pub struct AccessLog {
    writer: QueuedWriter,
}

/// The part of a request that its line needs, kept until the reply.
#[derive(Debug)]
pub(crate) struct Entry {
    peer: SocketAddr,
    /// The client for which a trusted proxy forwarded the request.
    client: Option<IpAddr>,
    method: Method,
    target: String,
    http10: bool,
    begun: Instant,
}

impl Entry {
    pub(crate) fn new(request: &HttpRequest<'_>) -> Self {
        let (head, peer) = (&request.head, request.peer);
        let client = Some(request.client()).filter(|&client| client != peer.ip());
        let mark = if head.query.is_empty() { "" } else { "?" };
        let target = format!("{}{mark}{}", head.path, head.query).replace('"', "%22");
        Entry { peer, client, method: head.method, target, http10: head.http10, begun: Instant::now() }
    }
}

impl AccessLog {
    /// An access log on a writer.
    pub fn new(writer: QueuedWriter) -> Self {
        AccessLog { writer }
    }

    pub(crate) fn write(&self, entry: &Entry, status: Status, bytes: usize) {
        let Entry { peer, client, method, target, http10, begun } = entry;
        let from = client.as_ref().map_or(peer as &dyn Display, |client| client);
        let (method, minor) = (method.name(), u8::from(!http10));
        let (now, micros) = (Timestamp::now(), begun.elapsed().as_micros());
        let mut line = Vec::with_capacity(target.len() + 112);
        // Writing to a Vec cannot fail.
        let _ = writeln!(line, "{now:.6} {from} \"{method} {target} HTTP/1.{minor}\" {} {bytes} {micros}us", status.0);
        self.writer.write_line(line);
    }
}
