//! Programs that tasks need beyond Rust: found, installed if possible, or reported as missing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The folder of build output.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The program of this name on the PATH.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.is_file())
}

/// Whether a program of this name is on the PATH.
pub(crate) fn is_on_path(program: &str) -> bool {
    on_path(program).is_some()
}

/// Ensures that `program` is installed; installs Debian's `package` if apt and the permissions are available.
pub(crate) fn require(program: &str, package: &str) -> Result<(), String> {
    if is_on_path(program) {
        return Ok(());
    }
    if is_on_path("apt-get") {
        eprintln!("xtask: `{program}` is missing; installing Debian's package `{package}`");
        // The package lists of a fresh machine may be empty or old; if the update fails, the installation reports
        // it.
        let _ = Command::new("apt-get").args(["update", "-qq"]).status();
        let installed = Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status();
        if installed.is_ok_and(|status| status.success()) && is_on_path(program) {
            return Ok(());
        }
    }
    Err(format!("`{program}` is missing: install it (Debian's package is `{package}`) and run this again"))
}

/// Unpacks Debian's `package` into a folder: installing a package with a service would start it.
pub(crate) fn unpack(package: &str, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let download = || Command::new("apt-get").args(["download", "-qq", package]).current_dir(folder).status();
    if !download().is_ok_and(|status| status.success()) {
        // The package lists of a fresh machine may be empty or old.
        let _ = Command::new("apt-get").args(["update", "-qq"]).status();
        if !download().is_ok_and(|status| status.success()) {
            return Err(format!("`apt-get download {package}` failed"));
        }
    }
    let files = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = files.filter_map(|entry| Some(entry.ok()?.path()));
    let file = paths.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let file = file.ok_or_else(|| format!("no package came of `apt-get download {package}`"))?;
    run_with(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(folder))?;
    std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Runs a command in the workspace's root, passing its output through.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    run_with(Command::new(program).args(arguments))
}

/// Runs a prepared command in the workspace's root; an exit status other than 0 is an error that repeats the
/// command.
pub(crate) fn run_with(command: &mut Command) -> Result<(), String> {
    command.current_dir(root());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}` ended with {status}", line(command))),
        Err(error) => Err(format!("cannot start `{}`: {error}", line(command))),
    }
}

fn line(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(command.get_program().to_string_lossy().into_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
