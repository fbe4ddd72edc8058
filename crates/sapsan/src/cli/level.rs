//! How much is logged.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Faults only
    Error,
    /// Warnings too, such as queries that read many rows
    Warn,
    /// Events too, such as reloads; the default
    Info,
    /// Details too, for debugging
    Debug,
}
