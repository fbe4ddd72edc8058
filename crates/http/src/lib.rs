//! HTTP/1.1 server on the reactor.
//!
//! An application implements [`Service`], gives it to an [`HttpServer`], and the server's listener to the reactor. Which
//! file holds what:
//!
//! | subject | file |
//! |---|---|
//! | interface of an application | `service`, `method`, `request`, `reply`, `part`, `status`, `body`, `late` |
//! | bytes to requests, without I/O | `plain` (the usual head), `scan` (blank line), `head` (fields, framing), `chunked`, `pieces` (a body that its service takes in pieces), `reader` (all) |
//! | replies to bytes | `composer`, `field_block`, `stream`, `refusal` (reasons to refuse a request), `visible` (bytes in messages) |
//! | one connection | `connection` (turns), `serve` (the call), `ring` (order of replies), `deadline`, `presence` (whether the client is there) |
//! | state shared by a loop's connections | `worker`, with the service `shared`; `crowd` (closing of connections when there are too many) |
//! | the listener and its counters | `server`, `addresses`, `limits`, `settings`, `metrics`, `counter`, `latency`, `uncounted`, `slow`, `trusted_proxies` |
//! | for fuzzing alone | `fuzzing` |
//! | for applications | `query`, `cookies`, `forms`, `forwarded` (client behind proxies), `router`, `files` (static files), `queued_writer`, `access_log` |
//!
//! What holds everywhere: replies leave in the order of the requests; a request that two servers could interpret in two ways is
//! refused and its connection closed; no byte from a client causes a panic; every buffer has a limit in [`ClientLimits`] or a
//! named constant beside it.

mod access_log;
mod addresses;
mod body;
mod chunked;
mod composer;
mod connection;
pub mod cookies;
mod counter;
mod crowd;
mod deadline;
mod field_block;
mod files;
pub mod forms;
mod forwarded;
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod late;
mod latency;
mod limits;
mod method;
mod metrics;
mod part;
mod pieces;
mod plain;
mod presence;
pub mod query;
mod queued_writer;
mod reader;
mod refusal;
mod reply;
mod request;
mod ring;
mod router;
mod scan;
mod serve;
mod server;
mod service;
mod settings;
mod shared;
mod slow;
mod status;
mod stream;
mod trusted_proxies;
mod uncounted;
mod visible;
mod worker;

pub use access_log::AccessLog;
pub use body::{BodyFault, BodySink, BodySource, More};
pub use field_block::{FieldBlock, FieldBlockFault};
pub use files::{FILE_BYTES_IN_MEMORY_MAX, FileCache, FileMiss, FileReply, Files, OPEN_FILES_MAX};
pub use late::{Cutter, LateReply, Nudge};
pub use latency::{BUCKETS, SERIES_BYTES, SERIES_MAX, Series, SeriesTotal};
pub use limits::{ClientLimits, Deadlines};
pub use method::{Method, Order};
pub use metrics::{HttpMetrics, MetricsTotal};
pub use part::{BodyPart, UNCOPIED_BYTES_MIN};
pub use presence::{ClientState, Presence};
pub use query::DecodeError;
pub use queued_writer::{QueuedWriter, QueuedWriterThread};
pub use reactor::{FileRange, Piece};
pub use reply::Reply;
pub use request::HttpRequest;
pub use router::{Params, RouteError, RouteLookup, Router};
pub use server::HttpServer;
pub use service::Service;
pub use settings::HttpSettings;
pub use slow::{SlowLog, SlowRequest};
pub use status::Status;
pub use trusted_proxies::{ProxyEntryError, TrustedProxies};
