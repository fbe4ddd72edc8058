//! `cargo xtask openapi`: the programs for the tests of OpenAPI documents, in `target/openapi-validator` (Python),
//! `target/openapi-linters` (Node.js) and `target/openapi-generators` (Go, Python, Node.js).

use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The validator, in pip's syntax.
const VALIDATOR: &str = "openapi-spec-validator==0.9.0";
/// The linters, in npm's syntax.
const LINTERS: [&str; 2] = ["@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3"];
/// The generator of clients in Go, the library that its code needs, and the file that makes Go copy the library.
const GO_GENERATOR: &str = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2";
const GO_LIBRARY: &str = "github.com/oapi-codegen/runtime@v1.9.0";
const GO_FILE: &str = "package client\n\nimport _ \"github.com/oapi-codegen/runtime\"\n";
/// The generator of clients in Python, in pip's syntax. Its code needs the libraries that it needs itself.
const PYTHON_GENERATOR: &str = "openapi-python-client==0.29.1";
/// The generator of clients in TypeScript, and the compiler, in npm's syntax.
const TYPESCRIPT: [&str; 2] = ["openapi-typescript@7.13.0", "typescript@5.9.3"];

/// Installs the missing programs. A failure is reported at the end and does not stop the others.
pub(crate) fn install(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let failed: Vec<String> =
        [install_validator(), install_linters(), install_go(), install_python(), install_typescript()]
            .into_iter()
            .filter_map(Result::err)
            .collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn install_validator() -> Result<(), String> {
    install_by_pip(&tools::target().join("openapi-validator"), "openapi-spec-validator", VALIDATOR)
}

fn install_linters() -> Result<(), String> {
    install_by_npm(&tools::target().join("openapi-linters"), ["redocly", "spectral"], LINTERS)
}

fn install_python() -> Result<(), String> {
    install_by_pip(&generators().join("python"), "openapi-python-client", PYTHON_GENERATOR)
}

fn install_typescript() -> Result<(), String> {
    install_by_npm(&generators().join("typescript"), ["openapi-typescript", "tsc"], TYPESCRIPT)
}

fn generators() -> PathBuf {
    tools::target().join("openapi-generators")
}

/// The generator, and a module with a copy of the library: a client is compiled in it without the network.
fn install_go() -> Result<(), String> {
    let folder = generators().join("go");
    if folder.join("vendor").is_dir() && folder.join("bin/oapi-codegen").is_file() {
        return Ok(());
    }
    if !tools::is_on_path("go") {
        return Err("`go` is missing: install Go from 1.24 on for the generator of clients".to_owned());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    tools::run_with(Command::new("go").args(["install", GO_GENERATOR]).env("GOBIN", folder.join("bin")))?;
    std::fs::write(folder.join("go.mod"), "module client\n\ngo 1.24\n").map_err(failed)?;
    std::fs::write(folder.join("library.go"), GO_FILE).map_err(failed)?;
    for arguments in [&["get", GO_LIBRARY][..], &["mod", "tidy"], &["mod", "vendor"]] {
        tools::run_with(Command::new("go").arg("-C").arg(&folder).args(arguments))?;
    }
    Ok(())
}

/// Installs a package into a Python environment of its own, unless the program is there.
fn install_by_pip(folder: &Path, program: &str, package: &str) -> Result<(), String> {
    if folder.join("bin").join(program).is_file() {
        return Ok(());
    }
    tools::require("python3", "python3-venv")?;
    tools::run_with(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    tools::run_with(Command::new(folder.join("bin/pip")).args(["install", "--quiet", package]))
}

/// Installs packages of Node.js into a folder, unless the programs are there.
fn install_by_npm(folder: &Path, programs: [&str; 2], packages: [&str; 2]) -> Result<(), String> {
    if programs.iter().all(|name| folder.join("node_modules/.bin").join(name).exists()) {
        return Ok(());
    }
    // Not installed here: Debian's npm depends on hundreds of packages.
    if !tools::is_on_path("npm") {
        return Err(format!("`npm` is missing: install Node.js from 20.19 on for {}", programs.join(" and ")));
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    tools::run_with(Command::new("npm").arg("install").arg("--prefix").arg(folder).args(quiet).args(packages))
}
