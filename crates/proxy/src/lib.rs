//! A Redis proxy that shards keys over nodes.
//!
//! Clients connect to it as to one Redis; each command goes to the node of its keys, those of several nodes are split and their replies
//! joined. Nothing is written to disk, and nothing is kept between a request and its reply but what is in flight.
//!
//! | subject | module |
//! |---|---|
//! | where the keys of a request stand, what is done with each command | [`commands`] |
//! | on which node a key lives | [`placement`] |
//! | copying a Redis to the nodes of a placement | [`reshard`] |
//! | what a proxy is made of, and its bounds | [`config`] |
//! | one loop's clients and node connections | `shard` |
//! | start, end, another list of nodes | `start`, `node_list` |
//! | counters, and how Prometheus reads them | [`metrics`], `exposition` |
//! | nodes as people write them; twemproxy's file | `address`, [`nutcracker`] |

#![deny(unsafe_code)]

mod address;
pub mod commands;
pub mod config;
mod exposition;
pub mod metrics;
mod node_list;
pub mod nutcracker;
pub mod placement;
pub mod reshard;
mod shard;
mod start;

pub use address::{parse_address, parse_node, parse_nodes};
pub use exposition::{MetricsServer, exposition, serve_metrics};
pub use node_list::NodeListError;
pub use reactor::Address;
pub use reactor::{TlsClient, TlsError, TlsServer};
pub use start::{Running, StartError, start};
