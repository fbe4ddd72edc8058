//! `cargo xtask bench json`: binary JSON compared with `serde_json`, both in one program and one run.
//!
//! The program is an example of `binjson`: it depends on no other crate of the project, and `serde_json` is a dependency
//! of its tests.

use super::results::record;
use super::{Cores, Effort, store};
use crate::tools;
use std::process::Command;

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let build = ["build", "--release", "--locked", "--quiet", "--package", "binjson", "--example", "beside_serde"];
    tools::run("cargo", &build)?;
    // Pinned to one core: the measured data must not move between caches.
    tools::require("taskset", "util-linux")?;
    let cores = Cores::of_machine().load;
    let core = cores.split(',').next().unwrap_or_default();
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(tools::root().join("target/release/examples/beside_serde"));
    if !effort.record {
        command.arg("--quick");
    }
    let rows = store::rows_of(&mut command)?;
    if effort.record { record("cargo xtask bench json", &rows) } else { Ok(()) }
}
