//! `cargo xtask bench client`: the Redis client compared with a bare write/read loop, hiredis and redis-rs, in one
//! run.
//!
//! The program is part of the workspace `bench/peers`. The server has one core, all clients the other.

use super::setup::process::{Server, free_address};
use super::setup::results::record;
use super::{Cores, Effort, store};
use crate::{redis, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The header's path once the package is installed.
const HIREDIS_HEADER: &str = "/usr/include/hiredis/hiredis.h";
const HIREDIS_PACKAGE: &str = "libhiredis-dev";

pub(super) fn run(effort: Effort) -> Result<(), String> {
    tools::require("taskset", "util-linux")?;
    tools::require("cc", "build-essential")?;
    redis::install(&[])?;
    let manifest = "bench/peers/Cargo.toml";
    let build = ["build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--package", "clients"];
    tools::run("cargo", &build)?;
    let hiredis = build_hiredis()?;
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let cores = Cores::of_machine();
    let server = serve(folder.path(), first(&cores.server))?;
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", first(&cores.load)]).arg(tools::root().join("bench/peers/target/release/clients"));
    command.args(["--port", &server.address.port().to_string()]).arg("--hiredis").arg(&hiredis);
    if !effort.record {
        command.arg("--quick");
    }
    let rows = store::rows_of(&mut command)?;
    if effort.record { record("cargo xtask bench client", &rows) } else { Ok(()) }
}

/// One core, for a server or a client with one thread.
fn first(cores: &str) -> &str {
    cores.split(',').next().unwrap_or_default()
}

fn build_hiredis() -> Result<PathBuf, String> {
    if !Path::new(HIREDIS_HEADER).is_file() {
        let install = ["install", "-y", "-qq", "--no-install-recommends", HIREDIS_PACKAGE];
        tools::run_with(Command::new("apt-get").args(install).env("DEBIAN_FRONTEND", "noninteractive"))
            .map_err(|error| format!("hiredis is missing: install Debian's package `{HIREDIS_PACKAGE}` ({error})"))?;
    }
    let program = tools::root().join("bench/peers/target/release/hiredis");
    let source = tools::root().join("bench/peers/clients/hiredis.c");
    tools::run_with(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).arg("-lhiredis"))?;
    Ok(program)
}

/// A server without persistence.
fn serve(folder: &Path, core: &str) -> Result<Server, String> {
    let address = free_address()?;
    let (port, folder) = (address.port().to_string(), folder.display().to_string());
    let arguments = ["--port", &port, "--bind", "127.0.0.1", "--dir", &folder, "--save", "", "--appendonly", "no"];
    Server::start(core, &redis::program()?, &arguments.map(str::to_owned), address)
}
