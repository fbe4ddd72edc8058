//! Long campaigns: those of the store itself, and those with tools of the nightly toolchain. If a tool is missing, each reports
//! that instead of failing obscurely.

use crate::{schedules, tools, world_mutants};
use std::path::Path;
use std::process::Command;

/// The target triple for sanitizers: without an explicit one, build scripts and macros would be instrumented too.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Memory limit of a fuzz target in MB: a parser that exceeds it keeps input that it should refuse.
const FUZZ_MEMORY_MB: u32 = 2048;
/// Time limit for one input, in seconds of wall-clock time: on a busy machine a process may pause for some of them.
const FUZZ_INPUT_SECONDS: u32 = 60;
/// Cases of a property under Miri, which is about a hundred times slower than native code.
const MIRI_CASES: &str = "4";
/// Seconds after which a mutant hangs and counts as detected.
const MUTANT_SECONDS: &str = "300";
/// Tests of the store that Miri skips: it supports neither mapped files nor direct writes, so it cannot run tests on a real disk.
const MIRI_STORE_SKIPPED: &[&str] =
    &["disk::system", "disk::residency", "log::tests", "sort::sorter", "tree::verify_space"];
/// Integration tests of the store that Miri runs: whole stores on the disk in memory.
const MIRI_STORE_TESTS: &[&str] = &["memtable_model", "memtable_ranges", "memtable_readers", "published", "stress"];
/// Reports of races that are false, each with its reason.
const THREAD_SUPPRESSIONS: &str = "xtask/thread-sanitizer.supp";

fn require_nightly() -> Result<(), String> {
    if !tools::is_on_path("rustup") {
        return Err("rustup is missing, by which the nightly toolchain is found: https://rustup.rs".to_string());
    }
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    match listed {
        Ok(output) if String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with("nightly")) => Ok(()),
        _ => {
            Err("the nightly toolchain is missing: `rustup toolchain install nightly`, then run this again".to_string())
        }
    }
}

fn has_component(component: &str) -> bool {
    let listed = Command::new("rustup").args(["component", "list", "--toolchain", "nightly", "--installed"]).output();
    listed.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim().starts_with(component))
    })
}

fn require_component(component: &str, purpose: &str) -> Result<(), String> {
    require_nightly()?;
    if has_component(component) {
        return Ok(());
    }
    Err(format!(
        "the nightly component `{component}` is missing, {purpose}: `rustup component add --toolchain nightly \
         {component}`, then run this again"
    ))
}

/// Cargo of the nightly toolchain. Through rustup, because inside `cargo xtask` a plain `cargo` may be the pinned one.
fn nightly_cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments);
    command
}

/// `cargo xtask campaign NAME [ARGUMENT]…`: kills of the real binary, a siege of it, its whole world in one serial order, SQL
/// compared with SQLite, views through power failures, databases on faulty disks, the Redis proxy among failures, whole engines
/// under the scheduler under test, or a campaign of `crates/store/examples/campaign.rs`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [name, rest @ ..] if name == "kill" => kill(rest),
        [name, rest @ ..] if name == "siege" => siege(rest),
        [name, rest @ ..] if name == "sql" => sql(rest),
        [name, rest @ ..] if name == "views" => views(rest),
        [name, rest @ ..] if name == "docs-faults" => docs_faults(rest),
        [name, rest @ ..] if name == "proxy" => proxy(rest),
        [name, rest @ ..] if name == "schedules" => schedules::run(rest),
        [name, option, rest @ ..] if name == "world" && option == "--mutants" => world_mutants::run(rest),
        [name, rest @ ..] if name == "world" => world(rest),
        _ => store(arguments),
    }
}

/// `cargo xtask campaign kill [--times N] [--seed S]`
fn kill(arguments: &[String]) -> Result<(), String> {
    let test = "travels::kill::every_acknowledged_change_survives_hundreds_of_kills";
    let settings = [("--times", "SAPSAN_KILLS"), ("--seed", "SAPSAN_KILL_SEED")];
    ignored_tests(("sapsan", "suite", test), &settings, arguments)
}

/// `cargo xtask campaign siege [--seconds N]`: all attacks at once on the real binary together with honest clients; by default
/// for an hour, half of it at a small memory setting and half at the default. Release build, because times count.
fn siege(arguments: &[String]) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args(["test", "--release"]);
    let settings = [("--seconds", "SAPSAN_SIEGE_SECONDS")];
    ignored_tests_by(command, ("sapsan", "siege", "a_long_siege"), &settings, arguments)
}

/// `cargo xtask campaign sql [--queries N] [--seed S]`: random queries here and in SQLite, by default a million, and a tenth as
/// many writing statements.
fn sql(arguments: &[String]) -> Result<(), String> {
    let settings = [("--queries", "SAPSAN_SQL_QUERIES"), ("--seed", "SAPSAN_SQL_SEED")];
    ignored_tests(("docs", "suite", "random_"), &settings, arguments)
}

