//! `cargo xtask promtool`: Prometheus's own checker of metrics and expressions for the tests, in `target/promtool`.
//!
//! It is taken out of Debian's package: to install that would start a Prometheus on the machine.

use crate::tools;
use std::process::Command;

/// Debian's package.
const PACKAGE: &str = "prometheus";

/// Unpacks promtool, unless there is one.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let folder = tools::target().join("promtool");
    if tools::is_on_path("promtool") || folder.join("usr/bin/promtool").is_file() {
        return Ok(());
    }
    if !tools::is_on_path("apt-get") {
        return Err("`promtool` is missing: install it (Debian's package is `prometheus`)".to_owned());
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let download = || Command::new("apt-get").args(["download", "-qq", PACKAGE]).current_dir(&folder).status();
    if !download().is_ok_and(|status| status.success()) {
        // The package lists of a fresh machine may be empty or old.
        let _ = Command::new("apt-get").args(["update", "-qq"]).status();
        if !download().is_ok_and(|status| status.success()) {
            return Err(format!("`apt-get download {PACKAGE}` failed"));
        }
    }
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let package = files.filter_map(|entry| Some(entry.ok()?.path()));
    let package = package.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = package.ok_or_else(|| format!("no package came of `apt-get download {PACKAGE}`"))?;
    tools::run_with(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&folder))?;
    std::fs::remove_file(&package).map_err(|error| format!("{}: {error}", package.display()))
}
