//! `cargo xtask campaign world --mutants`: faults that the program had, put back one by one, each of which the campaign must find.
//!
//! A patch of `crates/sapsan/tests/world/mutants` is applied to a copy of the sources in `target/world-mutants`, which is built there.
//! The campaign of this working tree then runs against that binary.

use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const PATCHES: &str = "crates/sapsan/tests/world/mutants";
/// A fault that is not found within this time is missed.
const SECONDS: &str = "600";

/// `[NAME]…`: the patches with these words in their names, or all.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let patches = patches(arguments)?;
    let folder = tools::target().join("world-mutants");
    let sources = folder.join("sources");
    // The test program itself has no fault.
    tools::run("cargo", &["test", "--package", "sapsan", "--test", "world", "--no-run"])?;
    let mut missed = Vec::new();
    for patch in patches {
        copy_sources(&sources)?;
        let binary = build(&sources, &folder.join("build"), &patch)?;
        let began = Instant::now();
        let is_found = find(&binary)?;
        let (name, seconds) = (patch.file_stem().unwrap_or_default().to_string_lossy(), began.elapsed().as_secs());
        println!("== {name}: {} after {seconds} s", if is_found { "found" } else { "NOT FOUND" });
        if !is_found {
            missed.push(name.into_owned());
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}

fn patches(words: &[String]) -> Result<Vec<PathBuf>, String> {
    let folder = tools::root().join(PATCHES);
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut patches: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    patches.retain(|patch| {
        let name = patch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".patch") && (words.is_empty() || words.iter().any(|word| name.contains(word)))
    });
    patches.sort();
    if patches.is_empty() { Err(format!("no patch of {PATCHES} is meant")) } else { Ok(patches) }
}

/// Copies all files that git knows, with their present content. What has not changed keeps its time, so that it is not built again.
fn copy_sources(to: &Path) -> Result<(), String> {
    let listed = Command::new("git").current_dir(tools::root()).args(["ls-files", "-z"]).output();
    let listed = listed.map_err(|error| format!("git: {error}"))?;
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (tools::root().join(name), to.join(name));
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        let folder = to.parent().ok_or("a file has a folder")?;
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&to, content))
            .map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

fn build(sources: &Path, target: &Path, patch: &Path) -> Result<PathBuf, String> {
    let status = Command::new("patch").current_dir(sources).args(["-p1", "-s", "-i"]).arg(patch).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(format!("{} does not fit the sources any more: put its fault back by hand", patch.display()));
    }
    let mut command = Command::new("cargo");
    command
        .current_dir(sources)
        .args(["build", "--quiet", "--package", "sapsan", "--bin", "sapsan", "--target-dir"])
        .arg(target);
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(target.join("debug/sapsan")) } else { Err(format!("{} cannot be built", patch.display())) }
}

/// Whether the campaign fails with this binary.
fn find(binary: &Path) -> Result<bool, String> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--package", "sapsan", "--test", "world", "every_operation_of_a_long_life"]);
    command.args(["--", "--ignored"]).env("SAPSAN_WORLD_SECONDS", SECONDS).env("SAPSAN_WORLD_BINARY", binary);
    let output = command.current_dir(tools::root()).output().map_err(|error| format!("cargo: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(line) = told.lines().find(|line| line.starts_with("seed ") && line.contains("folder")) {
        println!("{}", line.chars().take(400).collect::<String>());
    }
    Ok(!output.status.success())
}
