//! HTTP/1.1 server on the reactor.
//!
//! An application implements [`Service`], gives it to an [`HttpServer`], and the server's listener to the reactor. Which
//! file holds what:
//!
//! | subject | file |
//! |---|---|
//! | interface of an application | `service`, `method`, `request`, `reply` (in its folder `part`, `stream`, `late`), `status`, `body` |
//! | bytes to requests, without I/O | `parsing`: `plain` (the usual head), `scan` (blank line), `head` (fields, framing), `chunked`, `pieces` (a body that its service takes in pieces), `reader` (all), `refusal` (reasons to refuse a request), `visible` (runs of visible ASCII) |
//! | replies to bytes | `reply`: `composer`, `field_block`, `stream` |
//! | one connection | `connection`: its turns; `serve` (the call), `ring` (order of replies) and `flush` (replies to the write queue), `time_limit` and `deadline`; beside it `presence` (whether the client is there) |
//! | state shared by a loop's connections | `connection/worker`, with the service `connection/shared`; `connection/crowd` (closing of connections when there are too many) |
//! | the listener | `server`, `addresses`, `limits`, `settings`, `trusted_proxies` |
//! | counters | `metrics`: `counter`, `latency`, `uncounted`, `slow` |
//! | for fuzzing alone | `fuzzing` |
//! | for applications | `query`, `cookies`, `forms`, `forwarded` (client behind proxies), `router`, `files` (static files), `queued_writer`, `access_log` |
//!
//! What holds everywhere: replies leave in the order of the requests; a request that two servers could interpret in two ways is
//! refused and its connection closed; no byte from a client causes a panic; every buffer has a limit in [`ClientLimits`] or a
//! named constant beside it.

mod access_log;
mod addresses;
mod body;
mod connection;
pub mod cookies;
mod files;
pub mod forms;
mod forwarded;
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod method;
mod metrics;
mod parsing;
mod presence;
pub mod query;
mod queued_writer;
mod reply;
mod request;
mod router;
mod server;
mod service;
mod settings;
mod status;
mod trusted_proxies;

pub use access_log::AccessLog;
pub use body::{BodyFault, BodySink, BodySource, More};
pub use files::{FILE_BYTES_IN_MEMORY_MAX, FileCache, FileMiss, FileReply, Files, OPEN_FILES_MAX};
pub use limits::{ClientLimits, Deadlines};
pub use method::{Method, RequestOrder};
pub use metrics::latency::{BUCKETS, SERIES_BYTES, SERIES_MAX, Series, SeriesTotal};
pub use metrics::slow::{SlowLog, SlowRequest};
pub use metrics::{HttpMetrics, MetricsTotal};
pub use presence::{ClientState, Presence};
pub use query::DecodeError;
pub use queued_writer::{QueuedWriter, QueuedWriterThread};
pub use reactor::{FileRange, Piece};
pub use reply::Reply;
pub use reply::field_block::{FieldBlock, FieldBlockFault};
pub use reply::late::{Cutter, LateReply, Nudge};
pub use reply::part::{BodyPart, UNCOPIED_BYTES_MIN};
pub use request::HttpRequest;
pub use router::{Params, RouteError, RouteLookup, Router};
pub use server::HttpServer;
pub use service::Service;
pub use settings::HttpSettings;
pub use status::Status;
pub use trusted_proxies::{ProxyEntryError, TrustedProxies};
