//! `cargo xtask redis`: a redis-server for the tests of the client, in `target/redis`.
//!
//! Debian's package `redis-server` would start a server on the machine. Its program lies in `redis-tools`, under the name of
//! the checker of dumps: the name by which it is called decides what it does.

use crate::tools;
use std::path::PathBuf;

const SERVER: &str = "redis-server";
/// The program of all names, and its package.
const CHECKER: &str = "redis-check-rdb";
const PACKAGE: &str = "redis-tools";

/// Makes sure of a redis-server, unless there is one.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    if program().is_ok() {
        return Ok(());
    }
    tools::require(CHECKER, PACKAGE)?;
    let program = on_path(CHECKER).ok_or_else(|| format!("`{CHECKER}` is missing"))?;
    let folder = tools::target().join("redis");
    let server = folder.join(SERVER);
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::os::unix::fs::symlink(&program, &server))
        .map_err(|error| format!("{}: {error}", server.display()))
}

/// The server's program, after [`install`].
pub(crate) fn program() -> Result<PathBuf, String> {
    let linked = tools::target().join("redis").join(SERVER);
    let program = on_path(SERVER).or_else(|| linked.is_file().then_some(linked));
    program.ok_or_else(|| format!("`{SERVER}` is missing (cargo xtask redis installs it)"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.is_file())
}
