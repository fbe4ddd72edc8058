//! The programs that cargo calls for a build of tests: a compiler that checks the lints too, and a documenter that checks the
//! documentation too.
//!
//! `cargo clippy` and `cargo doc` would first read all libraries once more, to know their types. Here both use the libraries that the
//! tests are linked with.
//!
//! - **The compiler** (`RUSTC_WORKSPACE_WRAPPER`, The Cargo Book, "Environment variables") is called for the packages of the workspace.
//!   It runs clippy's driver, for which a warning is an error, and then rustc. The driver could also compile, but it neither optimises
//!   nor checks for null and misaligned pointers. A change of `clippy.toml` alone makes cargo build nothing: it takes effect in the next
//!   build from nothing.
//! - It does not optimise the own code of test programs and examples. A profile applies to a package as a whole, so the tests of a
//!   package whose library is optimised would be optimised too. That took a third of the time of the test build, and made few tests
//!   faster: the test program of `store` took 63 s to build instead of 12 s, and runs for 137 s either way.
//! - **The documenter** (`RUSTDOC`) makes a library's documentation before it runs the examples in it. Programs have neither.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::tools;

/// Is set for builds of tests: this program is called as compiler or documenter.
const VARIABLE: &str = "SAPSAN_COMPILES_TESTS";
/// The folder of the documentation in the target folder, the same as that of `cargo doc`.
const DOCUMENTATION: &str = "doc";

/// Makes a command of cargo use these programs.
pub(crate) fn use_in(cargo: &mut Command) -> Result<&mut Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    Ok(cargo.env(VARIABLE, "1").env("RUSTC_WORKSPACE_WRAPPER", &program).env("RUSTDOC", &program))
}

/// If cargo calls this program as compiler or documenter: its status. rustc or rustdoc may take the place of this process.
pub(crate) fn become_compiler() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // As a compiler it is called with the path of rustc.
    let is_compiler = arguments.first().is_some_and(|first| Path::new(first).file_stem() == Some(OsStr::new("rustc")));
    let outcome = if is_compiler { compile(&arguments) } else { document(&arguments) };
    Some(outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    }))
}

/// Checks the lints, then compiles.
fn compile(arguments: &[OsString]) -> Result<ExitCode, String> {
    // Without this option cargo asks for rustc's version or the target's properties.
    if has(arguments, "--out-dir") {
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        if !succeeds(Command::new("clippy-driver").args(linting(arguments, folder.path())))? {
            return Ok(ExitCode::FAILURE);
        }
    }
    // Of several levels of optimisation the last counts.
    let unoptimised: &[&str] = if is_optimised(arguments) { &[] } else { &["-C", "opt-level=0"] };
    // The warnings are known already.
    become_program(Command::new(&arguments[0]).args(&arguments[1..]).args(unoptimised).args(["--cap-lints", "allow"]))
}

/// Runs rustdoc with these arguments. If they run the examples of a library, its documentation is made first.
fn document(arguments: &[OsString]) -> Result<ExitCode, String> {
    if has(arguments, "--test") && !succeeds(Command::new("rustdoc").args(documenting(arguments)))? {
        return Ok(ExitCode::FAILURE);
    }
    become_program(Command::new("rustdoc").args(arguments))
}

fn has(arguments: &[OsString], option: &str) -> bool {
    arguments.iter().any(|argument| argument == option)
}

fn succeeds(program: &mut Command) -> Result<bool, String> {
    program.status().map(|status| status.success()).map_err(|error| not_started(program, &error))
}

/// Returns only if the program does not start.
fn become_program(program: &mut Command) -> Result<ExitCode, String> {
    let error = program.exec();
    Err(not_started(program, &error))
}

fn not_started(program: &Command, error: &std::io::Error) -> String {
    format!("{} does not start: {error}", program.get_program().display())
}

/// The arguments of clippy's driver, which writes to a folder of its own: only what rustc has made may be linked, and only that may be
/// reported to cargo as made.
fn linting(arguments: &[OsString], folder: &Path) -> Vec<OsString> {
    let mut linting = Vec::with_capacity(arguments.len() + 4);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--out-dir" {
            rest.next();
        } else if text.starts_with("--json=") {
            linting.push(text.replace(",artifacts", "").into());
        } else if let Some(folder) = text.strip_prefix("incremental=") {
            // What rustc keeps there for its next run, a compiler with other options would discard.
            linting.push(format!("incremental={folder}-lints").into());
        } else if !text.starts_with("--emit=") {
            linting.push(argument.clone());
        }
    }
    linting.extend(["--emit=metadata", "--out-dir"].map(OsString::from));
    linting.push(folder.into());
    linting.extend(["-D", "warnings"].map(OsString::from));
    linting
}

/// Whether these arguments compile a library or a program that is no test and no example.
fn is_optimised(arguments: &[OsString]) -> bool {
    let is_example =
        |argument: &OsString| Path::new(argument).parent().is_some_and(|folder| folder.ends_with("examples"));
    !has(arguments, "--test") && !arguments.iter().any(is_example)
}

/// The arguments that make the documentation of a library whose examples are run with these arguments. Private items are documented
/// too, so links to them are valid.
fn documenting(arguments: &[OsString]) -> Vec<OsString> {
    let mut documenting = Vec::with_capacity(arguments.len() + 7);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--test") => {}
            Some("--test-run-directory" | "--test-args") => drop(rest.next()),
            _ => documenting.push(argument.clone()),
        }
    }
    let checked = ["--document-private-items", "-D", "warnings", "-A", "rustdoc::private-intra-doc-links", "-o"];
    documenting.extend(checked.map(OsString::from));
    documenting.push(tools::target().join(DOCUMENTATION).into());
    documenting
}

#[cfg(test)]
mod tests {
    use super::{documenting, is_optimised, linting};
    use std::ffi::OsString;
    use std::path::Path;

    fn list(arguments: &str) -> Vec<OsString> {
        arguments.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn lints_leave_nothing_that_may_be_linked_and_tell_cargo_of_nothing_made() {
        let compiling = "rustc --crate-name store src/lib.rs --json=diagnostic-rendered-ansi,artifacts,future-incompat \
                         --emit=dep-info,metadata,link -C incremental=/target/kept --out-dir /target/deps --cfg x";
        let checking = "rustc --crate-name store src/lib.rs --json=diagnostic-rendered-ansi,future-incompat \
                        -C incremental=/target/kept-lints --cfg x --emit=metadata --out-dir /checked -D warnings";
        assert_eq!(linting(&list(compiling), Path::new("/checked")), list(checking));
    }

    #[test]
    fn only_libraries_and_programs_are_optimised() {
        assert!(!is_optimised(&list("rustc --crate-name suite tests/suite.rs -C opt-level=1 --test")));
        assert!(!is_optimised(&list("rustc --crate-name load crates/loadtest/examples/load.rs -C opt-level=1")));
        assert!(is_optimised(&list("rustc --crate-name store crates/store/src/lib.rs -C opt-level=1")));
    }

    #[test]
    fn the_documentation_is_made_with_the_arguments_of_its_examples() {
        let examples = "--test src/lib.rs --test-run-directory /p --crate-name store -L dependency=d";
        let made = documenting(&list(examples));
        assert_eq!(made[..5], list("src/lib.rs --crate-name store -L dependency=d"));
    }
}