/// `cargo xtask campaign views [--seconds N] [--seed S]`: power failures during writes, builds and changed definitions of views.
fn views(arguments: &[String]) -> Result<(), String> {
    let settings = [("--seconds", "VIEWS_POWER_SECONDS"), ("--seed", "VIEWS_POWER_SEED")];
    ignored_tests(("docs", "suite", "views_power::"), &settings, arguments)
}

/// `cargo xtask campaign docs-faults [--count N] [--seed S] [--step K]`: each fault at each (or each Kth) operation of N
/// databases, from an empty disk and from the state after a kill.
fn docs_faults(arguments: &[String]) -> Result<(), String> {
    let settings = [("--count", "DOCS_FAULTS_COUNT"), ("--seed", "DOCS_FAULTS_SEED"), ("--step", "DOCS_FAULTS_STEP")];
    ignored_tests(("docs", "suite", "disk_faults::"), &settings, arguments)
}

/// `cargo xtask campaign proxy [--seconds N] [--seed S]`: clients and nodes of the Redis proxy that misbehave, by default for an hour.
fn proxy(arguments: &[String]) -> Result<(), String> {
    let settings = [("--seconds", "PROXY_CAMPAIGN_SECONDS"), ("--seed", "PROXY_CAMPAIGN_SEED")];
    ignored_tests(("proxy", "suite", "campaign::clients_and_nodes_that_misbehave_for_long"), &settings, arguments)
}

/// `cargo xtask campaign world [--seconds N] [--seed S]`: everything that happens to a data folder at once, in one serial order.
fn world(arguments: &[String]) -> Result<(), String> {
    let settings = [("--seconds", "SAPSAN_WORLD_SECONDS"), ("--seed", "SAPSAN_WORLD_SEED")];
    ignored_tests(("sapsan", "world", "every_operation_of_a_long_life"), &settings, arguments)
}

/// Runs the ignored tests of a package's program whose names begin with a prefix. Arguments are passed in environment variables
/// with these names.
fn ignored_tests(tests: (&str, &str, &str), settings: &[(&str, &str)], arguments: &[String]) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.arg("test");
    ignored_tests_by(command, tests, settings, arguments)
}

fn ignored_tests_by(
    mut command: Command,
    (package, program, names): (&str, &str, &str),
    settings: &[(&str, &str)],
    arguments: &[String],
) -> Result<(), String> {
    command.args(["--package", package, "--test", program, names, "--", "--ignored", "--nocapture"]);
    for pair in arguments.chunks(2) {
        let known = settings.iter().find(|(name, _)| pair[0] == *name).map(|(_, variable)| variable);
        let (Some(variable), [_, value]) = (known, pair) else {
            let allowed: Vec<&str> = settings.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "`{}` is not understood; allowed, each with a number: {}",
                pair.join(" "),
                allowed.join(", ")
            ));
        };
        command.env(variable, value);
    }
    tools::run_with(&mut command)
}

/// The campaigns of the store on simulated disks, in a release build.
fn store(arguments: &[String]) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "--package", "store", "--example", "campaign", "--"]);
    tools::run_with(command.args(arguments))
}

/// `cargo xtask fuzz [TARGET] [SECONDS]`
pub(crate) fn fuzz(arguments: &[String]) -> Result<(), String> {
    let targets = fuzz_targets()?;
    let seconds = arguments.get(1).map_or("60", String::as_str);
    if seconds.parse::<u32>().is_err() {
        return Err(format!("`{seconds}` is no number of seconds"));
    }
    let chosen = match arguments.first() {
        None => targets,
        Some(target) if targets.contains(target) => vec![target.clone()],
        Some(target) => return Err(format!("`{target}` is no target; there are: {}", targets.join(", "))),
    };
    require_nightly()?;
    if !tools::is_on_path("cargo-fuzz") {
        return Err("cargo-fuzz is missing: `cargo install cargo-fuzz`, then run this again".to_string());
    }
    for target in chosen {
        println!("== fuzz {target} for {seconds} s");
        fuzz_one(&target, seconds)?;
    }
    Ok(())
}

