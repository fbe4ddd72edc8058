//! The database server: one configuration file becomes an HTTP service.
//!
//! [`config`] holds the settings of the file, read by `loading`; [`start()`] opens the data folder and serves it, [`Running`]
//! ends it. The path of a request:
//!
//! ```text
//!  routing (router) ─► endpoint   declared: get, insert, update, replace, delete ─► writing (late replies)
//!                  │            └ querying   declared queries, on the loop within a budget, then in the background
//!                  │            └ stepping   several statements in one transaction
//!                  └─► general    /_/: documents, listing, bulk, query (on the pool), health, metrics
//! ```
//!
//! `files` serves the files of a folder. `guard` runs the query that must return a row before an endpoint does anything. `access`
//! decides which requests the general API answers, `token` checks tokens, `cors` decides which pages may use declared endpoints.
//! `large` sends replies over 64 KB as streams, `background` runs work that would block a loop, `statement` handles statements of
//! clients and of the command line: a query or `EXPLAIN` of one; `modify` handles those that write. `failure` holds the one table
//! from failures to statuses, `memory` the division of the memory setting.

mod access;
mod background;
mod backups;
mod changes;
mod client;
mod cold;
pub mod config;
mod cors;
mod cursor;
mod direct;
mod endpoint;
mod expiry;
mod explaining;
pub mod failure;
mod files;
mod flowing;
mod general;
mod guard;
mod header_params;
mod held;
mod in_flight;
mod kept_request;
mod keys;
mod large;
mod late_query;
mod lines;
mod loading;
mod long_write;
mod loop_time;
mod media;
mod memory;
mod metrics;
pub mod modify;
mod named;
mod openapi;
mod paging;
mod panics;
mod params;
mod path_types;
mod preconditions;
mod preparing;
mod process_metrics;
mod queries;
mod query_pool;
mod querying;
mod reading;
mod refusal;
mod reload;
mod reloads;
mod route_metrics;
mod route_series;
mod routing;
pub mod rows;
mod service;
mod slow_log;
mod sources;
mod start;
pub mod statement;
mod stepping;
mod streaming;
mod switch;
pub mod token;
mod tries;
mod verification;
mod view_metrics;
mod writing;

pub use preparing::{StartError, check, complete, open_folder, rehearse};
pub use reactor::signals::{Signal, Termination};
pub use start::{Running, capacity, start, store_options};
