//! `cargo xtask bench json`: binary JSON compared with `serde_json`, both in one program and one run.
//!
//! The program is an example of `binjson`: it depends on no other crate of the project, and `serde_json` is a dependency
//! of its tests.

use super::setup::results::record;
use super::{Cores, Effort, store};
use crate::{dist, tools};
use std::process::Command;

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let programs = dist::build(&["--package", "binjson", "--example", "beside_serde"])?;
    // Pinned to one core: the measured data must not move between caches.
    tools::require("taskset", "util-linux")?;
    let cores = Cores::of_machine().load;
    let core = cores.split(',').next().unwrap_or_default();
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(programs.join("examples/beside_serde"));
    if !effort.record {
        command.arg("--quick");
    }
    let rows = store::rows_of(&mut command)?;
    if effort.record { record("cargo xtask bench json", &rows) } else { Ok(()) }
}