/// Runs one target from its seeds and from the corpus of earlier runs.
fn fuzz_one(target: &str, seconds: &str) -> Result<(), String> {
    let folder = tools::root().join("fuzz");
    let found = folder.join("corpus").join(target);
    std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
    let mut command = nightly_cargo(&["fuzz", "run", "--fuzz-dir", "fuzz", target]);
    command.arg(&found);
    // libFuzzer writes new inputs only to the first folder; the seeds stay unchanged.
    add_if_there(&mut command, "", &folder.join("seeds").join(target));
    command.args(["--", &format!("-max_total_time={seconds}"), &format!("-rss_limit_mb={FUZZ_MEMORY_MB}")]);
    command.args([&format!("-timeout={FUZZ_INPUT_SECONDS}"), "-max_len=8192"]);
    add_if_there(&mut command, "-dict=", &folder.join("dictionaries").join(format!("{target}.dict")));
    tools::run_with(&mut command)
}

fn add_if_there(command: &mut Command, option: &str, path: &Path) {
    if path.exists() {
        command.arg(format!("{option}{}", path.display()));
    }
}

/// The targets are the files of `fuzz/fuzz_targets`.
fn fuzz_targets() -> Result<Vec<String>, String> {
    let folder = tools::root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// `cargo xtask miri [CRATE]`
pub(crate) fn miri(arguments: &[String]) -> Result<(), String> {
    require_component("miri", "which is the interpreter")?;
    require_component("rust-src", "from which Miri builds the standard library")?;
    let package = arguments.first().map_or("store", String::as_str);
    let run = |chosen: &[&str], behind: &mut dyn Iterator<Item = String>| {
        tools::run_with(
            nightly_cargo(&["miri", "test", "--package", package])
                .args(chosen)
                .arg("--")
                .args(behind)
                .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                .env("PROPTEST_CASES", MIRI_CASES),
        )
    };
    if package != "store" {
        return run(&["--lib"], &mut std::iter::empty());
    }
    run(&["--lib"], &mut MIRI_STORE_SKIPPED.iter().flat_map(|skipped| ["--skip".to_string(), (*skipped).to_string()]))?;
    run(&["--test", "suite"], &mut MIRI_STORE_TESTS.iter().map(|file| format!("{file}::")))
}

/// `cargo xtask mutants [FILE] [TESTS]…`: the mutations of a file of the store that no test detects. Without a file it lists the
/// number of mutations of each file. With all tests a file takes hours: name the tests that are about it.
pub(crate) fn mutants(arguments: &[String]) -> Result<(), String> {
    if !tools::is_on_path("cargo-mutants") {
        return Err("cargo-mutants is missing: `cargo install cargo-mutants --locked`, then run this again".to_string());
    }
    let Some((file, tests)) = arguments.split_first() else {
        return tools::run("cargo", &["mutants", "--list-files", "--package", "store"]);
    };
    if !tools::root().join(file).is_file() {
        return Err(format!("`{file}` is no file of this workspace, as `crates/store/src/tree/state/space.rs` is"));
    }
    let output = tools::target().join("mutants");
    std::fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let mut command = Command::new("cargo");
    command.args(["mutants", "--package", "store", "--file", file, "--cap-lints", "true"]);
    // `cargo xtask test` runs the tests; once more for each file would only take time.
    command.args(["--baseline", "skip", "--timeout", MUTANT_SECONDS, "--output"]).arg(output);
    if !tests.is_empty() {
        // For building too: otherwise each mutant waits until all test programs are linked.
        command.args(["--cargo-arg=--lib", "--cargo-arg=--test=suite", "--", "--"]).args(tests);
    }
    tools::run_with(&mut command)
}

/// `cargo xtask sanitize [address|thread] [CRATE] [ARGUMENT OF CARGO TEST]…`
pub(crate) fn sanitize(arguments: &[String]) -> Result<(), String> {
    let sanitizer = arguments.first().map_or("address", String::as_str);
    let package = arguments.get(1).map_or("store", String::as_str);
    let mut command = nightly_cargo(&["test", "--target", TARGET, "--package", package]);
    if sanitizer == "thread" {
        // Before the other arguments: after their `--` it would be passed to libtest.
        command.arg("-Zbuild-std");
    }
    match arguments.get(2..) {
        Some(chosen) if !chosen.is_empty() => command.args(chosen),
        _ => command.args(["--lib", "--tests"]),
    };
    match sanitizer {
        // The prebuilt standard library suffices: the allocator's interceptors check what it does not check itself.
        "address" => require_nightly()?,
        // Locks and atomics of the standard library must be instrumented, or every use of them is reported as a race.
        "thread" => require_component("rust-src", "from which the standard library is built with the sanitizer")?,
        other => return Err(format!("`{other}` is no sanitizer of this command; allowed: address, thread")),
    }
    // Separate from the ordinary build, which other flags would invalidate.
    let target_folder = tools::target().join(format!("sanitize-{sanitizer}"));
    let suppressions = format!("suppressions={}", tools::root().join(THREAD_SUPPRESSIONS).display());
    command.env("TSAN_OPTIONS", suppressions);
    tools::run_with(command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")).env("CARGO_TARGET_DIR", target_folder))
}
