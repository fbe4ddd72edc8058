//! Sapsan as a library: what the binary is made of, for programs that bring their own `main`.
//!
//! - [`docs`]: collections, schemas, indexes and queries, without any network.
//! - [`server`]: the HTTP service made from a config file.
//! - [`store`]: the transactional key-value engine below both.
//!
//! The feature `cli` (on by default) adds what only the command line needs.

pub use {docs, server, store};
