//! Checks of the sources that the compiler does not make: circles of imports between files, and public types of one name.
//!
//! They read the text of `src` folders without their tests. A small scanner is enough: paths and items are found by their keywords.

mod circles;
mod modules;
mod tokens;
mod types;

use crate::tools;
use modules::Crate;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the workspace whose subfolders are crates.
const FOLDERS_OF_CRATES: [&str; 2] = ["crates", "apps"];

/// `cargo xtask sources`
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.is_empty() { check() } else { Err(format!("takes nothing, got `{}`", arguments.join(" "))) }
}

/// Reads all crates and reports each circle of imports and each name that two types share.
pub(crate) fn check() -> Result<(), String> {
    let mut crates = Vec::new();
    for source in sources()? {
        crates.extend(Crate::read(&tools::root(), &source)?);
    }
    let mut faults = circles::faults(&crates);
    faults.extend(types::faults(&crates));
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The `src` folders of the workspace, in the order of their names.
fn sources() -> Result<Vec<PathBuf>, String> {
    let mut sources = vec![tools::root().join("xtask/src")];
    for folder in FOLDERS_OF_CRATES {
        sources.extend(folders(&tools::root().join(folder))?.into_iter().map(|one| one.join("src")));
    }
    sources.retain(|source| source.is_dir());
    sources.sort();
    Ok(sources)
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}
