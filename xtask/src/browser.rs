//! `cargo xtask browser`: the browser in which the test of pages of other origins runs, Debian's Chromium.

use crate::tools;

/// Installs it, unless it is there.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    tools::require("chromium", "chromium")
}
