//! The time of a thread for which others wait: the committing thread, for all commits, or an event loop, for its connections.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time that a transaction prepared again may take while all commits wait for it, independent of the cost of a row.
pub(crate) const AGAIN_TIME: Duration = Duration::from_millis(5);
/// Time that submitted steps may take on the event loop, while all of its connections wait.
const LOOP_TIME: Duration = Duration::from_millis(1);

thread_local! {
    /// Set while the time of this thread is shared with others that wait for it.
    static SHARE: Cell<Option<ShareOf>> = const { Cell::new(None) };
}

/// Whether others wait for this thread: the connections of an event loop, or all commits.
pub(crate) fn is_in_share() -> bool {
    SHARE.get().is_some()
}

/// Whether the connections of an event loop wait for this thread.
pub(crate) fn is_in_share_of_loop() -> bool {
    SHARE.get() == Some(ShareOf::Loop)
}

/// The thread whose time is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareOf {
    /// An event loop: all of its connections wait.
    Loop,
    /// The committing thread: all commits wait.
    Commits,
}

impl ShareOf {
    fn time_max(self) -> Duration {
        match self {
            ShareOf::Loop => LOOP_TIME,
            ShareOf::Commits => AGAIN_TIME,
        }
    }
}

/// The time that one transaction may take on the committing thread or on an event loop.
pub(crate) struct Share {
    begun: Instant,
    time_max: Duration,
}

impl Drop for Share {
    fn drop(&mut self) {
        SHARE.set(None);
    }
}

impl Share {
    pub(crate) fn begin(of: ShareOf) -> Share {
        SHARE.set(Some(of));
        Share { begun: Instant::now(), time_max: of.time_max() }
    }

    /// A share that is never over, for tests of what a transaction does in it.
    #[cfg(test)]
    pub(crate) fn unlimited(of: ShareOf) -> Share {
        Share { time_max: Duration::MAX, ..Share::begin(of) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.begun.elapsed() > self.time_max
    }
}
