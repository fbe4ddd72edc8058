//! Commands for a service: its file, its tokens, the server itself.

pub(crate) mod check_config;
pub(crate) mod demo;
pub(crate) mod serve;
pub(crate) mod token;
