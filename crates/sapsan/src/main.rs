//! The command line. Each command has its file; this one starts them and tells what failed.
#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic where nobody reads: see `commands/output.rs`.

mod allocator;
mod cli;
mod cli_help;
mod cli_proxy;
mod commands;
mod draft;
mod export;
mod generate;

use clap::FromArgMatches;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Writing to a closed pipe (`sapsan query … | head`) is an error to report, not a signal: Rust ignores SIGPIPE.
    let matches = cli_help::command().get_matches();
    let outcome = match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Init(arguments) => commands::init::run(&arguments),
        Command::Import(arguments) => commands::import::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Generate(arguments) => commands::generate::run(&arguments),
        Command::Query(arguments) => commands::query::run(&arguments),
        Command::CheckConfig(arguments) => commands::check_config::run(&arguments),
        Command::Backup(arguments) => commands::backup::run(&arguments),
        Command::Restore(arguments) => commands::restore::run(&arguments),
        Command::Compact(arguments) => commands::compact::run(&arguments),
        Command::Token(arguments) => commands::token::run(&arguments),
        Command::Verify(arguments) => commands::verify::run(&arguments),
        Command::Reshard(arguments) => commands::reshard::run(&arguments),
        Command::Stat(arguments) => commands::stat::run(&arguments),
        Command::Proxy(arguments) => commands::proxy::run(&arguments),
        Command::Loadtest(arguments) => commands::loadtest::run(&arguments),
        Command::Lab(arguments) => commands::lab::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            commands::output::notice(format_args!("sapsan: {message}"));
            ExitCode::FAILURE
        }
    }
}
