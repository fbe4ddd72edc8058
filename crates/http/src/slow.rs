//! Requests that took long, told to whoever asks for them.

use crate::latency::Series;
use crate::method::Method;
use crate::status::Status;
use std::sync::Arc;
use std::time::Duration;

/// Called on the loop, behind the reply: it must not wait.
type Tell = dyn Fn(&SlowRequest<'_>) + Send + Sync;

/// What is told of requests that took long, and from when on they did.
#[derive(Clone)]
pub struct SlowLog {
    after: Duration,
    tell: Arc<Tell>,
}

/// A request that took long.
#[derive(Clone, Copy, Debug)]
pub struct SlowRequest<'r> {
    /// Its method; none of one that was refused before it was read.
    pub method: Option<Method>,
    /// What it counts under.
    pub series: Series,
    /// The status of its reply.
    pub status: Status,
    /// How long it took.
    pub took: Duration,
    /// What [`crate::Presence::note_work`] has noted.
    pub work: Option<&'r str>,
}

impl SlowLog {
    /// Has requests told that take so long or longer.
    pub fn new(after: Duration, tell: impl Fn(&SlowRequest<'_>) + Send + Sync + 'static) -> SlowLog {
        SlowLog { after, tell: Arc::new(tell) }
    }

    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    pub(crate) fn tell(&self, request: &SlowRequest<'_>) {
        (self.tell)(request);
    }
}

impl std::fmt::Debug for SlowLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowLog").field("after", &self.after).finish_non_exhaustive()
    }
}
