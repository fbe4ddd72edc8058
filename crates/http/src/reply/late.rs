//! Late replies: sent after the call, from any thread.

use reactor::{ConnectionId, Loop, Message, Piece};
use std::net::IpAddr;

use crate::body::BodySource;
use crate::presence::Presence;
use crate::reply::composer::{JSON, append_content_type, append_field, append_lines, append_numbered_tag};
use crate::reply::field_block::FieldBlock;
use crate::reply::part::{self, BodyPart, Splices};
use crate::status::Status;

/// Names one reply of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) connection: ConnectionId,
    pub(crate) sequence: u64,
    /// The client's address.
    pub(crate) client: IpAddr,
}

/// A late reply: the payload of its message.
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// The content type is JSON; another one is in `fields`.
    pub(crate) json: bool,
    pub(crate) fields: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Pieces that go between the body's bytes.
    pub(crate) pieces: Option<Box<Splices>>,
    /// A pulled body instead, with its length if that is known.
    pub(crate) source: Option<(Option<u64>, Box<dyn BodySource + Send>)>,
    /// Dropped when the body has been copied into the write queue, or the connection is gone.
    pub(crate) _charge: Option<Box<dyn Send>>,
}

/// Payload of a message after which a stream is pulled again, or a body is offered again.
pub(crate) struct Nudged;

/// Payload of a message that ends a connection.
pub(crate) struct CutOff;

/// Ends the connection of a reply whose client holds memory without progress, from any thread. No effect once the reply has left.
#[derive(Clone)]
pub struct Cutter {
    lp: Loop,
    ticket: Ticket,
}

impl Cutter {
    pub(crate) fn new(lp: Loop, ticket: Ticket) -> Self {
        Cutter { lp, ticket }
    }

    /// Sends the request through the loop's mailbox.
    pub fn send(&self) {
        let message = Message { tag: self.ticket.sequence, payload: Box::new(CutOff) };
        self.lp.send(self.ticket.connection, message);
    }

    /// The client's address for counting shares: of an IPv6 address its /64.
    pub fn host(&self) -> IpAddr {
        reactor::host(self.ticket.client)
    }
}

impl std::fmt::Debug for Cutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cutter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Makes a waiting stream be pulled again, or a refused part of a body be offered again. A superfluous one, or
/// one for a closed connection, has no effect.
#[derive(Clone)]
pub struct Nudge {
    lp: Loop,
    ticket: Ticket,
}

impl Nudge {
    /// Sends the request through the loop's mailbox. The number of calls is bounded: one for each time that the stream returned
    /// [`crate::More::Wait`].
    pub fn send(&self) {
        let message = Message { tag: self.ticket.sequence, payload: Box::new(Nudged) };
        self.lp.send(self.ticket.connection, message);
    }
}

impl std::fmt::Debug for Nudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nudge").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// A reply that is sent later, from any thread; it owns its data. If it is dropped without an answer, the answer is 500.
pub struct LateReply {
    lp: Loop,
    ticket: Ticket,
    fields: Vec<u8>,
    answered: bool,
    presence: Presence,
}

impl LateReply {
    pub(crate) fn new(lp: Loop, ticket: Ticket, fields: Vec<u8>, presence: Presence) -> Self {
        LateReply { lp, ticket, fields, answered: false, presence }
    }

    /// Whether its client is still there, if the reply was taken as a watched one.
    pub fn presence(&self) -> Presence {
        self.presence.clone()
    }

