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
//! | subject | room |
//! |---|---|
//! | routes and settings of an application; start and stop | `app` |
//! | forms, files in forms, queries | `forms` |
//! | what a route calls: functions, functions on an executor, static files | `routes` |
//! | arguments of handlers | `arguments` |
//! | the path of a request: request, response, layers, middleware, late replies | `dispatch` |
//! | the embedded database | `database` |
//! | default protection: origin checks, form tokens, security headers | `protection` |
//! | sessions in a cookie | `session` |
//! | what replies are made of: errors, header fields, buffers, streams | `reply` |
//!
//! A room imports only rooms below it in this table.
//!
//! `docs/applications.md` is the guide for authors of applications. What holds everywhere: a handler runs on an event loop and must not
//! wait. Work that waits runs on an executor ([`blocking()`]) or is answered late ([`Later`]). A handler that panics answers 500. If a
//! handler needs something that the application does not have (a state, an executor of that name), the application does not start.
//!
//! The crates below are re-exported for programs that need more: [`docs`] (collections, schemas, indexes and queries, without any network),
//! [`server`] (the HTTP service made from a config file), [`docs::engine`] (the transactional key-value engine below both), [`http`] and
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
mod arguments;
mod database;
mod dispatch;
mod forms;
mod protection;
mod reply;
mod routes;
mod session;

pub use app::{App, RunningApp, StartError};
pub use arguments::{Body, ClientAddress, Db, Extract, Headers, Json, Path, PathParts, Session, Shared, State, Text};
pub use database::{
    Database, DatabaseError, DbValue, Document, LOOP_ROWS_MAX, OpenError, Parameters, Snapshot, Transaction,
};
pub use dispatch::{
    Around, Exchange, Html, Later, Layer, Needs, Next, Part, Parts, Redirect, Request, Respond, Responder, Response,
    Threads, later,
};
pub use forms::{Form, Multipart, Query, Upload, UploadLimits, UploadedFile, upload};
pub use http::forms::{FieldLimits, MultipartLimits};
pub use http::{ClientLimits, Deadlines, Files, Method, Status, embed};
pub use protection::{FormTokens, Origins, SecurityHeaders};
pub use reply::{Error, ErrorPage, Head, Pieces, Stream, escaped};
pub use routes::{Blocking, Handler, blocking};
pub use session::{Flash, KeyFault, Keys, SessionData, SessionError, SessionId, Sessions, SessionsFault};
pub use {docs, executor, http, server};
