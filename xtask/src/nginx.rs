//! The nginx for comparison in `cargo xtask bench tls` and `bench web`, in `target/nginx`.
//!
//! It is unpacked from Debian's package: installing the package would start an nginx on the machine.

use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's package, and the program's path in it.
const PACKAGE: &str = "nginx";
const PLACE: &str = "usr/sbin/nginx";
/// The libraries that a minimal Debian may lack.
const LIBRARIES: [&str; 2] = ["libpcre2-8-0", "libssl3"];

/// The program, if it is installed or unpacked.
pub(crate) fn found() -> Option<PathBuf> {
    let unpacked = folder().join(PLACE);
    tools::on_path("nginx").or_else(|| runs(&unpacked).then_some(unpacked))
}

/// The program, which is unpacked if it is missing.
pub(crate) fn program() -> Result<PathBuf, String> {
    if let Some(program) = found() {
        return Ok(program);
    }
    let folder = folder();
    let program = folder.join(PLACE);
    if !tools::is_on_path("apt-get") {
        return Err(format!("`nginx` is missing: install it (Debian's package is `{PACKAGE}`)"));
    }
    tools::unpack(PACKAGE, &folder)?;
    for library in LIBRARIES.iter().filter(|_| !runs(&program)) {
        tools::run("apt-get", &["install", "-y", "-qq", "--no-install-recommends", library])?;
    }
    if runs(&program) { Ok(program) } else { Err(format!("`{}` does not run", program.display())) }
}

fn folder() -> PathBuf {
    tools::target().join("nginx")
}

fn runs(program: &Path) -> bool {
    Command::new(program).arg("-v").output().is_ok_and(|output| output.status.success())
}

/// Writes a configuration of one process with the cheapest settings for files: no log, open descriptors, persistent connections.
/// `http` and `server` are directives that a bench adds to these blocks. Returns nginx's arguments.
pub(crate) fn configure(folder: &Path, http: &str, server: &str) -> Result<Vec<String>, String> {
    let at = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {at}/nginx_{name};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {at}/nginx.pid;\nerror_log {at}/nginx.log crit;\n\
         events {{ worker_connections 12000; }}\n\
         http {{\n  access_log off;\n{temporary}  \
         open_file_cache max=16 inactive=1h;\n  open_file_cache_valid 1h;\n  \
         keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n  {http}\n  server {{\n    {server}\n  }}\n}}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let log = folder.join("nginx.log");
    Ok(["-e", &log.display().to_string(), "-c", &file.display().to_string()].map(str::to_owned).into())
}
