//! `cargo xtask browser`: the browser for the test of pages of other origins, Debian's Chromium.

use crate::tools;

/// Installs it, unless it is installed.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    tools::require("chromium", "chromium")
}
