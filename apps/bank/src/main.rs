//! `bank`: see the library of the same name.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match bank::cli::run(bank::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = std::io::stderr().write_all(format!("bank: {message}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}
