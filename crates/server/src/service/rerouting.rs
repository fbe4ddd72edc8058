//! A query that waited for a thread while another configuration took over: it is routed again by the newest configuration.
//!
//! Rooms below `routing` use these traits and do not import `routing`. Each reload makes few calls of them.

use super::kept_request::KeptRequest;
use http::LateReply;
use std::sync::Arc;
use std::time::Instant;

/// The newest configuration: implemented by the switch of `routing`.
pub(crate) trait Rerouting: Send + Sync {
    /// Routes a request whose time ends at `ends`. Returns the query that is to answer it; `None` if it has been answered.
    fn route_again(&self, request: &KeptRequest, ends: Instant, late: LateReply) -> Option<PoolStep>;
}

/// A query on a thread of the pool, with the reply that it owes.
pub(crate) type PoolStep = (Arc<dyn PoolQuery>, LateReply);

/// A query of a declared endpoint.
pub(crate) trait PoolQuery: Send + Sync {
    /// Answers. If another configuration has taken over, returns the query of that configuration.
    fn answer(&self, late: LateReply) -> Option<PoolStep>;
}
