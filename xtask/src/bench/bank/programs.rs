//! The programs of the other side: found, never installed.

use crate::{nginx, redis, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian keeps the programs of services, which is on the PATH of its administrator only.
const SERVICES: &str = "/usr/sbin";
/// The source of our Go application, in the workspace.
const SOURCE: &str = "bench/peers/bank-stack";

/// Where the programs are.
pub(super) struct Programs {
    pub(super) nginx: PathBuf,
    pub(super) mariadbd: PathBuf,
    pub(super) redis: PathBuf,
}

impl Programs {
    /// Finds all programs, or returns an error that names each missing one. `go` is needed only if the application `is_built`.
    pub(super) fn find(is_built: bool) -> Result<Programs, String> {
        let nginx = nginx::found().or_else(|| service("nginx"));
        let mariadbd = tools::on_path("mariadbd").or_else(|| service("mariadbd"));
        let redis = redis::program().ok();
        let missing = [
            (nginx.is_none(), "`nginx` (Debian's package `nginx`)"),
            (mariadbd.is_none(), "`mariadbd` (Debian's package `mariadb-server-core`, which starts no service)"),
            (redis.is_none(), "`redis-server` (`cargo xtask redis`, or Debian's package `redis-server`)"),
            (is_built && !tools::is_on_path("go"), "`go`, 1.26 or later (https://go.dev/dl)"),
            (!tools::is_on_path("python3"), "`python3` (Debian's package `python3`)"),
            (!tools::is_on_path("taskset"), "`taskset` (Debian's package `util-linux`)"),
        ];
        match (nginx, mariadbd, redis, missing_text(&missing)) {
            (Some(nginx), Some(mariadbd), Some(redis), None) => Ok(Programs { nginx, mariadbd, redis }),
            (.., text) => Err(text.unwrap_or_default()),
        }
    }

    /// Builds our Go application in a folder. Go fetches the modules that it lacks, in the versions of `go.sum`.
    pub(super) fn build_application(&self, folder: &Path) -> Result<PathBuf, String> {
        let program = folder.join("bank-stack");
        let mut command = Command::new("go");
        command.arg("-C").arg(tools::root().join(SOURCE)).args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
        tools::run_with(&mut command)?;
        Ok(program)
    }
}

fn service(name: &str) -> Option<PathBuf> {
    let program = Path::new(SERVICES).join(name);
    program.is_file().then_some(program)
}

/// What is missing and where to get it; nothing if all is there.
fn missing_text(programs: &[(bool, &str)]) -> Option<String> {
    let missing: Vec<&str> = programs.iter().filter(|(is_missing, _)| *is_missing).map(|(_, name)| *name).collect();
    (!missing.is_empty()).then(|| format!("missing: {}; install them and run this again", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_program_is_named_with_its_package() {
        let programs = [(true, "`nginx` (a package)"), (false, "`go`"), (true, "`mariadbd` (another)")];
        let text = missing_text(&programs).unwrap();
        assert_eq!(text, "missing: `nginx` (a package), `mariadbd` (another); install them and run this again");
        assert_eq!(missing_text(&[(false, "`go`")]), None);
    }
}
