//! The programs of the tests: built by cargo, run two at a time.
//!
//! Cargo runs one program after the other. Those of the store wait for the disk half of their time, those of the documents compute:
//! side by side they end sooner. A program runs in the folder of its package, as cargo would run it, and what it prints is printed when
//! it has ended, so that lines of two programs never mix.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tools;

/// Programs that run at once.
const AT_ONCE: usize = 2;
/// Packages whose programs take longest: they begin first, beside one another.
const SLOW: [&str; 2] = ["store", "docs"];

/// One program of tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    target: String,
    executable: PathBuf,
    /// The package's folder.
    folder: PathBuf,
}

/// What a program did.
pub(crate) struct Ended {
    /// Package and target, as `store suite`.
    pub(crate) name: String,
    /// Its standard output, then its standard error.
    pub(crate) output: String,
    /// How it ended; an error is one of starting it.
    pub(crate) status: Result<ExitStatus, String>,
    pub(crate) took: Duration,
}

/// Builds the tests of these targets and runs all, also after a failure; tells of each when it has ended.
pub(crate) fn run(targets: &[&str], mut told: impl FnMut(Ended)) -> Result<(), String> {
    let mut programs = build(targets)?;
    programs.sort_by_key(|program| SLOW.iter().position(|slow| *slow == program.package).unwrap_or(SLOW.len()));
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().map_or(None, |mut programs| programs.pop_front());
    std::thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for _ in 0..AT_ONCE {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(program) = next() {
                    if sender.send(run_one(&program)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        ended.iter().for_each(&mut told);
    });
    Ok(())
}

fn build(targets: &[&str]) -> Result<Vec<Program>, String> {
    let mut child = Command::new("cargo")
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"])
        .args(targets)
        .current_dir(tools::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let output = child.stdout.take().ok_or("cargo gave no output")?;
    let mut programs = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading cargo's output: {error}"))?;
        programs.extend(program_of(&line));
    }
    let status = child.wait().map_err(|error| format!("waiting for cargo: {error}"))?;
    if status.success() { Ok(programs) } else { Err(format!("building the tests ended with {status}")) }
}

/// The program of tests that a message of cargo tells of (The Cargo Book, "External tools"), if it is of one.
fn program_of(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_str()?.to_owned();
    let target = &message["target"];
    let target = format!("{} {}", target["kind"][0].as_str()?, target["name"].as_str()?);
    Some(Program { package, target, executable, folder })
}

fn run_one(program: &Program) -> Ended {
    let started = Instant::now();
    let mut output = String::new();
    let status = outcome(program, &mut output);
    Ended { name: format!("{} {}", program.package, program.target), output, status, took: started.elapsed() }
}

fn outcome(program: &Program, output: &mut String) -> Result<ExitStatus, String> {
    let mut child = Command::new(&program.executable)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.executable.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let errors = scope.spawn(|| text(stderr));
        output.push_str(&text(stdout));
        output.push_str(&errors.join().unwrap_or_default());
    });
    child.wait().map_err(|error| format!("waiting for {}: {error}", program.executable.display()))
}

/// All that comes out of a pipe.
fn text(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What came before an error is worth showing; the error itself shows in the program's status.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod messages {
    use super::{Program, program_of};

    #[test]
    fn programs_of_tests_are_told_from_libraries_and_other_messages() {
        let of = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/crates/store/Cargo.toml","target":{{"kind":["test"],"name":"suite"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program = Program {
            package: "store".to_owned(),
            target: "test suite".to_owned(),
            executable: "/t/suite-1".into(),
            folder: "/p/crates/store".into(),
        };
        assert_eq!(program_of(&of(true, r#""/t/suite-1""#)), Some(program));
        for other in [&of(false, r#""/t/sapsan""#), &of(true, "null"), r#"{"reason":"build-finished"}"#, "no message"] {
            assert_eq!(program_of(other), None, "{other}");
        }
    }
}
