//! The engine's interface for readers of changes.

use crate::base::error::StoreError;
use crate::base::key::Version;
use crate::base::sync::atomic::Ordering;
use crate::engine::Engine;
use crate::log::{Follower, LogPosition, WrittenEnd};

impl Engine {
    /// The last version shown to readers of changes: visible, and certain to survive a crash.
    #[inline]
    pub(crate) fn changes_shown(&self) -> u64 {
        let visible = self.visible();
        self.log.version_synced().map_or(visible, |synced| synced.min(visible))
    }

    /// A reader of the log, starting at the last recorded position not above this version.
    pub(crate) fn follow(&self, version: u64) -> Result<Follower, StoreError> {
        self.log.follow(version).map_err(|oldest| StoreError::Gone { oldest: Version(oldest) })
    }

    /// A reader of the log that starts at this position, which is before the version.
    pub(super) fn follow_from(&self, at: LogPosition, version: u64) -> Follower {
        self.log.follow_from(at, version)
    }

    pub(crate) fn log_end(&self) -> WrittenEnd {
        self.log.end()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }
}
