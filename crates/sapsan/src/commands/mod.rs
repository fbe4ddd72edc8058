//! One file for each command. A command's error is one text: what failed, on what, what to do.

pub(crate) mod backup;
pub(crate) mod check_config;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod export;
mod folder;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod lab;
pub(crate) mod loadtest;
mod logging;
pub(crate) mod man;
pub(crate) mod output;
mod progress;
pub(crate) mod proxy;
pub(crate) mod query;
pub(crate) mod remote;
pub(crate) mod reshard;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod token;
pub(crate) mod verify;

/// What a command ends with.
pub(crate) type Outcome = Result<(), String>;
