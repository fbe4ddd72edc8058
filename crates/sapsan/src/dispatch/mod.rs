//! The path of a request through an application: from the router through protection, layers and functions around handlers to an
//! endpoint, and back with its response.
//!
//! | subject | file |
//! |---|---|
//! | the request, and the values that travel with it | `request`, `exchange` |
//! | what handlers use of their application, and the check that it is there | `resources`, `pools`, `needs` |
//! | the response, and what can become one | `response`, `parts`, `respond` |
//! | replies from other threads | `late` |
//! | what a route calls; what runs around it | `endpoint`, `middleware`, `layer` |
//! | the checked application, shared by all loops | `build` |
//! | what each event loop has | `local` |
//! | the service that the HTTP server calls | `service` |
//!
//! This room imports `reply`, `session`, `protection` and `database`; it does not know what kinds of endpoints and arguments there are.

mod build;
mod endpoint;
mod exchange;
mod late;
mod layer;
mod local;
mod middleware;
mod needs;
mod parts;
mod pools;
mod request;
mod resources;
mod respond;
mod response;
mod service;

pub(crate) use build::{Built, Route};
pub(crate) use endpoint::Endpoint;
pub use exchange::Exchange;
pub use late::later;
pub(crate) use middleware::Surrounded;
pub use middleware::{Around, Next};
pub use needs::Needs;
pub use parts::{Part, Parts};
pub use pools::Threads;
pub(crate) use pools::{Pools, refusal_reason};
pub use request::Request;
pub(crate) use resources::{Resources, States};
pub use respond::{Html, Redirect, Respond};
pub(crate) use response::{Content, Environment};
pub use response::{Later, Layer, Responder, Response};
pub(crate) use service::Service;
