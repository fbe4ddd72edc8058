//! What a route can call: a function on the event loop, a function on an executor, or a folder of files.
//!
//! This room imports `arguments`, `dispatch` and the rooms below them. It knows no application: `app` adds the routes.

mod blocking;
mod files;
mod handler;

pub use blocking::{Blocking, blocking};
pub(crate) use files::{FilesEndpoint, folder_pattern};
pub(crate) use handler::Erased;
pub use handler::Handler;
