//! A read that waits for a thread, as requested: if another configuration takes over before its query begins, it is routed again
//! ([`super::rerouting`]).

use crate::access::token::Sent;
use crate::replies::media::RowFormat;
use http::{HttpRequest, Method};

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct KeptRequest {
    pub(crate) method: Method,
    pub(crate) path: Box<str>,
    pub(crate) query: Box<str>,
    /// The row format that its client accepts.
    pub(crate) shape: RowFormat,
    /// Whether the reply includes the plan.
    pub(crate) wants_plan: bool,
    /// Its token.
    pub(crate) token: Option<Sent>,
}

impl KeptRequest {
    pub(crate) fn of(request: &HttpRequest<'_>, wants_plan: bool) -> KeptRequest {
        let shape = if request.names_media() { RowFormat::of_accept(request) } else { RowFormat::Json };
        KeptRequest {
            method: request.method(),
            path: request.path().into(),
            query: request.query().into(),
            shape,
            wants_plan,
            token: Sent::of(request),
        }
    }
}
