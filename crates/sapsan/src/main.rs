//! The command line. This file starts the command, and writes its error to standard error.
//!
//! | subject | room |
//! |---|---|
//! | one file for each command | `commands` |
//! | drafting a service file; writing documents; seeded test data | `draft`, `export`, `generate` |
//! | what a command works on: a data folder, a running server | `target` |
//! | standard output and standard error, progress, log, signals | `console` |
//! | arguments and help | `cli` |
//!
//! A room imports only rooms below it in this table.
#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic where nobody reads: see `console/output.rs`.

mod allocator;
mod cli;
mod commands;
mod console;
mod draft;
mod export;
mod generate;
mod target;

use clap::FromArgMatches;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Writing to a closed pipe (`sapsan query … | head`) is an error to report, not a signal: Rust ignores SIGPIPE.
    let matches = cli::table().get_matches();
    let outcome = match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
        Command::Demo(arguments) => commands::service::demo::run(&arguments),
        Command::Serve(arguments) => commands::service::serve::run(&arguments),
        Command::Init(arguments) => commands::documents::init::run(&arguments),
        Command::Import(arguments) => commands::documents::import::run(&arguments),
        Command::Export(arguments) => commands::documents::export::run(&arguments),
        Command::Generate(arguments) => commands::documents::generate::run(&arguments),
        Command::Query(arguments) => commands::documents::query::run(&arguments),
        Command::CheckConfig(arguments) => commands::service::check_config::run(&arguments),
        Command::Backup(arguments) => commands::data_folder::backup::run(&arguments),
        Command::Restore(arguments) => commands::data_folder::restore::run(&arguments),
        Command::Compact(arguments) => commands::data_folder::compact::run(&arguments),
        Command::Token(arguments) => commands::service::token::run(&arguments),
        Command::Verify(arguments) => commands::data_folder::verify::run(&arguments),
        Command::Reshard(arguments) => commands::redis::reshard::run(&arguments),
        Command::Stat(arguments) => commands::data_folder::stat::run(&arguments),
        Command::Proxy(arguments) => commands::redis::proxy::run(&arguments),
        Command::Loadtest(arguments) => commands::tools::loadtest::run(&arguments),
        Command::Lab(arguments) => commands::tools::lab::run(&arguments),
        Command::Completions(arguments) => commands::tools::completions::run(&arguments),
        Command::Man(arguments) => commands::tools::man::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            console::output::notice(format_args!("sapsan: {message}"));
            ExitCode::FAILURE
        }
    }
}
