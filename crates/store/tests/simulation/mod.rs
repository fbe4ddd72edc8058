//! A simulated disk under the real engine, and what is done with it: crashes, faults, damage.
//!
//! Driven for some seconds by the tests beside this folder, and for as long as one likes by `examples/campaign.rs`
//! (`cargo xtask campaign`).

#![allow(dead_code, clippy::unwrap_used)] // Each driver takes its part; a failed step is a failed test.

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
