//! The test programs: built by cargo, each run as soon as it is built, two at a time.
//!
//! Cargo builds all programs and then runs them one after the other. Here the programs that mostly wait for disks, sockets and
//! other programs run while the last ones are compiled, and after the build several of the computing ones run at once. A program
//! runs in the folder of its package, as with cargo, and its output is printed when it has ended, so that lines of two programs
//! never mix.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{test_compiler, tools};

/// Number of programs that run at once after the build.
const AT_ONCE: usize = 2;
/// Number of programs that run at once during the build, which keeps the cores busy itself.
const AT_ONCE_BESIDE_BUILD: usize = 1;
/// Packages whose programs wait more than they compute, and start no program of their package (which cargo may build later): they
/// run during the build.
const BESIDE_BUILD: [&str; 6] = ["store", "proxy", "reactor", "http", "resp", "executor"];
/// Packages whose programs take longest: they begin before other waiting programs.
const SLOW: [&str; 4] = ["docs", "store", "server", "sapsan"];

/// One test program.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    target: String,
    executable: PathBuf,
    /// The package's folder.
    folder: PathBuf,
}

/// Result of a program.
pub(crate) struct Ended {
    /// Package and target, such as `store suite`.
    pub(crate) name: String,
    /// Its standard output, then its standard error.
    pub(crate) output: String,
    /// Its exit status; an error means that it could not be started.
    pub(crate) status: Result<ExitStatus, String>,
    pub(crate) took: Duration,
}

/// Builds the test programs that cargo selects by these arguments, and runs all of them, also after one has failed. `prepare` runs
/// during the build, and no program begins before its end. `on_end` is called for each program that has ended.
///
/// If the build fails, for example by a lint, no further program begins, and its error is returned.
pub(crate) fn run(
    targets: &[&str],
    prepare: impl FnOnce() + Send,
    mut on_end: impl FnMut(Ended),
) -> Result<(), String> {
    let queue = Queue::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A panic in `prepare` must not leave the programs waiting; the scope passes it on.
            let _prepared = Prepared(&queue);
            prepare();
        });
        let (sender, ended) = mpsc::channel();
        for _ in 0..AT_ONCE {
            let (sender, queue) = (sender.clone(), &queue);
            scope.spawn(move || {
                while let Some(program) = queue.next() {
                    let ended = run_one(&program);
                    queue.note_end();
                    if sender.send(ended).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let building = scope.spawn(|| {
            let started = Instant::now();
            let outcome = build(targets, |program| queue.push(program));
            queue.note_end_of_build(outcome.is_ok());
            outcome.map(|()| println!("== all programs built: {:.0} s", started.elapsed().as_secs_f64()))
        });
        ended.iter().for_each(&mut on_end);
        building.join().map_err(|_| "the thread that builds the tests panicked")?
    })
}

/// Programs that are built and have not begun.
#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    programs: VecDeque<Program>,
    running: usize,
    prepared: bool,
    all_built: bool,
}

/// Lets the programs begin when it is dropped.
struct Prepared<'a>(&'a Queue);

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        self.0.lock().prepared = true;
        self.0.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, program: Program) {
        self.lock().push(program);
        self.changed.notify_all();
    }

    fn note_end_of_build(&self, succeeded: bool) {
        let mut waiting = self.lock();
        waiting.all_built = true;
        if !succeeded {
            waiting.programs.clear();
        }
        self.changed.notify_all();
    }

    fn note_end(&self) {
        self.lock().running -= 1;
        self.changed.notify_all();
    }

    /// The next program, as soon as one may run. None: all have begun.
    fn next(&self) -> Option<Program> {
        let mut waiting = self.lock();
        loop {
            if let Some(program) = waiting.begin() {
                return Some(program);
            }
            if waiting.all_built && waiting.programs.is_empty() {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Waiting {
    /// Slow ones are placed at the front, in the order of [`SLOW`].
    fn push(&mut self, program: Program) {
        let rank = |program: &Program| SLOW.iter().position(|slow| *slow == program.package).unwrap_or(SLOW.len());
        let place = self.programs.partition_point(|other| rank(other) <= rank(&program));
        self.programs.insert(place, program);
    }

    fn begin(&mut self) -> Option<Program> {
        let most = if self.all_built { AT_ONCE } else { AT_ONCE_BESIDE_BUILD };
        if !self.prepared || self.running >= most {
            return None;
        }
        let may_run = |program: &Program| self.all_built || BESIDE_BUILD.contains(&program.package.as_str());
        let place = self.programs.iter().position(may_run)?;
        let program = self.programs.remove(place)?;
        self.running += 1;
        Some(program)
    }
}

fn build(targets: &[&str], mut built: impl FnMut(Program)) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]).args(targets);
    let mut child = test_compiler::use_in(&mut cargo)?
        .current_dir(tools::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let output = child.stdout.take().ok_or("cargo gave no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading cargo's output: {error}"))?;
        program_of(&line).into_iter().for_each(&mut built);
    }
    let status = child.wait().map_err(|error| format!("waiting for cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("building the tests ended with {status}")) }
}

/// The test program in a message of cargo (The Cargo Book, "External tools"), if there is one.
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

/// All output of a pipe.
fn text(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // Output before an error is worth showing; the error itself is visible in the program's status.
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

#[cfg(test)]
mod order {
    use super::{Prepared, Program, Queue};

    fn program(package: &str) -> Program {
        let folder = format!("/p/crates/{package}").into();
        Program { package: package.to_owned(), target: "test suite".to_owned(), executable: "/t/suite".into(), folder }
    }

    #[test]
    fn one_that_waits_runs_beside_the_build_and_two_behind_it_slow_ones_first() {
        let queue = Queue::default();
        let begin = || queue.lock().begin().map(|program| program.package);
        queue.push(program("docs"));
        queue.push(program("sapsan"));
        for package in ["lab", "http", "store"] {
            queue.push(program(package));
        }
        assert_eq!(begin(), None, "what programs need is being installed");
        drop(Prepared(&queue));
        assert_eq!(begin().as_deref(), Some("store"));
        assert_eq!(begin(), None, "cargo still builds; docs computes, and what sapsan starts is perhaps not there");
        queue.note_end_of_build(true);
        assert_eq!(begin().as_deref(), Some("docs"));
        assert_eq!(begin(), None, "two run");
        (0..2).for_each(|_| queue.note_end());
        assert_eq!(begin().as_deref(), Some("sapsan"), "equals keep their order");
        queue.note_end();
        assert_eq!(queue.next().map(|program| program.package).as_deref(), Some("lab"));
        assert_eq!(queue.next().map(|program| program.package).as_deref(), Some("http"));
        assert_eq!(queue.next().map(|program| program.package), None);
    }

    #[test]
    fn none_begins_after_a_build_that_failed() {
        let queue = Queue::default();
        drop(Prepared(&queue));
        queue.push(program("docs"));
        queue.note_end_of_build(false);
        assert_eq!(queue.next().map(|program| program.package), None);
    }
}
