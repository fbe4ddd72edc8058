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
//! | routes, state, settings; start and end | `app`, `build`, `running` |
//! | one request: what is known of it, and the way through it | `request`, `exchange`, `service` |
//! | functions as handlers; their arguments | `handler`, `extract`, `path`, `query`, `forms` |
//! | their results | `respond`, `response`, `buffer`, `stream`, `error` |
//! | static files | `files` |
//! | replies that come later; threads for work that blocks | `late`, `blocking` |
//! | functions around handlers; what looks at every request and reply | `middleware`, `layer` |
//! | sessions in a cookie | `session` |
//! | what is refused and said by default: origins, form tokens, security headers | `protection`, `origins`, `form_tokens`, `exempt`, `security_headers` |
//! | the embedded database | `database` |
//!
//! How an application is written is told in `docs/applications.md`. What holds everywhere: a handler runs on an event loop and must
//! not wait; what waits runs on an executor ([`blocking()`]) or answers late ([`Later`]). A handler that panics answers 500. What an
//! application lacks (a state that no one gave, an executor that has no such name) is an error when it starts, not when it is asked.
//!
//! The parts below are there for programs that bring more of their own: [`docs`] (collections, schemas, indexes and queries, without
//! any network), [`server`] (the HTTP service made from a config file), [`store`] (the transactional key-value engine below both).
//!
//! The feature `cli` (on by default) adds what only the command line needs.

/// The page of the documentation, whose programs are compiled and run as those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/applications.md")]
struct Applications;

/// The same.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sessions-in-applications.md")]
struct SessionsInApplications;
/// The same of forms.
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
