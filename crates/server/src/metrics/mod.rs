//! Metrics of requests by route, of views and of the process, and the log of slow requests.
//!
//! It may import `config`. The page `/_/metrics`, which reads the counters of all parts, is `general/metrics.rs`: it knows the
//! service.

pub(crate) mod process;
pub(crate) mod route_series;
pub(crate) mod routes;
pub(crate) mod slow_log;
pub(crate) mod sources;
pub(crate) mod views;
