//! `cargo xtask test --quick [REVISION]`: the checks that a change breaks most often, in two minutes if the build is warm.
//!
//! It checks the format, the lints of the changed packages, the unit tests of these and of the packages that depend on them, and
//! those of their test programs that take seconds. It omits the other programs, the documentation with its examples, and the
//! lints of unchanged packages; the closing line names the omissions. `cargo xtask test` checks everything.

use crate::tally::{Tally, run_programs, step};
use crate::{sources, tools};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages whose test programs are built and run in seconds.
const FAST: [&str; 8] = ["executor", "binjson", "http", "lab", "loadtest", "reactor", "resp", "schema"];
/// Files in the root that affect every package.
const FOR_ALL: [&str; 4] = ["Cargo.toml", "Cargo.lock", "clippy.toml", "rust-toolchain.toml"];

/// A package of the workspace.
#[derive(Debug)]
struct Package {
    name: String,
    /// Relative to the workspace's root.
    folder: PathBuf,
    /// Names of its dependencies, including those of its tests.
    uses: BTreeSet<String>,
}

/// Checks the differences from a revision.
pub(crate) fn run(revision: &str) -> Result<(), String> {
    let packages = packages()?;
    let changed = changed(&files(revision)?, &packages);
    let affected = affected(&changed, &packages);
    println!("== changed since {revision}: {}", listed(&changed));
    step("format", || tools::run("cargo", &["fmt", "--all", "--check"]))?;
    step("sources", sources::check)?;
    let mut tally = Tally::default();
    let mut outcome = Ok(());
    if !changed.is_empty() {
        step("lints", || {
            let lints = ["--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
            tools::run_with(Command::new("cargo").arg("clippy").args(selection(&changed)).args(lints))
        })?;
        outcome = run_tests(&affected, &mut tally);
    }
    let slow: BTreeSet<String> = affected.iter().filter(|name| !is_fast(name)).cloned().collect();
    println!("{}; left out: programs of {}; documentation and its examples", tally.summary(), listed(&slow));
    outcome
}

fn run_tests(affected: &BTreeSet<String>, tally: &mut Tally) -> Result<(), String> {
    let selection = selection(affected);
    let units: Vec<&str> = selection.iter().map(String::as_str).chain(["--lib", "--bins"]).collect();
    step("unit tests", || run_programs(tally, &units, || ()))?;
    let fast: BTreeSet<String> = affected.iter().filter(|name| is_fast(name)).cloned().collect();
    if fast.is_empty() {
        return Ok(());
    }
    let selection = self::selection(&fast);
    let programs: Vec<&str> = selection.iter().map(String::as_str).chain(["--test=*"]).collect();
    step("fast programs", || run_programs(tally, &programs, || ()))
}

fn is_fast(name: &str) -> bool {
    FAST.contains(&name)
}

fn listed(names: &BTreeSet<String>) -> String {
    if names.is_empty() { "no package".to_owned() } else { names.iter().cloned().collect::<Vec<_>>().join(", ") }
}

/// Cargo's arguments that select packages.
fn selection(names: &BTreeSet<String>) -> Vec<String> {
    names.iter().map(|name| format!("--package={name}")).collect()
}

/// Files that differ from a revision or are unknown to git; paths relative to the root.
fn files(revision: &str) -> Result<Vec<PathBuf>, String> {
    let listed = |arguments: &[&str]| -> Result<Vec<PathBuf>, String> {
        let output = Command::new("git").args(arguments).current_dir(tools::root()).output();
        let output = output.map_err(|error| format!("cannot start git: {error}"))?;
        if !output.status.success() {
            let listed = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("`git {}`: {}", arguments.join(" "), listed.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect())
    };
    let mut files = listed(&["diff", "--name-only", revision, "--"])?;
    files.extend(listed(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(files)
}

/// The packages of the workspace, from `cargo metadata`.
fn packages() -> Result<Vec<Package>, String> {
    let metadata = ["metadata", "--no-deps", "--format-version", "1", "--locked"];
    let output = Command::new("cargo").args(metadata).current_dir(tools::root()).output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("`cargo metadata`: {error}"))?;
    let package = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(tools::root()).ok()?.to_owned();
        let uses = package["dependencies"].as_array()?.iter().filter_map(|one| one["name"].as_str().map(str::to_owned));
        Some(Package { name: package["name"].as_str()?.to_owned(), folder, uses: uses.collect() })
    };
    let packages: Option<Vec<Package>> = metadata["packages"].as_array().into_iter().flatten().map(package).collect();
    packages.ok_or_else(|| "`cargo metadata` has a package without a name or a folder".to_owned())
}

/// The packages that contain these files.
fn changed(files: &[PathBuf], packages: &[Package]) -> BTreeSet<String> {
    let is_for_all = |file: &PathBuf| FOR_ALL.iter().any(|name| file.as_path() == Path::new(name));
    let all = files.iter().any(is_for_all);
    let is_changed = |package: &&Package| all || files.iter().any(|file| file.starts_with(&package.folder));
    packages.iter().filter(is_changed).map(|package| package.name.clone()).collect()
}

/// These packages, and all that depend on one of them, directly or indirectly.
fn affected(changed: &BTreeSet<String>, packages: &[Package]) -> BTreeSet<String> {
    let mut affected = changed.clone();
    loop {
        let uses_one = |package: &&Package| !affected.contains(&package.name) && !affected.is_disjoint(&package.uses);
        let more: Vec<String> = packages.iter().filter(uses_one).map(|package| package.name.clone()).collect();
        if more.is_empty() {
            return affected;
        }
        affected.extend(more);
    }
}

#[cfg(test)]
mod choosing {
    use super::{FAST, Package, affected, changed, packages};
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chain() -> Vec<Package> {
        [("a", &[][..]), ("b", &["a", "serde"]), ("c", &["b"]), ("ab", &["serde"])]
            .map(|(name, uses)| Package {
                name: name.to_owned(),
                folder: format!("crates/{name}").into(),
                uses: set(uses),
            })
            .into()
    }

    #[test]
    fn a_file_belongs_to_the_package_of_its_folder_and_the_roots_manifest_to_all() {
        let of = |files: &[&str]| changed(&files.iter().map(PathBuf::from).collect::<Vec<_>>(), &chain());
        assert_eq!(of(&["crates/a/src/lib.rs", "docs/a.md"]), set(&["a"]));
        assert_eq!(of(&["crates/ab/Cargo.toml", "README.md"]), set(&["ab"]));
        assert_eq!(of(&["Cargo.lock"]), set(&["a", "b", "c", "ab"]));
        assert_eq!(of(&["docs/a.md"]), set(&[]));
    }

    #[test]
    fn who_uses_a_changed_package_is_affected_through_others_too() {
        let of = |names: &[&str]| affected(&set(names), &chain());
        assert_eq!(of(&["a"]), set(&["a", "b", "c"]));
        assert_eq!(of(&["c", "ab"]), set(&["c", "ab"]));
        assert_eq!(of(&[]), set(&[]));
    }

    #[test]
    fn the_workspace_is_read_and_has_all_fast_packages() {
        let packages = packages().expect("cargo's metadata");
        let known: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        assert!(FAST.iter().all(|name| known.contains(name)), "{known:?}");
        assert!(affected(&set(&["reactor"]), &packages).contains("sapsan"));
        assert!(!affected(&set(&["server"]), &packages).contains("store"));
    }
}
