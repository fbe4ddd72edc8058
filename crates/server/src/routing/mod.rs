//! From a request to its handler: the routes of declared endpoints and of the general API, and the switch of every loop to the
//! routes of a newer configuration.
//!
//! It may import all rooms but `openapi` and `lifecycle`.

pub(crate) mod routes;
pub(crate) mod switch;
