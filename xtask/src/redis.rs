//! `cargo xtask redis`: a redis-server for the tests of client and proxy, and the nutcracker with which the proxy is compared, in
//! `target/redis`.
//!
//! Debian's packages of both would start a service on the machine. The program of `redis-server` is also in `redis-tools`, under
//! the name of the dump checker: the program's behaviour depends on the name by which it is called. nutcracker is unpacked from
//! its package.

use crate::tools;
use std::path::PathBuf;
use std::process::Command;

const SERVER: &str = "redis-server";
/// The program under another name, and its package.
const CHECKER: &str = "redis-check-rdb";
const PACKAGE: &str = "redis-tools";

/// The proxy of twitter/twemproxy, its path in its package, and the library that it needs.
const NUTCRACKER: &str = "nutcracker";
const NUTCRACKER_PLACE: &str = "usr/sbin/nutcracker";
const NUTCRACKER_LIBRARY: &str = "libyaml-0-2";

/// Installs redis-server and nutcracker, unless they are installed.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let outcomes = [install_server(), install_nutcracker()];
    let failed: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn install_nutcracker() -> Result<(), String> {
    let folder = tools::target().join("redis");
    let program = folder.join(NUTCRACKER_PLACE);
    if tools::is_on_path(NUTCRACKER) || program.is_file() {
        return Ok(());
    }
    if !tools::is_on_path("apt-get") {
        return Err(format!("`{NUTCRACKER}` is missing: install it (Debian's package has the same name)"));
    }
    tools::unpack(NUTCRACKER, &folder)?;
    let runs = || Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !runs() {
        tools::run("apt-get", &["install", "-y", "-qq", "--no-install-recommends", NUTCRACKER_LIBRARY])?;
    }
    if runs() { Ok(()) } else { Err(format!("`{}` does not run", program.display())) }
}

fn install_server() -> Result<(), String> {
    if program().is_ok() {
        return Ok(());
    }
    tools::require(CHECKER, PACKAGE)?;
    let program = tools::on_path(CHECKER).ok_or_else(|| format!("`{CHECKER}` is missing"))?;
    let folder = tools::target().join("redis");
    let server = folder.join(SERVER);
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::os::unix::fs::symlink(&program, &server))
        .map_err(|error| format!("{}: {error}", server.display()))
}

/// nutcracker's program, after [`install`].
pub(crate) fn nutcracker() -> Result<PathBuf, String> {
    let unpacked = tools::target().join("redis").join(NUTCRACKER_PLACE);
    let program = tools::on_path(NUTCRACKER).or_else(|| unpacked.is_file().then_some(unpacked));
    program.ok_or_else(|| format!("`{NUTCRACKER}` is missing (cargo xtask redis installs it)"))
}

/// The server's program, after [`install`].
pub(crate) fn program() -> Result<PathBuf, String> {
    let linked = tools::target().join("redis").join(SERVER);
    let program = tools::on_path(SERVER).or_else(|| linked.is_file().then_some(linked));
    program.ok_or_else(|| format!("`{SERVER}` is missing (cargo xtask redis installs it)"))
}
