//! Sapsan as a library: web applications in Rust on the server's event loops, with the embedded database.
//!
//! ```
//! use sapsan::{App, Path};
//!
//! fn hello(Path(name): Path<&str>) -> String {
//!     format!("Hello, {name}!")
//! }
//!
//! # fn main() -> Result<(), sapsan::StartError> {
//! let app = App::new().get("/hello/{name}", hello);
//! let running = app.start("127.0.0.1:0")?;
//! # running.stop();
//! # Ok(())
//! # }
//! ```
//!
//! | subject | file |
//! |---|---|
//! | routes, state, settings; start and stop | `app`, `build`, `running` |
//! | one request: its data, and its path through the application | `request`, `exchange`, `service` |
//! | functions as handlers; their arguments | `handler`, `extract`, `path`, `query`, `forms` |
//! | results of handlers as replies | `respond`, `response`, `buffer`, `stream`, `error` |
//! | static files | `files` |
//! | late replies; threads for blocking work | `late`, `blocking` |
//! | middleware: functions around handlers; layers, which see every request and reply | `middleware`, `layer` |
//! | sessions in a cookie | `session` |
//! | default protection: origin checks, form tokens, security headers | `protection`, `origins`, `form_tokens`, `exempt`, `security_headers` |
//! | the embedded database | `database` |
//!
//! `docs/applications.md` is the guide for authors of applications. What holds everywhere: a handler runs on an event loop and must not
//! wait. Work that waits runs on an executor ([`blocking()`]) or is answered late ([`Later`]). A handler that panics answers 500. If a
//! handler needs something that the application does not have (a state, an executor of that name), the application does not start.
//!
//! The crates below are re-exported for programs that need more: [`docs`] (collections, schemas, indexes and queries, without any network),
//! [`server`] (the HTTP service made from a config file), [`store`] (the transactional key-value engine below both), [`http`] and
//! [`executor`].
//!
//! The feature `cli` (on by default) adds what only the command line needs.

/// The guide's page. Its programs are compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/applications.md")]
struct Applications;

/// The page on sessions and security, tested in the same way.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sessions-in-applications.md")]
struct SessionsInApplications;
/// The page on forms, tested in the same way.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/forms.md")]
struct Forms;

mod app;
mod blocking;
mod buffer;
mod build;
mod database;
mod error;
mod exchange;
mod exempt;
mod extract;
mod files;
mod form_tokens;
mod forms;
mod handler;
mod late;
mod layer;
mod middleware;
mod origins;
mod path;
mod protection;
mod query;
mod request;
mod respond;
mod response;
mod running;
mod security_headers;
mod service;
mod session;
mod stream;

pub use app::App;
pub use blocking::{Blocking, Threads, blocking};
pub use build::{Needs, StartError};
pub use database::{
    Database, DatabaseError, Db, DbValue, Document, LOOP_ROWS_MAX, OpenError, Parameters, Snapshot, Transaction,
};
pub use error::{Error, ErrorPage, escaped};
pub use exchange::Exchange;
pub use extract::{Body, Client, Extract, Headers, Json, Shared, State, Text};
pub use form_tokens::FormTokens;
pub use forms::{Form, Multipart, Upload, UploadLimits, UploadedFile, upload};
pub use handler::Handler;
pub use http::forms::{FieldLimits, MultipartLimits};
pub use http::{Deadlines, Files, Limits, Method, Status, embed};
pub use late::{Later, Responder, later};
pub use layer::{Head, Layer};
pub use middleware::{Around, Next};
pub use origins::Origins;
pub use path::{Path, PathParts};
pub use query::Query;
pub use request::Request;
pub use respond::{Html, Redirect, Respond};
pub use response::{Part, Parts, Response};
pub use running::Running;
pub use security_headers::SecurityHeaders;
pub use session::{Flash, KeyFault, Keys, Session, SessionData, SessionError, SessionId, Sessions, SessionsFault};
pub use stream::{Pieces, Stream};
pub use {docs, executor, http, server, store};
