//! Late replies, sent from any thread.
//!
//! A handler that returns a [`Later`] is finished. When the functions around it have returned too, the closure in the `Later` is called
//! with a [`Responder`]. So work begins only when the header fields of the reply are known, and no thread can answer too early.

use super::exchange::Exchange;
use super::local::Local;
use super::parts::Part;
use super::respond::Respond;
use super::response::{Content, Later, Responder, Response};
use crate::reply::{Error, Head};
use crate::session::SessionData;
use http::{BodySink, LateReply, Piece, Status};
use std::borrow::Cow;

/// A reply that is sent later. `start` is called on the event loop, must not wait, and moves the responder elsewhere.
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

    /// A reply to a request whose body arrives in pieces; `body` receives them.
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

impl Responder {
    /// The request's values, for changes that its layers should see, such as those of its session.
    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// The session, if the handler took it as an argument. Changes are sent with the late reply.
    ///
    /// ```
    /// # use sapsan::{Later, Redirect, Session, later};
    /// fn login(_session: Session<'_>) -> Later {
    ///     later(|mut responder| {
    ///         if let Some(session) = responder.session() {
    ///             session.flash("notice", "Welcome").ok();
    ///         }
    ///         responder.send(Redirect::to("/"));
    ///     })
    /// }
    /// ```
    pub fn session(&mut self) -> Option<&mut SessionData> {
        self.exchange.session()
    }

    /// Reports whether the client is still connected; long work may check it. For the reply to a transaction the connection is not
    /// watched.
    pub fn presence(&self) -> http::Presence {
        self.late.presence()
    }

    /// Sends the reply.
    pub fn send(self, reply: impl Respond) {
        let Responder { environment, mut exchange, mut late, wants_html } = self;
        let mut response = reply.respond();
        if let Content::Later(later) = response.body {
            // The reply is itself late: its work begins on this thread, which may wait.
            for (name, value) in response.fields.iter() {
                late.header(name, value);
            }
            return (later.start)(Responder { environment, exchange, late, wants_html }, None);
        }
        environment.behind(&mut exchange, &mut response, &mut Head::new(&mut late), || wants_html);
        // Dropped before the reply is sent: a client that has the reply may end the application and open its database again.
        drop((environment, exchange));
        send_late(late, response);
    }
}

/// Writes a response with the header fields of `late` and its own.
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
        // The first two are not left here: see `Responder::send` and `Environment::behind`. Files are answered at once.
        Content::Later(_) | Content::Error(_) | Content::File(_) => {
            let error = Error::internal("a late reply was not rendered");
            late.send(error.status(), "application/problem+json", error.problem());
        }
    }
}
