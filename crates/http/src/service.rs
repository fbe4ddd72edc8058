//! The application behind the server.

use crate::method::{Method, Order};
use crate::reply::Reply;
use crate::request::Request;
use std::os::fd::RawFd;

/// The application. One value for all loops; what a loop needs for itself is in `Local`.
pub trait Service: Send + Sync + 'static {
    /// Per-loop state: readers, caches, scratch buffers. Never leaves its thread. A panic in [`Service::call`] leaves
    /// it as it was at that moment, so it must stay usable between any two of its own operations.
    type Local: 'static;
    /// Made once on each loop's thread.
    fn local(&self, lp: &reactor::Loop) -> Self::Local;
    /// Order against earlier unanswered requests of the connection; asked before each [`Service::call`], and again after a wait.
    /// Default: safe methods read, others write.
    fn order(&self, _local: &mut Self::Local, request: &Request<'_>) -> Order {
        if request.method().is_safe() { Order::Read } else { Order::Write }
    }
    /// Whether the service takes this request's body in pieces, of whatever length it is. Asked by the head, where the body has not
    /// come whole with it or is larger than a body may be; [`Service::call`] is called at once then, [`Request::is_in_pieces`], and either takes
    /// [`Reply::later_in_pieces`] or answers without the body. A small body may come whole all the same.
    fn takes_pieces(&self, _local: &mut Self::Local, _request: &Request<'_>) -> bool {
        false
    }
    /// A request without a body has arrived, and will be called soon after others: the time to note what it will touch.
    /// A hint that comes for part of the requests; path and query are as [`Request::path`] and
    /// [`Request::query`] give them.
    fn foresee(&self, _local: &mut Self::Local, _method: Method, _path: &str, _query: &str) {}
    /// Some requests were foreseen and are called next: the time to fetch what was noted.
    fn prepare(&self, _local: &mut Self::Local) {}
    /// Answers now through `reply`, or takes `reply.later()` and answers from any thread, or `reply.stream(...)`.
    /// A panic here answers 500 and takes nothing else down.
    fn call(&self, local: &mut Self::Local, request: &Request<'_>, reply: Reply<'_>);
    /// Asked after a call whose order was [`Order::Write`]: whether the request is [`Order::Alone`] after all, for the service has handed
    /// it on out of its turn.
    fn became_alone(&self, _local: &mut Self::Local) -> bool {
        false
    }
    /// A descriptor that becomes readable when something has ended that calls on this loop began, and whose late replies
    /// wait for it; see [`reactor::LoopState::completions`].
    fn completions(&self, _local: &Self::Local) -> Option<RawFd> {
        None
    }
    /// That descriptor became readable. Late replies that are answered here leave in the same turn of the loop.
    fn completed(&self, _local: &mut Self::Local) {}
    /// All calls of a turn of the loop have been made: the time to begin what they asked for, at once.
    fn tick_ended(&self, _local: &mut Self::Local) {}
}
