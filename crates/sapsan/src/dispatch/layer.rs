//! Layers: they see every request before its handler, and add header fields to every reply, late ones included.
//!
//! A layer differs from a function around a handler ([`crate::Around`]): it sees the reply when its head is written, on whichever thread
//! that happens, so it sees late replies too.

use super::exchange::Exchange;
use super::request::Request;
use super::response::Response;
use crate::reply::Head;

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
