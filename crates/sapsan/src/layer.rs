//! Layers: what looks at every request before its handler, and adds header fields to every reply, late ones included.
//!
//! Sessions, CSRF checks and security headers are layers. A layer differs from a function around a handler ([`crate::Around`]) in
//! that it sees the reply when its head is written, on whatever thread that is: so it sees late replies too.

use http::FieldBlock;

use crate::exchange::Exchange;
use crate::request::Request;
use crate::response::Response;

/// See the module's text. Layers see requests in the order in which they were added, and replies in the opposite one; all of them stand
/// around the functions that [`crate::App::around`] adds.
pub trait Layer: Send + Sync + 'static {
    /// Looks at a request before its handler is called; a reply ends it there, without the layers behind this one and the handler.
    fn before(&self, _request: &Request<'_>) -> Option<Response> {
        None
    }

    /// Sees a reply when its head is written. May change it; what it adds through `head` is copied nowhere else. Called once for each request,
    /// whether its handler replied, failed, panicked or answered late; not where [`crate::Responder`] was dropped unanswered.
    fn behind(&self, _exchange: &mut Exchange, _response: &mut Response, _head: &mut Head<'_>) {}
}

/// The head of a reply that is being written.
pub struct Head<'h> {
    to: &'h mut dyn Fields,
}

impl<'h> Head<'h> {
    pub(crate) fn new(to: &'h mut dyn Fields) -> Head<'h> {
        Head { to }
    }

    /// Adds a header field. One that would break the head is left out.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        self.to.header(name, value);
        self
    }

    /// Adds header fields that were checked before, by one copy.
    pub fn fields(&mut self, block: &FieldBlock) -> &mut Self {
        self.to.fields(block);
        self
    }
}

/// Where header fields go: a reply now, or a late one.
pub(crate) trait Fields {
    fn header(&mut self, name: &str, value: &str);
    fn fields(&mut self, block: &FieldBlock);
}

impl Fields for http::Reply<'_> {
    fn header(&mut self, name: &str, value: &str) {
        http::Reply::header(self, name, value);
    }

    fn fields(&mut self, block: &FieldBlock) {
        http::Reply::fields(self, block);
    }
}

impl Fields for http::LateReply {
    fn header(&mut self, name: &str, value: &str) {
        http::LateReply::header(self, name, value);
    }

    fn fields(&mut self, block: &FieldBlock) {
        http::LateReply::fields(self, block);
    }
}
