//! `cargo xtask campaign schedules`: whole engines under the scheduler under test, and the faults that it must find when they are put
//! back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::tools;

/// Patches that put a mended fault back; each says in its name which.
const MUTANTS: &str = "crates/store/tests/mutants";
/// Schedules after which a mutant counts as not found.
const MUTANT_SCHEDULES: &str = "200000";
/// What the campaign prints for a schedule that fails.
const FOUND: &str = "FAILURE, ";
/// Blocks from this size on are not given back to the system each time: the simulated disk allocates many.
const ALLOCATION: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "268435456"), ("MALLOC_TRIM_THRESHOLD_", "1073741824")];

/// `cargo xtask campaign schedules [--count N] [--seed S] [--threads T] | --mutants`
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [option] if option == "--mutants" => mutants(),
        _ => tools::run_with(campaign(&tools::root()).args(arguments)),
    }
}

/// The campaign of the checkout in this folder, in a release build.
fn campaign(folder: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "--package", "store", "--features", "schedules"]);
    command.args(["--example", "schedules", "--"]).envs(ALLOCATION).current_dir(folder);
    command
}

/// Applies each patch to a copy of the checkout, and demands that the campaign fails there. The copy and its build stay in the target
/// folder, so that later runs compile the store alone.
fn mutants() -> Result<(), String> {
    let folder = tools::target().join("schedules");
    let copy = folder.join("checkout");
    let mut missed = Vec::new();
    for patch in patches()? {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        copy_checkout(&copy)?;
        apply(&patch, &copy)?;
        let mut command = campaign(&copy);
        command.args(["--count", MUTANT_SCHEDULES, "--failures", "1"]).env("CARGO_TARGET_DIR", folder.join("target"));
        let output = output_of(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().find(|line| line.starts_with(FOUND)) {
            Some(found) => println!("{name}: found after {} schedules: {found}", schedules_of(&text)),
            None if output.status.success() => {
                println!("{name}: NOT FOUND in {MUTANT_SCHEDULES} schedules");
                missed.push(name);
            }
            None => return Err(format!("{name} does not run:\n{}", String::from_utf8_lossy(&output.stderr))),
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("mutants that no schedule finds: {}", missed.join(", "))) }
}

/// The number of schedules in the last line that tells it.
fn schedules_of<'t>(text: &'t str) -> &'t str {
    let count_of = |line: &'t str| line.split_once(" schedules of ").map(|(count, _)| count);
    text.lines().rev().find_map(count_of).unwrap_or("some")
}

fn output_of(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))
}

fn patches() -> Result<Vec<PathBuf>, String> {
    let folder = tools::root().join(MUTANTS);
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut patches: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    patches.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
    patches.sort();
    Ok(patches)
}

/// Copies the files of the checkout that differ, so that what is built of the others stays. New files that git does not ignore are
/// copied too.
fn copy_checkout(to: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(tools::root());
    let output = output_of(&mut git)?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    for name in String::from_utf8_lossy(&output.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (tools::root().join(name), to.join(name));
        // A file that is deleted and not committed is listed too.
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|copied| copied == content) {
            continue;
        }
        let written = fs::create_dir_all(to.parent().unwrap_or(&to)).and_then(|()| fs::write(&to, content));
        written.map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

fn apply(patch: &Path, copy: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    // Without a repository around it, so that paths begin in the copy.
    git.args(["apply", "--verbose"]).arg(patch).current_dir(copy).env("GIT_CEILING_DIRECTORIES", tools::target());
    let output = output_of(&mut git)?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} does not apply: adapt it to the code that it changes\n{why}", patch.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A patch that does not apply would only be noticed by the next long campaign.
    #[test]
    fn every_mutant_applies_to_the_checkout() {
        let patches = patches().expect("the folder of the patches");
        assert!(!patches.is_empty());
        for patch in patches {
            let mut git = Command::new("git");
            git.args(["apply", "--check"]).arg(&patch).current_dir(tools::root());
            let output = output_of(&mut git).expect("git");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
