//! The path of a request through an application: from the router through protection, layers and functions around handlers to an
//! endpoint, and back with its response.
//!
//! | subject | file |
//! |---|---|
//! | the request, and the values that travel with it | `request`, `exchange` |
//! | the response, and what can become one | `response`, `respond` |
//! | replies from other threads | `late` |
//! | what a route calls; what runs around it | `endpoint`, `middleware`, `layer` |
//! | the checked application, shared by all loops; its executors | `build`, `pools` |
//! | what each event loop has | `local` |
//! | the service that the HTTP server calls | `service` |
//!
//! Some of these types refer to one another in a circle: a request knows its application, an application has endpoints, and an
//! endpoint takes a request. So they share this room. It imports `reply`, `session`, `protection` and `database`; it does not know
//! what kinds of endpoints and arguments there are.

mod build;
mod endpoint;
mod exchange;
mod late;
mod layer;
mod local;
mod middleware;
mod pools;
mod request;
mod respond;
mod response;
mod service;

pub use build::Needs;
pub(crate) use build::{Built, Route, States};
pub(crate) use endpoint::Endpoint;
pub use exchange::Exchange;
pub use late::{Later, Responder, later};
pub use layer::Layer;
pub(crate) use middleware::Surrounded;
pub use middleware::{Around, Next};
pub use pools::Threads;
pub(crate) use pools::{Pools, refusal_reason};
pub use request::Request;
pub use respond::{Html, Redirect, Respond};
pub(crate) use response::Content;
pub use response::{Part, Parts, Response};
pub(crate) use service::Service;
