//! A Redis proxy that shards keys over nodes.
//!
//! [`placement`] decides on which node a key lives.

#![deny(unsafe_code)]

pub mod placement;
