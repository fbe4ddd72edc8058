//! `cargo xtask openapi`: the validator that the test of OpenAPI documents uses, in `target/openapi-validator`.

use crate::tools;
use std::path::PathBuf;
use std::process::Command;

/// The validator, as pip names it.
const PACKAGE: &str = "openapi-spec-validator==0.9.0";

fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| tools::root().join("target")).join("openapi-validator")
}

/// Installs the validator, unless it is there.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let folder = folder();
    if folder.join("bin/openapi-spec-validator").is_file() {
        return Ok(());
    }
    tools::require("python3", "python3-venv")?;
    tools::run_with(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    tools::run_with(Command::new(folder.join("bin/pip")).args(["install", "--quiet", PACKAGE]))
}
