//! What a reader of changes asks the engine.

use std::sync::atomic::Ordering;

use super::Engine;
use crate::error::Error;
use crate::key::Version;
use crate::log::{Follower, WrittenEnd};

impl Engine {
    /// The last version that readers of changes see: visible, and certain to survive a crash.
    #[inline]
    pub(crate) fn changes_shown(&self) -> u64 {
        let visible = self.visible();
        self.log.version_synced().map_or(visible, |synced| synced.min(visible))
    }

    /// A reader of the log from the last place not above this version.
    pub(crate) fn follow(&self, version: u64) -> Result<Follower, Error> {
        self.log.follow(version).map_err(|oldest| Error::Gone { oldest: Version(oldest) })
    }

    pub(crate) fn log_end(&self) -> WrittenEnd {
        self.log.end()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }
}
