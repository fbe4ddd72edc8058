//! The service: the state that all handlers use (`shared`), the state of each loop (`local`), and what handlers do with both:
//! checks of permissions, writes, reads that wait for the disk, limits of long queries.
//!
//! It may import every room that stands before it in `lib.rs`. It knows no routes: `rerouting` has the trait by which a query that
//! waited for a thread is routed again.

pub(crate) mod cold_read;
pub(crate) mod held_write;
pub(crate) mod kept_request;
mod large_write;
mod local;
pub(crate) mod long_write;
pub(crate) mod permission;
pub(crate) mod query_limits;
pub(crate) mod rerouting;
mod shared;
pub(crate) mod write;

pub(crate) use local::{Local, PathTexts, session};
pub(crate) use shared::{Pools, Service, Shared};
