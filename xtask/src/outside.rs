//! `cargo xtask outside`: type-checks the workspaces beside this one, which the tests do not build: the peers of the benches and the
//! targets of the fuzzer.

use std::process::Command;

use crate::tools;

/// Their folders.
const WORKSPACES: [&str; 2] = ["bench/peers", "fuzz"];

/// Checks all of them, and reports the first that fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("`{argument}` is not understood: the command has no arguments"));
    }
    for folder in WORKSPACES {
        let manifest = tools::root().join(folder).join("Cargo.toml");
        let mut command = Command::new("cargo");
        command.args(["check", "--workspace", "--all-targets", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
        tools::run_with(command.env("CARGO_TARGET_DIR", tools::target().join("outside")))
            .map_err(|error| format!("{folder}: {error}"))?;
        println!("== {folder}: the types are right");
    }
    Ok(())
}
