//! Sources of the metrics besides the service.

use crate::config::memory::Division;
use http::{MetricsTotal, SeriesTotal};
use reactor::Loop;
use std::time::Instant;

/// Set once everything runs.
pub(crate) struct Sources {
    /// Reads the server's counters. The server is held weakly, because it holds the service, which holds this; `None` when it is
    /// gone.
    pub(crate) http: Box<dyn Fn() -> Option<(MetricsTotal, Vec<SeriesTotal>)> + Send + Sync>,
    pub(crate) loops: Vec<Loop>,
    pub(crate) division: Division,
    pub(crate) started: Instant,
}
