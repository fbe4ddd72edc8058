//! From a configuration file to a running server, its reloads, and its end: reading, preparation of SQL and endpoints, start.
//!
//! The highest room: it may import all others, and none imports it.

mod loading;
mod path_types;
pub(crate) mod preparing;
mod reload;
pub(crate) mod start;
