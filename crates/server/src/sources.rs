//! What the metrics are read from besides the service.

use crate::memory::Division;
use http::{MetricsTotal, SeriesTotal};
use reactor::Loop;
use std::time::Instant;

/// Known once everything runs.
pub(crate) struct Sources {
    /// Asks the server, which is held weakly, for it holds the service and that holds this; nothing when it is gone.
    pub(crate) http: Box<dyn Fn() -> Option<(MetricsTotal, Vec<SeriesTotal>)> + Send + Sync>,
    pub(crate) loops: Vec<Loop>,
    pub(crate) division: Division,
    pub(crate) started: Instant,
}
