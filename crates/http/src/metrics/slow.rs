//! Reports of slow requests.

use crate::method::Method;
use crate::metrics::latency::Series;
use crate::status::Status;
use std::sync::Arc;
use std::time::Duration;

/// Called on the loop, after the reply: it must not block.
type Report = dyn Fn(&SlowRequest<'_>) + Send + Sync;

/// A function that is called for slow requests, and the time from which on a request is slow.
#[derive(Clone)]
pub struct SlowLog {
    after: Duration,
    report: Arc<Report>,
}

/// A slow request.
#[derive(Clone, Copy, Debug)]
pub struct SlowRequest<'r> {
    /// Its method; `None` for a request that was refused before it was read.
    pub method: Option<Method>,
    /// The series under which it counts.
    pub series: Series,
    /// The status of its reply.
    pub status: Status,
    /// Its latency.
    pub took: Duration,
    /// The work recorded by [`crate::Presence::note_work`].
    pub work: Option<&'r str>,
}

impl SlowLog {
    /// Calls `report` for requests that take at least this time.
    pub fn new(after: Duration, report: impl Fn(&SlowRequest<'_>) + Send + Sync + 'static) -> SlowLog {
        SlowLog { after, report: Arc::new(report) }
    }

    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    pub(crate) fn report(&self, request: &SlowRequest<'_>) {
        (self.report)(request);
    }
}

impl std::fmt::Debug for SlowLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowLog").field("after", &self.after).finish_non_exhaustive()
    }
}
