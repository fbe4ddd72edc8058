//! The reply to one request, from the service's side.

pub(crate) mod composer;
pub(crate) mod field_block;
pub(crate) mod late;
pub(crate) mod part;
pub(crate) mod stream;

use std::sync::Arc;

use reactor::Piece;

use crate::body::{BodySink, BodySource};
use crate::connection::worker::Worker;
use crate::metrics::latency::Series;
use crate::presence::{Presence, Watched};
use crate::reply::composer::{
    HeaderFields, Length, Shape, append_field, append_lines, append_numbered_tag, checked, has_body,
};
use crate::reply::field_block::FieldBlock;
use crate::reply::late::{Cutter, LateReply, Ticket};
use crate::reply::part::BodyPart;
use crate::reply::stream::{Stream, StreamFraming};
use crate::status::Status;

/// State of a reply after the service's call.
pub(crate) enum Outcome {
    /// No answer: the server answers 500.
    Unanswered,
    Sent(Status),
    /// Sent, and the worker has pieces that go between the bytes.
    Spliced(Status),
    /// The head was composed; the body is pulled.
    Stream(Status, Box<Stream>),
    Later,
    /// Later, and the service watches whether the client stays.
    Watched(Watched),
    /// Later and watched, and the request's body is taken in pieces.
    InPieces(Watched, Box<dyn BodySink>),
}

/// The obligation to answer one request. If it is dropped without an answer, the answer is 500.
pub struct Reply<'r> {
    pub(crate) worker: &'r Worker,
    /// The connection's write queue; or, if an earlier request is unanswered, a buffer that waits in the ring.
    pub(crate) out: &'r mut Vec<u8>,
    pub(crate) shape: &'r mut Shape,
    pub(crate) ticket: Ticket,
    pub(crate) outcome: &'r mut Outcome,
}

