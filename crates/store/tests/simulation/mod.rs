//! A simulated disk under the real engine, for tests of crashes, faults and damage.
//!
//! The tests beside this folder run it for some seconds; `examples/campaign.rs` (`cargo xtask campaign`) runs it for as
//! long as requested.

#![allow(dead_code, clippy::unwrap_used)] // Each driver uses a part of it; a failed step is a failed test.

pub(crate) mod content;
pub(crate) mod crash;
pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod faults;
pub(crate) mod follow;
pub(crate) mod history;
pub(crate) mod kept;
pub(crate) mod life;
pub(crate) mod platter;
pub(crate) mod specimen;
pub(crate) mod sweep;

/// The threads and the clock of the engine: with the feature `schedules` those of the scheduler under test.
pub(crate) mod beside_engine {
    #[cfg(feature = "schedules")]
    pub(crate) use schedules::{Instant, point, thread};
    #[cfg(not(feature = "schedules"))]
    pub(crate) use {std::thread, std::time::Instant};

    /// Comes before each operation of the disk.
    #[cfg(not(feature = "schedules"))]
    pub(crate) fn point() {}
}
