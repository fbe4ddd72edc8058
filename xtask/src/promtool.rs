//! `cargo xtask promtool`: Prometheus's checker of metrics and expressions, for the tests, in `target/promtool`.
//!
//! It is unpacked from Debian's package: installing the package would start a Prometheus on the machine.

use crate::tools;

/// Debian's package.
const PACKAGE: &str = "prometheus";

/// Unpacks promtool, unless it is installed.
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
    tools::unpack(PACKAGE, &folder)
}
