//! The application: routes, settings and states are added to it, then it is checked, started and stopped.
//!
//! This is the uppermost room: it imports all others, and none imports it.

mod application;
mod running;
mod start_error;

pub use application::App;
pub use running::RunningApp;
pub use start_error::StartError;
