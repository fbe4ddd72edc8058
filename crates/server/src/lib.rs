//! The database server: one configuration file becomes an HTTP service.
//!
//! [`config`] holds the settings of the file; [`start()`] opens the data folder and serves it, [`RunningServer`] ends it. The
//! path of a request:
//!
//! ```text
//!  routing (router) ─► declared   get, insert, update, replace, delete, files ─► service (writes, late replies)
//!                  │            └ queries, on the loop within a budget, then in the background
//!                  │            └ steps: several statements in one transaction
//!                  └─► general    /_/: documents, listing, bulk, query (on the pool), health, metrics
//! ```
//!
//! Each folder is a room. A room imports only rooms that stand before it here:
//!
//! ```text
//!  failure ─ config ─ requests ─ threads ─ reads ─ replies ─ access ─ statements ─ changes ─ maintenance ─ metrics
//!   ─► service ─► declared ─ general ─► openapi ─► routing ─► lifecycle
//! ```

mod access;
mod changes;
pub mod config;
mod declared;
pub mod failure;
mod general;
mod lifecycle;
mod maintenance;
mod metrics;
mod openapi;
mod reads;
mod replies;
mod requests;
mod routing;
mod service;
mod statements;
mod threads;

pub use access::token;
pub use lifecycle::preparing::{ServerStartError, check, complete, open_folder, rehearse, store_options};
pub use lifecycle::start::{RunningServer, capacity, start};
pub use reactor::signals::{Signal, Termination};
pub use replies::rows;
pub use statements::{modify, statement};
