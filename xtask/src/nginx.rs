//! The nginx that `cargo xtask bench tls` compares with, in `target/nginx`.
//!
//! It is taken out of Debian's package: to install that would start an nginx on the machine.

use crate::tools;
use std::path::PathBuf;
use std::process::Command;

/// Debian's package, and where it has the program.
const PACKAGE: &str = "nginx";
const PLACE: &str = "usr/sbin/nginx";
/// The libraries that a small Debian may lack.
const LIBRARIES: [&str; 2] = ["libpcre2-8-0", "libssl3"];

/// The program; it is unpacked where there is none.
pub(crate) fn program() -> Result<PathBuf, String> {
    if let Some(program) = tools::on_path("nginx") {
        return Ok(program);
    }
    let folder = tools::target().join("nginx");
    let program = folder.join(PLACE);
    let runs = || Command::new(&program).arg("-v").output().is_ok_and(|output| output.status.success());
    if runs() {
        return Ok(program);
    }
    if !tools::is_on_path("apt-get") {
        return Err(format!("`nginx` is missing: install it (Debian's package is `{PACKAGE}`)"));
    }
    tools::unpack(PACKAGE, &folder)?;
    for library in LIBRARIES.iter().filter(|_| !runs()) {
        tools::run("apt-get", &["install", "-y", "-qq", "--no-install-recommends", library])?;
    }
    if runs() { Ok(program) } else { Err(format!("`{}` does not run", program.display())) }
}
