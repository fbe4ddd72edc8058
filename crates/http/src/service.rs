//! The interface of an application to the server.

use crate::method::{Method, RequestOrder};
use crate::reply::Reply;
use crate::request::HttpRequest;
use std::os::fd::RawFd;

/// An application. One value for all loops; state of a loop is in `Local`.
pub trait Service: Send + Sync + 'static {
    /// State of one loop: readers, caches, scratch buffers. Never leaves its thread. After a panic in [`Service::call`] it stays
    /// as it was at that moment, so it must be usable between any two of its own operations.
    type Local: 'static;
    /// Called once on each loop's thread.
    fn local(&self, lp: &reactor::Loop) -> Self::Local;
    /// Order relative to earlier unanswered requests of the connection; called before each [`Service::call`], and again after a
    /// wait. Default: safe methods read, others write.
    fn order(&self, _local: &mut Self::Local, request: &HttpRequest<'_>) -> RequestOrder {
        if request.method().is_safe() { RequestOrder::Read } else { RequestOrder::Write }
    }
    /// Whether the service takes this request's body in pieces, whatever its length. Called with the head if the body has not
    /// arrived whole, or is larger than the limit of a body. If it returns `true`, [`Service::call`] is called at once, with
    /// [`HttpRequest::is_in_pieces`], and either calls [`Reply::later_in_pieces`] or answers without the body. A small body may
    /// still arrive whole.
    fn takes_pieces(&self, _local: &mut Self::Local, _request: &HttpRequest<'_>) -> bool {
        false
    }
    /// Whether a request is answered even if there are too many connections: health, for example. It must be cheap to answer.
    fn is_vital(&self, _request: &HttpRequest<'_>) -> bool {
        false
    }
    /// A request without a body has arrived, and will be served soon, after others: record the data that it will need. A hint,
    /// given for a part of the requests; path and query are as in [`HttpRequest::path`] and [`HttpRequest::query`].
    fn foresee(&self, _local: &mut Self::Local, _method: Method, _path: &str, _query: &str) {}
    /// The requests passed to `foresee` are served next: prefetch the recorded data.
    fn prepare(&self, _local: &mut Self::Local) {}
    /// Answers now through `reply`, or keeps `reply.later()` and answers from any thread, or calls `reply.stream(...)`. A panic
    /// is answered with 500 and affects no other request.
    fn call(&self, local: &mut Self::Local, request: &HttpRequest<'_>, reply: Reply<'_>);
    /// Called after a call whose order was [`RequestOrder::Write`]: whether the request became [`RequestOrder::Alone`], because the service has
    /// passed it on out of sequence.
    fn became_alone(&self, _local: &mut Self::Local) -> bool {
        false
    }
    /// A descriptor that becomes readable when work started by calls on this loop has ended, for which their late replies wait;
    /// see [`reactor::LoopState::completions`].
    fn completions(&self, _local: &Self::Local) -> Option<RawFd> {
        None
    }
    /// The descriptor became readable. Late replies sent here leave in the same tick of the loop.
    fn completed(&self, _local: &mut Self::Local) {}
    /// All calls of a tick of the loop were made: start the work that they requested.
    fn tick_ended(&self, _local: &mut Self::Local) {}
}