impl Reply<'_> {
    /// Adds a header field to the reply (before `send` or `stream`). A field that would break the head (CR, LF, NUL and the
    /// like), or contradict the server's own fields (`Content-Length`, `Content-Type`, `Connection`, ...), is left out and
    /// counted.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        if !append_field(&mut self.worker.fields.borrow_mut(), name, value) {
            self.worker.metrics.fields_left_out.add(1);
        }
        self
    }

    /// Adds whole lines of header fields that are known to be valid.
    pub(crate) fn lines(&mut self, lines: &[u8]) -> &mut Self {
        self.worker.fields.borrow_mut().extend_from_slice(lines);
        self
    }

    /// Adds header fields that were checked before, with one copy. If they do not fit, they are left out and counted.
    #[inline]
    pub fn fields(&mut self, block: &FieldBlock) -> &mut Self {
        if !append_lines(&mut self.worker.fields.borrow_mut(), block.lines()) {
            self.worker.metrics.fields_left_out.add(1);
        }
        self
    }

    /// Adds an `ETag` field with a number in quotes (RFC 9110, section 8.8.3). Every document has one, so unnecessary checks and
    /// formatting are avoided.
    #[inline]
    pub fn numbered_tag(&mut self, number: u64) -> &mut Self {
        append_numbered_tag(&mut self.worker.fields.borrow_mut(), number);
        self
    }

    /// Counts the request under this series; otherwise it counts under [`Series::OTHER`].
    #[inline]
    pub fn count_under(&mut self, series: Series) -> &mut Self {
        self.worker.series.set(series);
        self
    }

    /// Closes the connection after this reply.
    pub fn close(&mut self) -> &mut Self {
        self.shape.persistent = false;
        self
    }

    /// Sends a body given in one piece, copied once into the connection's write queue.
    #[inline]
    pub fn send(mut self, status: Status, content_type: &str, body: &[u8]) {
        let status = checked(status);
        self.compose_head(status, content_type, Length::Known(body.len() as u64));
        if !self.shape.head_only && has_body(status) {
            self.out.extend_from_slice(body);
        }
        self.ends_as(Outcome::Sent(status));
    }

    /// Sends status 200, a numbered tag and a body that may turn out to be invalid after it was copied: `holds` is called after
    /// the copy. If it fails, nothing is sent, and the reply is returned.
    #[inline]
    pub fn send_tagged<E>(
        mut self,
        tag: u64,
        content_type: &str,
        body: &[u8],
        holds: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), (E, Self)> {
        let before = self.out.len();
        self.compose_tagged(Some(tag), Status(200), content_type, Length::Known(body.len() as u64));
        if !self.shape.head_only {
            self.out.extend_from_slice(body);
        }
        match holds() {
            Ok(()) => {
                self.ends_as(Outcome::Sent(Status(200)));
                Ok(())
            }
            Err(why) => {
                self.out.truncate(before);
                Err((why, self))
            }
        }
    }

    /// Sends a body given in pieces, without joining them first.
    pub fn send_pieces(mut self, status: Status, content_type: &str, pieces: &[&[u8]]) {
        let status = checked(status);
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.compose_head(status, content_type, Length::Known(bytes));
        if !self.shape.head_only && has_body(status) {
            for piece in pieces {
                self.out.extend_from_slice(piece);
            }
        }
        self.ends_as(Outcome::Sent(status));
    }

    /// Sends a body given in parts that leave together with the head in one write: small parts are copied into the write queue,
    /// large ones that live long enough are not ([`BodyPart`]).
    pub fn send_parts<'p, I>(mut self, status: Status, content_type: &str, parts: I)
    where
        I: IntoIterator<Item = BodyPart<'p>, IntoIter: Clone>,
    {
        let (status, parts) = (checked(status), parts.into_iter());
        let (bytes, copied) = part::measure(parts.clone());
        self.compose_head(status, content_type, Length::Spliced { bytes, copied });
        self.ends_as(Outcome::Sent(status));
        if !self.shape.head_only && has_body(status) {
            let mut pieces = self.worker.splices.borrow_mut();
            part::append(parts, self.out, &mut pieces);
            if !pieces.is_empty() {
                self.ends_as(Outcome::Spliced(status));
            }
        }
    }

    /// Sends a body without a copy: a large reply that is always the same.
    pub fn send_shared(self, status: Status, content_type: &str, body: Arc<[u8]>) {
        self.send_piece(status, content_type, Piece::Shared(body));
    }

    /// Sends a body without a copy: memory, or a range of a file.
    pub fn send_piece(mut self, status: Status, content_type: &str, body: Piece) {
        let status = checked(status);
        self.compose_head(status, content_type, Length::Spliced { bytes: body.len() as u64, copied: 0 });
        if self.shape.head_only || !has_body(status) {
            return self.ends_as(Outcome::Sent(status));
        }
        self.worker.splices.borrow_mut().push((self.out.len(), body));
        self.ends_as(Outcome::Spliced(status));
    }

    /// A handle that ends this reply's connection, until the reply has left.
    pub fn cutter(&self) -> Cutter {
        Cutter::new(self.worker.lp.clone(), self.ticket)
    }

    /// Keeps the reply to be sent later, from any thread. The connection's later replies wait behind it.
    pub fn later(mut self) -> LateReply {
        self.ends_as(Outcome::Later);
        self.kept(Presence::default())
    }

    /// The same for work that may take long: [`LateReply::presence`] reports whether the client is still there.
    pub fn later_watched(mut self) -> LateReply {
        let presence = Presence::default();
        self.ends_as(Outcome::Watched(Watched(presence.clone())));
        self.kept(presence)
    }

    /// The same, only for a request in pieces ([`crate::HttpRequest::is_in_pieces`]): `body` gets the pieces from now on, on the loop's
    /// thread.
    pub fn later_in_pieces(mut self, body: Box<dyn BodySink>) -> LateReply {
        let presence = Presence::default();
        self.ends_as(Outcome::InPieces(Watched(presence.clone()), body));
        self.kept(presence)
    }

    fn kept(self, presence: Presence) -> LateReply {
        let fields = self.worker.fields.borrow();
        // An empty Vec costs nothing; most late replies have no fields yet.
        LateReply::new(self.worker.lp.clone(), self.ticket, fields.clone(), presence)
    }

    /// Sends a stream: `source` is pulled on the loop's thread whenever the write queue is below its low-water mark. Chunked
    /// unless `length` is known; without a length an HTTP/1.0 connection closes at the end.
    pub fn stream(mut self, status: Status, content_type: &str, length: Option<u64>, source: Box<dyn BodySource>) {
        let status = checked(status);
        let (framing, length) = StreamFraming::of(length, self.shape.http10);
        self.shape.persistent &= framing != StreamFraming::UntilClose;
        self.compose_head(status, content_type, length);
        let empty = framing == StreamFraming::Length(0);
        if self.shape.head_only || !has_body(status) || empty {
            return self.ends_as(Outcome::Sent(status));
        }
        self.ends_as(Outcome::Stream(status, Box::new(Stream::new(source, framing))));
    }

    /// Sets the outcome. The one before owns nothing (`Unanswered` or `Sent`): not dropping it saves the usual reply a call.
    #[inline]
    fn ends_as(&mut self, outcome: Outcome) {
        std::mem::forget(std::mem::replace(self.outcome, outcome));
    }

    #[inline]
    fn compose_head(&mut self, status: Status, content_type: &str, length: Length) {
        self.compose_tagged(None, status, content_type, length);
    }

    #[inline]
    fn compose_tagged(&mut self, tag: Option<u64>, status: Status, content_type: &str, length: Length) {
        let (composer, lines) = (self.worker.composer.borrow(), self.worker.fields.borrow());
        composer.head(self.out, *self.shape, status, content_type, HeaderFields { lines: &lines, tag }, length);
    }
}
