//! The compiler of test programs: rustc, but a test program's own code is not optimised.
//!
//! A profile applies to a package as a whole, so the tests of a package whose library is optimised would be optimised too. That took a
//! third of the time of the test build, and made few tests faster: of `store`, 63 s instead of 12 s for a program that runs 137 s either
//! way.
//! Cargo calls this program instead of rustc for the packages of the workspace (`RUSTC_WORKSPACE_WRAPPER`, The Cargo Book,
//! "Environment variables").

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Is set for builds of tests: this program is called as a compiler.
const VARIABLE: &str = "SAPSAN_COMPILES_TESTS";

/// Makes a command of cargo use this compiler.
pub(crate) fn use_in(cargo: &mut Command) -> Result<&mut Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    Ok(cargo.env(VARIABLE, "1").env("RUSTC_WORKSPACE_WRAPPER", program))
}

/// If cargo calls this program as a compiler, rustc takes the place of this process. Returns `None` if cargo does not, and a status if
/// rustc does not start.
pub(crate) fn become_compiler() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    let mut arguments = std::env::args_os().skip(1);
    let mut rustc = Command::new(arguments.next()?);
    let arguments: Vec<OsString> = arguments.collect();
    let error = rustc.args(&arguments).args(added(&arguments)).exec();
    eprintln!("xtask: {} does not start: {error}", rustc.get_program().display());
    Some(ExitCode::FAILURE)
}

/// What follows cargo's arguments. Of several levels of optimisation the last counts.
fn added(arguments: &[OsString]) -> &'static [&'static str] {
    if arguments.iter().any(|argument| argument == "--test") { &["-C", "opt-level=0"] } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::added;
    use std::ffi::OsString;

    #[test]
    fn only_test_programs_are_not_optimised() {
        let of = |arguments: &str| added(&arguments.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("--crate-name suite tests/suite.rs -C opt-level=1 --test"), ["-C", "opt-level=0"]);
        assert!(of("--crate-name store src/lib.rs -C opt-level=1").is_empty());
    }
}
