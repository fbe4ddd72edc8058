//! `cargo xtask dist`: the fastest program, for use and for the benches. A plain release build does without optimisation across
//! crates, which takes most of the time of a build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;

const PROFILE: &str = "dist";

/// Builds `sapsan` and says where it is.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("`{argument}` is not understood: the command has no arguments"));
    }
    let program = build(&["--package", "sapsan"])?.join("sapsan");
    let size = std::fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?.len();
    println!("{} ({:.1} MB)", program.display(), size as f64 / 1e6);
    Ok(())
}

/// Builds the packages and targets, named as cargo's arguments; returns the folder of the programs.
pub(crate) fn build(targets: &[&str]) -> Result<PathBuf, String> {
    build_in(&tools::root(), &tools::target(), targets)
}

/// The same for another checkout of the project. A revision without the profile is built as a release, which was optimised across
/// crates then.
pub(crate) fn build_in(checkout: &Path, target: &Path, targets: &[&str]) -> Result<PathBuf, String> {
    let manifest = checkout.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
    let profile = if text.contains(&format!("[profile.{PROFILE}]")) { PROFILE } else { "release" };
    let mut command = Command::new("cargo");
    command.args(["build", "--profile", profile, "--locked", "--quiet", "--manifest-path"]).arg(manifest).args(targets);
    tools::run_with(command.env("CARGO_TARGET_DIR", target))?;
    Ok(target.join(profile))
}
