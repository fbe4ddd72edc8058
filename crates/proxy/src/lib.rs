//! A Redis proxy that shards keys over nodes.
//!
//! [`placement`] decides on which node a key lives; [`reshard`] copies a Redis to the nodes of a placement.

#![deny(unsafe_code)]

pub mod placement;
pub mod reshard;
