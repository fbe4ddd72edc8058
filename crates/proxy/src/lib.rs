//! A Redis proxy that shards keys over nodes.
//!
//! Clients connect to it as to a single Redis. Each command goes to the node of its keys; a command with keys on several nodes is
//! split, and the replies are joined. Nothing is written to disk, and only requests and replies in flight are kept in memory.
//!
//! | subject | module |
//! |---|---|
//! | positions of keys in requests, handling of each command | [`commands`] |
//! | the node of a key | [`placement`] |
//! | copying a Redis to the nodes of a placement | [`reshard`] |
//! | configuration and bounds of a proxy | [`config`] |
//! | one loop's clients and node connections | `shard` |
//! | start, end, replacement of the node list | `start`, `node_list` |
//! | counters, and their Prometheus format | [`metrics`], `exposition` |
//! | nodes in written form; twemproxy's file | `address`, [`nutcracker`] |

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
pub use reactor::{CertificateError, TlsClient, TlsServer};
pub use start::{ProxyStartError, RunningProxy, start};
