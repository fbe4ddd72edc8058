//! `cargo xtask test`: all checks that a change must pass. Its last line counts the tests.

use crate::tally::{Tally, run_programs, step};
use crate::{browser, openapi, promtool, quick, redis, redis_clients, sources, test_compiler, tools};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// `cargo xtask test [--setup | --quick [REVISION]]`
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => run_all(false),
        [option] if option == "--setup" => run_all(true),
        [option] if option == "--quick" => quick::run("HEAD"),
        [option, revision] if option == "--quick" => quick::run(revision),
        _ => Err(format!("takes nothing, --setup, or --quick [REVISION], got `{}`", arguments.join(" "))),
    }
}

/// Checks the format and the sources, builds all tests and with them checks the lints, runs them, and makes the documentation and runs
/// its examples. With `setup` it installs what is missing; without, it installs nothing, and tests whose checker is missing are skipped.
fn run_all(setup: bool) -> Result<(), String> {
    // mimalloc, and SQLite as the oracle, are C code compiled by the build.
    if setup {
        tools::require("cc", "build-essential")?;
    } else if !tools::is_on_path("cc") {
        return Err(
            "a C compiler is missing: install one (Debian's package is `build-essential`), or run this with --setup"
                .to_owned(),
        );
    }
    step("format", || tools::run("cargo", &["fmt", "--all", "--check"]))?;
    step("sources", sources::check)?;
    if !setup {
        println!(
            "== nothing is installed without --setup; a test whose checker is missing says so and counts as skipped"
        );
    }
    // Downloads keep no core busy, so the first libraries are compiled meanwhile.
    let prepare = || {
        if setup {
            install_checkers();
        }
    };
    let mut tally = Tally::default();
    let outcome = step("lints and tests", || run_programs(&mut tally, &["--workspace"], prepare))
        .and(step("schedules of the store", || count(&mut tally, &SCHEDULES)))
        .and(step("documentation and its examples", || count(&mut tally, &DOCUMENTATION)))
        .and_then(|()| if tally.passed > 0 { Ok(()) } else { Err("no test was run".to_string()) });
    println!("{}", tally.summary());
    outcome
}

/// Installs a checker, unless it is installed.
type Install = fn(&[String]) -> Result<(), String>;

/// Installs the programs that some tests need, one after the other. Without them these tests are skipped with a message.
fn install_checkers() {
    let checkers: [(_, Install); 5] = [
        ("checkers of OpenAPI", openapi::install),
        ("promtool", promtool::install),
        ("browser", browser::install),
        ("redis-server", redis::install),
        ("clients of Redis", redis_clients::install_cheap),
    ];
    for (name, install) in checkers {
        let started = Instant::now();
        match install(&[]) {
            Ok(()) => println!("== {name}: there, {:.0} s beside the build", started.elapsed().as_secs_f64()),
            Err(why) => println!("== {name}: not installed: {why}"),
        }
    }
}

/// Whole engines under the scheduler under test. The store is built once more for it.
const SCHEDULES: [&str; 6] = ["--package", "store", "--features", "schedules", "--test", "schedules"];
/// The examples in the documentation of all libraries, which is made before they run.
const DOCUMENTATION: [&str; 3] = ["--workspace", "--no-fail-fast", "--doc"];

/// Builds and runs the tests that cargo selects by these arguments, and counts them.
fn count(tally: &mut Tally, targets: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked"]).args(targets);
    // With the compiler of the test programs, the libraries are not built again; the documenter makes the documentation.
    let mut child = test_compiler::use_in(&mut cargo)?
        .current_dir(tools::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let output = child.stdout.take().ok_or("cargo gave no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading the tests' output: {error}"))?;
        println!("{line}");
        tally.add(&line);
    }
    let status = child.wait().map_err(|error| format!("waiting for cargo: {error}"))?;
    if !status.success() {
        tally.failed = tally.failed.max(1);
        return Err(format!("the tests of `{}` ended with {status}", targets.join(" ")));
    }
    Ok(())
}

#[cfg(test)]
mod files_of_tests {
    use crate::tools;
    use std::fs;
    use std::path::Path;

    /// Test files that belong to no program. If `suite.rs` collects them, cargo does not discover any, and it never looks into a
    /// folder `suite`, whose table of contents is `main.rs`.
    fn orphans(tests: &Path) -> Vec<String> {
        let suite = tests.join("suite");
        let mut orphans = Vec::new();
        if let Ok(contents) = fs::read_to_string(tests.join("suite.rs")) {
            let manifest = fs::read_to_string(tests.with_file_name("Cargo.toml")).expect("a manifest");
            let is_program = |name: &str| name == "suite" || manifest.contains(&format!("\"{name}\""));
            orphans.extend(unnamed(tests, &contents).into_iter().filter(|name| !is_program(name)));
        }
        if let Ok(contents) = fs::read_to_string(suite.join("main.rs")) {
            orphans.extend(unnamed(&suite, &contents).into_iter().filter(|name| name != "main"));
        }
        orphans.iter().map(|name| format!("{}: {name}.rs", tests.display())).collect()
    }

    /// Files of a folder, without their extension, that are not a module in this table of contents.
    fn unnamed(folder: &Path, contents: &str) -> Vec<String> {
        let names = fs::read_dir(folder)
            .expect("a folder")
            .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".rs")?.to_owned()));
        names.filter(|name| !contents.contains(&format!("\nmod {name};"))).collect()
    }

    /// Places in this folder's files where a test reports by a printing macro that it is skipped.
    fn unheard_skips(folder: &Path, found: &mut Vec<String>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                unheard_skips(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("a text");
                let says = |line: &&str| line.contains("println!(\"") && line.to_ascii_lowercase().contains("skipped");
                found.extend(text.lines().filter(says).map(|line| format!("{}: {}", path.display(), line.trim())));
            }
        }
    }

    /// libtest captures the output of `println!` and `eprintln!` in a passing test: such a skip would count as passed.
    #[test]
    fn skipped_tests_say_so_where_the_closing_line_counts_them() {
        let mut found = Vec::new();
        for entry in fs::read_dir(tools::root().join("crates")).expect("a folder") {
            unheard_skips(&entry.expect("an entry").path().join("tests"), &mut found);
        }
        assert!(found.is_empty(), "to be written to standard output itself: {found:#?}");
    }

    #[test]
    fn every_file_of_tests_is_part_of_a_program() {
        let crates = fs::read_dir(tools::root().join("crates")).expect("a folder");
        let folders: Vec<_> = crates.map(|entry| entry.expect("an entry").path().join("tests")).collect();
        assert!(folders.iter().any(|folder| folder.join("suite.rs").is_file()));
        let orphans: Vec<String> = folders.iter().flat_map(|folder| orphans(folder)).collect();
        assert!(orphans.is_empty(), "named neither in suite.rs (or suite/main.rs) nor in Cargo.toml: {orphans:?}");
    }
}
