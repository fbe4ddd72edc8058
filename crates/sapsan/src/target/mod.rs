//! What a command works on: a data folder that it opens itself, or a running server that it sends requests to.
//!
//! This room imports `console` and `cli`. It knows no command.

pub(crate) mod folder;
pub(crate) mod remote;
