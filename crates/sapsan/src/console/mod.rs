//! What every command needs of the process that it runs in: standard output and standard error, progress bars, the log, signals.
//!
//! A command's error is one text: what failed, on what, what to do. `main` writes it to standard error.
//!
//! This room imports `cli` only, for the level of the log. It knows no command.

pub(crate) mod logging;
pub(crate) mod output;
pub(crate) mod process;
pub(crate) mod progress;

/// What a command ends with.
pub(crate) type Outcome = Result<(), String>;
