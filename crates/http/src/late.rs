//! Replies that come later, from any thread.

use reactor::{ConnectionId, Loop, Message, Piece};
use std::net::IpAddr;

use crate::body::BodySource;
use crate::composer::{JSON, append_content_type, append_field, append_lines, append_numbered_tag};
use crate::field_block::FieldBlock;
use crate::part::{self, Part, Splices};
use crate::presence::Presence;
use crate::status::Status;

/// Which reply of which connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) connection: ConnectionId,
    pub(crate) sequence: u64,
    /// The client's address.
    pub(crate) client: IpAddr,
}

/// What a late reply says: the payload of its message.
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// The content type is JSON; else it stands in `fields`.
    pub(crate) json: bool,
    pub(crate) fields: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Pieces that go between the body's bytes.
    pub(crate) pieces: Option<Box<Splices>>,
    /// A body that is pulled instead, and its length where it is known.
    pub(crate) source: Option<(Option<u64>, Box<dyn BodySource + Send>)>,
    /// Dropped when the body has been copied into the write queue, or the connection is gone.
    pub(crate) _charge: Option<Box<dyn Send>>,
}

/// The payload of a message that has a stream pulled again, or a body offered again.
pub(crate) struct Nudged;

/// The payload of a message that ends a connection.
pub(crate) struct CutOff;

/// Ends the connection of a reply whose client holds memory for nothing, from any thread. Once the reply has left, it does nothing.
#[derive(Clone)]
pub struct Cutter {
    lp: Loop,
    ticket: Ticket,
}

impl Cutter {
    pub(crate) fn new(lp: Loop, ticket: Ticket) -> Self {
        Cutter { lp, ticket }
    }

    /// Travels through the loop's mailbox.
    pub fn send(&self) {
        let message = Message { tag: self.ticket.sequence, payload: Box::new(CutOff) };
        self.lp.send(self.ticket.connection, message);
    }

    /// What counts as the client's address where shares are counted: of an IPv6 address its /64.
    pub fn host(&self) -> IpAddr {
        reactor::host(self.ticket.client)
    }
}

impl std::fmt::Debug for Cutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cutter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Has a stream that waits pulled again, or a body that was not taken offered again. To send it once more than needed, or to a connection that is gone, does nothing.
#[derive(Clone)]
pub struct Nudge {
    lp: Loop,
    ticket: Ticket,
}

impl Nudge {
    /// Travels through the loop's mailbox. Its sender is bounded: one for each time that the stream said it waits.
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

/// A reply that is answered later, from any thread; owns all it needs. Dropped unanswered, it answers 500.
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

    /// Whether its client is still there, if it was asked for as one that is watched.
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

    /// Adds an `ETag` field whose tag is a number in quotes, as [`crate::Reply::numbered_tag`].
    pub fn numbered_tag(&mut self, number: u64) -> &mut Self {
        append_numbered_tag(&mut self.fields, number);
        self
    }

    /// Answers. The bytes travel through the loop's mailbox.
    pub fn send(self, status: Status, content_type: &str, body: Vec<u8>) {
        self.say(status, content_type, body, None, None);
    }

    /// Answers with a body given in parts, as [`crate::Reply::send_parts`]: small and borrowed ones are copied now.
    pub fn send_parts<'p, I>(mut self, status: Status, content_type: &str, parts: I)
    where
        I: IntoIterator<Item = Part<'p>, IntoIter: Clone>,
    {
        let parts = parts.into_iter();
        let (mut body, mut pieces) = (Vec::with_capacity(part::measure(parts.clone()).1), Splices::new());
        part::append(parts, &mut body, &mut pieces);
        let answer = self.answer(status, content_type, body);
        let pieces = Some(pieces).filter(|pieces| !pieces.is_empty()).map(Box::new);
        self.post(Answer { pieces, ..answer });
    }

    /// Answers with a body that is not copied, as [`crate::Reply::send_piece`].
    pub fn send_piece(mut self, status: Status, content_type: &str, body: Piece) {
        let answer = self.answer(status, content_type, Vec::new());
        self.post(Answer { pieces: Some(Box::new(vec![(0, body)])), ..answer });
    }

    /// The same as [`LateReply::send`], with something that lives as long as the body waits: what counts its bytes, say.
    pub fn send_charged(self, status: Status, content_type: &str, body: Vec<u8>, charge: Box<dyn Send>) {
        self.say(status, content_type, body, None, Some(charge));
    }

    /// Answers with a stream of known length: `source` travels to the loop and is pulled there, as by `Reply::stream`.
    pub fn stream(self, status: Status, content_type: &str, length: u64, source: Box<dyn BodySource + Send>) {
        self.say(status, content_type, Vec::new(), Some((Some(length), source)), None);
    }

    /// The same where nobody knows how long it gets: chunked, or to HTTP/1.0 until the connection is closed.
    pub fn stream_open(self, status: Status, content_type: &str, source: Box<dyn BodySource + Send>) {
        self.say(status, content_type, Vec::new(), Some((None, source)), None);
    }

    /// What ends this reply's connection.
    pub fn cutter(&self) -> Cutter {
        Cutter::new(self.lp.clone(), self.ticket)
    }

    /// What has this reply's stream pulled again after [`crate::More::Wait`], or its request's body offered again that a
    /// [`crate::BodySink`] had no room for, from any thread.
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