    /// Adds a header field; one that would break the head is left out.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        if !append_field(&mut self.fields, name, value) {
            tracing::debug!(name, "a malformed header field of a late reply is left out");
        }
        self
    }

    /// Adds header fields that were checked before, as [`crate::Reply::fields`].
    pub fn fields(&mut self, block: &FieldBlock) -> &mut Self {
        if !append_lines(&mut self.fields, block.lines()) {
            tracing::debug!("header fields of a late reply do not fit and are left out");
        }
        self
    }

    /// Adds an `ETag` field with a number in quotes, as [`crate::Reply::numbered_tag`].
    pub fn numbered_tag(&mut self, number: u64) -> &mut Self {
        append_numbered_tag(&mut self.fields, number);
        self
    }

    /// Sends the reply. The bytes pass through the loop's mailbox.
    pub fn send(self, status: Status, content_type: &str, body: Vec<u8>) {
        self.say(status, content_type, body, None, None);
    }

    /// Sends a body given in parts, as [`crate::Reply::send_parts`]: small and borrowed ones are copied now.
    pub fn send_parts<'p, I>(mut self, status: Status, content_type: &str, parts: I)
    where
        I: IntoIterator<Item = BodyPart<'p>, IntoIter: Clone>,
    {
        let parts = parts.into_iter();
        let (mut body, mut pieces) = (Vec::with_capacity(part::measure(parts.clone()).1), Splices::new());
        part::append(parts, &mut body, &mut pieces);
        let answer = self.answer(status, content_type, body);
        let pieces = Some(pieces).filter(|pieces| !pieces.is_empty()).map(Box::new);
        self.post(Answer { pieces, ..answer });
    }

    /// Sends a body without a copy, as [`crate::Reply::send_piece`].
    pub fn send_piece(mut self, status: Status, content_type: &str, body: Piece) {
        let answer = self.answer(status, content_type, Vec::new());
        self.post(Answer { pieces: Some(Box::new(vec![(0, body)])), ..answer });
    }

    /// The same as [`LateReply::send`], with a value that is dropped when the body no longer waits: one that counts its bytes,
    /// say.
    pub fn send_charged(self, status: Status, content_type: &str, body: Vec<u8>, charge: Box<dyn Send>) {
        self.say(status, content_type, body, None, Some(charge));
    }

    /// Sends a stream of known length: `source` moves to the loop and is pulled there, as by `Reply::stream`.
    pub fn stream(self, status: Status, content_type: &str, length: u64, source: Box<dyn BodySource + Send>) {
        self.say(status, content_type, Vec::new(), Some((Some(length), source)), None);
    }

    /// The same with unknown length: chunked, or for HTTP/1.0 until the connection is closed.
    pub fn stream_open(self, status: Status, content_type: &str, source: Box<dyn BodySource + Send>) {
        self.say(status, content_type, Vec::new(), Some((None, source)), None);
    }

    /// The client's address for counting shares: of an IPv6 address its /64.
    pub fn host(&self) -> IpAddr {
        reactor::host(self.ticket.client)
    }

    /// A handle that ends this reply's connection.
    pub fn cutter(&self) -> Cutter {
        Cutter::new(self.lp.clone(), self.ticket)
    }

    /// A handle for any thread that makes this reply's stream be pulled again after [`crate::More::Wait`], or the part of its
    /// request's body be offered again for which a [`crate::BodySink`] had no room.
    pub fn nudge(&self) -> Nudge {
        Nudge { lp: self.lp.clone(), ticket: self.ticket }
    }

    fn say(
        mut self,
        status: Status,
        content_type: &str,
        body: Vec<u8>,
        source: Option<(Option<u64>, Box<dyn BodySource + Send>)>,
        charge: Option<Box<dyn Send>>,
    ) {
        let answer = self.answer(status, content_type, body);
        self.post(Answer { source, _charge: charge, ..answer });
    }

    fn answer(&mut self, status: Status, content_type: &str, body: Vec<u8>) -> Answer {
        let json = content_type == JSON;
        let mut fields = std::mem::take(&mut self.fields);
        if !json {
            append_content_type(&mut fields, content_type);
        }
        Answer { status, json, fields, body, pieces: None, source: None, _charge: None }
    }

    fn say_nothing(&mut self) {
        let answer = Answer {
            status: Status(500),
            json: false,
            fields: Vec::new(),
            body: Vec::new(),
            pieces: None,
            source: None,
            _charge: None,
        };
        self.post(answer);
    }

    fn post(&mut self, answer: Answer) {
        self.answered = true;
        let message = Message { tag: self.ticket.sequence, payload: Box::new(answer) };
        self.lp.send(self.ticket.connection, message);
    }
}

impl Drop for LateReply {
    fn drop(&mut self) {
        if !self.answered {
            self.say_nothing();
        }
    }
}

impl std::fmt::Debug for LateReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LateReply").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
