//! Replies that come later, from any thread.
//!
//! A handler that gives a [`Later`] has done its part. Once the functions around it have seen that, what it carries is called with a
//! [`Responder`]: so work begins when everything that the reply's head needs is known, and no thread can answer too early.

use crate::build::Built;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::layer::Head;
use crate::respond::Respond;
use crate::response::{Content, Part, Response};
use crate::service::Local;
use http::{BodySink, LateReply, Piece, Status};
use std::borrow::Cow;
use std::sync::Arc;

/// What begins the work behind a late reply. On a loop it is given what that has; on other threads there is none.
pub(crate) type Start = Box<dyn FnOnce(Responder, Option<&Local>)>;

/// A reply that comes later.
pub struct Later {
    pub(crate) start: Start,
    /// Later requests of the connection that may change something may go on meanwhile: what was begun keeps its order by itself, and ends
    /// soon.
    pub(crate) keeps_order: bool,
    /// Takes the request's body in pieces.
    pub(crate) body: Option<Box<dyn BodySink>>,
}

/// A reply that comes later: `start` is called on the event loop, must not wait, and takes the responder elsewhere.
///
/// ```
/// # use sapsan::{Later, later};
/// fn slow() -> Later {
///     later(|responder| {
///         std::thread::spawn(move || responder.send("at last"));
///     })
/// }
/// ```
pub fn later(start: impl FnOnce(Responder) + 'static) -> Later {
    Later::on_loop(false, move |responder, _| start(responder))
}

impl Later {
    pub(crate) fn on_loop(keeps_order: bool, start: impl FnOnce(Responder, Option<&Local>) + 'static) -> Later {
        Later { start: Box::new(start), keeps_order, body: None }
    }

    /// A reply to a request whose body follows in pieces, which `body` takes.
    pub(crate) fn with_body(body: Box<dyn BodySink>, start: impl FnOnce(Responder) + 'static) -> Later {
        let start = Box::new(move |responder, _: Option<&Local>| start(responder));
        Later { start, keeps_order: false, body: Some(body) }
    }
}

impl Respond for Later {
    fn respond(self) -> Response {
        Response::of(Status(202), Cow::Borrowed(""), Content::Later(self))
    }
}

/// The duty to answer one request, from any thread. Dropped unanswered, it answers 500.
pub struct Responder {
    pub(crate) built: Arc<Built>,
    pub(crate) exchange: Exchange,
    pub(crate) late: LateReply,
    pub(crate) wants_html: bool,
}

impl Responder {
    /// What belongs to the request: for changes that its layers are to see, such as those of a session.
    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// Tells whether the client is still there; asked while long work goes on. Of a reply to a transaction it is not watched.
    pub fn presence(&self) -> http::Presence {
        self.late.presence()
    }

    /// Answers.
    pub fn send(self, reply: impl Respond) {
        let Responder { built, mut exchange, mut late, wants_html } = self;
        let mut response = reply.respond();
        if let Content::Later(later) = response.body {
            // A late reply of a late reply: its work begins here, where it may wait.
            for (name, value) in response.fields.iter() {
                late.header(name, value);
            }
            return (later.start)(Responder { built, exchange, late, wants_html }, None);
        }
        built.behind(&mut exchange, &mut response, &mut Head::new(&mut late), || wants_html);
        // Before the client is told: who is told may end the application, and open its database again.
        drop((built, exchange));
        send_late(late, response);
    }
}

/// Writes a response whose header fields are those of `late` and its own.
fn send_late(mut late: LateReply, response: Response) {
    for (name, value) in response.fields.iter() {
        late.header(name, value);
    }
    let (status, content_type) = (response.status, &*response.content_type);
    match response.body {
        Content::Static(bytes) => late.send(status, content_type, bytes.to_vec()),
        Content::Owned(bytes) => late.send(status, content_type, bytes),
        Content::Buffer(bytes) => late.send(status, content_type, bytes.into_bytes()),
        Content::Shared(bytes) => late.send_piece(status, content_type, Piece::Shared(bytes)),
        Content::Parts(parts) => late.send_parts(status, content_type, parts.list.iter().map(Part::as_sent)),
        Content::Stream(stream) => match stream.bytes {
            Some(bytes) => late.stream(status, content_type, bytes, stream.source),
            None => late.stream_open(status, content_type, stream.source),
        },
        // The first two are gone by now: see `Responder::send` and `Built::behind`. Files are answered at once.
        Content::Later(_) | Content::Error(_) | Content::File(_) => {
            let error = Error::internal("a late reply was not rendered");
            late.send(error.status(), "application/problem+json", error.problem());
        }
    }
}
