//! The arguments of handlers: [`Extract`], and the types that a handler can take from its request.
//!
//! This room imports `dispatch` and the rooms below it. It does not know which functions take the arguments. Forms and queries have
//! the room `forms`.

mod database;
mod extract;
mod json;
mod path;
mod session;

pub use database::Db;
pub use extract::{Body, ClientAddress, Extract, Headers, Shared, State, Text};
pub use json::Json;
pub use path::{Path, PathParts};
pub use session::Session;
