//! Endpoints that the configuration declares: documents, queries, steps of one transaction, files.
//!
//! It may import every room that stands before it in `lib.rs`. It knows neither the general API nor the router.

pub(crate) mod endpoint;
mod files;
pub(crate) mod late_query;
pub(crate) mod path_parameter;
pub(crate) mod query;
mod query_answer;
pub(crate) mod steps;
