//! Layers: they see every request before its handler, and add header fields to every reply, late ones included.
//!
//! A layer differs from a function around a handler ([`crate::Around`]): it sees the reply when its head is written, on whichever thread
//! that happens, so it sees late replies too.

use http::FieldBlock;

use crate::exchange::Exchange;
use crate::request::Request;
use crate::response::Response;

/// See the module's documentation. Layers see requests in the order in which they were added, and replies in the opposite order. All layers
/// run outside the functions that [`crate::App::around`] adds.
pub trait Layer: Send + Sync + 'static {
    /// Called before the handler. If it returns a reply, the layers after this one and the handler are not called.
    fn before(&self, _request: &Request<'_>) -> Option<Response> {
        None
    }

    /// Called when the head of a reply is written, and may change the reply. Fields added through `head` are written without a further
    /// copy. Called once for each request, whether its handler replied, failed, panicked or answered late, but not if its
    /// [`crate::Responder`] was dropped unanswered.
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

    /// Adds a header field. A field that would break the head is left out.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        self.to.header(name, value);
        self
    }

    /// Adds header fields that were checked before, in one copy.
    pub fn fields(&mut self, block: &FieldBlock) -> &mut Self {
        self.to.fields(block);
        self
    }
}

/// Destination of header fields: an immediate reply or a late one.
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
