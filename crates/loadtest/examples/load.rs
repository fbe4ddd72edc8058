//! `sapsan loadtest` as a separate program, which builds in a tenth of the time.

use clap::Parser;
use loadtest::cli::{LoadArguments, run};
use std::process::ExitCode;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: LoadArguments,
}

fn main() -> ExitCode {
    match run(&Line::parse().arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("load: {message}");
            ExitCode::FAILURE
        }
    }
}
