//! The command line: every command with its arguments, as `clap` reads them.
//!
//! `command` is the table of commands; the other files have the arguments of one room of commands each. `help` adds examples and
//! defaults, from which help, completions and manual pages are made.
//!
//! This room imports no other. It checks the form of arguments only; what they mean is known to `commands`.

mod command;
mod data_folder;
mod documents;
mod help;
mod level;
mod placement;
mod proxy;
mod reshard;
mod secret;
mod service;
mod shell;

pub(crate) use command::{Cli, Command};
pub(crate) use data_folder::{Backup, Folder, Restore, Stat, Verify};
pub(crate) use documents::{
    Export, ExportFormat, Format, Generate, GenerateForumUsers, GenerateTravels, GenerateWhat, Import, ImportFormat,
    Init, OnError, QueryArguments,
};
pub(crate) use help::table;
pub(crate) use level::Level;
pub(crate) use proxy::{LimitArguments, Proxy};
pub(crate) use reshard::{ChosenDatabase, Reshard};
pub(crate) use secret::Secret;
pub(crate) use service::{CheckConfig, Demo, Serve, Token};
pub(crate) use shell::{Completions, Man, Shell};
