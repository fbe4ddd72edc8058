//! `cargo xtask openapi`: the programs for the test of OpenAPI documents, in `target/openapi-validator` (Python) and
//! `target/openapi-linters` (Node.js).

use crate::tools;
use std::path::PathBuf;
use std::process::Command;

/// The validator, in pip's syntax.
const VALIDATOR: &str = "openapi-spec-validator==0.9.0";
/// The linters, in npm's syntax.
const LINTERS: [&str; 2] = ["@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3"];

/// Installs the missing programs. A failure is reported at the end and does not stop the others.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let failed: Vec<String> = [install_validator(), install_linters()].into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn install_validator() -> Result<(), String> {
    let folder = tools::target().join("openapi-validator");
    if folder.join("bin/openapi-spec-validator").is_file() {
        return Ok(());
    }
    tools::require("python3", "python3-venv")?;
    tools::run_with(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    tools::run_with(Command::new(folder.join("bin/pip")).args(["install", "--quiet", VALIDATOR]))
}

fn install_linters() -> Result<(), String> {
    let folder: PathBuf = tools::target().join("openapi-linters");
    let is_there = |name: &str| folder.join("node_modules/.bin").join(name).exists();
    if is_there("redocly") && is_there("spectral") {
        return Ok(());
    }
    // Not installed here: Debian's npm depends on hundreds of packages.
    if !tools::is_on_path("npm") {
        return Err("`npm` is missing: install Node.js from 20.19 on for the linters".to_owned());
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    tools::run_with(Command::new("npm").arg("install").arg("--prefix").arg(&folder).args(quiet).args(LINTERS))
}
