//! The service under test, as child processes of the same program: `import`, then `serve` on a free port, ended by SIGTERM.

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for the server to report its address.
const START_MAX: Duration = Duration::from_secs(120);
/// Time limit for the server to end after SIGTERM; then it is killed, which the board reports.
const END_MAX: Duration = Duration::from_secs(60);
/// Time limit for removing the folder at a second signal.
const REMOVE_MAX: Duration = Duration::from_secs(2);
/// Interval between two checks of a child process.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a run would leave if its process ended now: its folder, and a child process. A second signal ends both.
#[derive(Clone, Debug, Default)]
pub struct Unfinished(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
struct Left {
    folder: Option<PathBuf>,
    child: Option<Pid>,
}

impl Unfinished {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run has this folder from now on.
    pub(super) fn note_folder(&self, folder: &Path) {
        self.left().folder = Some(folder.to_owned());
    }

    /// Kills the child and removes the folder. To be called right before the process ends.
    pub fn remove(&self) {
        let left = self.left();
        if let Some(child) = left.child {
            let _ = kill_process(child, Signal::KILL);
        }
        let Some(folder) = &left.folder else { return };
        let deadline = Instant::now() + REMOVE_MAX;
        // The child may still be ending, and have made another file meanwhile.
        while std::fs::remove_dir_all(folder).is_err() && folder.exists() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The parts of the service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// The program, which has the commands `import` and `serve`.
    pub(crate) program: PathBuf,
    /// The service's file.
    pub(crate) config: PathBuf,
    /// The data folder.
    pub(crate) data: PathBuf,
    /// Further arguments of `serve`.
    pub(crate) arguments: Vec<OsString>,
    /// Its child process is noted here.
    pub(crate) unfinished: Unfinished,
}

impl Service {
    /// Imports `zips` into the data folder. If `is_stopped` becomes true meanwhile, the import is killed, and the error says so.
    pub(crate) fn import(&self, zips: &[PathBuf], is_stopped: impl Fn() -> bool) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.arg("import").arg(&self.config).arg("--data").arg(&self.data).args(zips);
        // Its progress and errors are on standard error; its final output is not part of the board.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = self.spawn(&mut command)?;
        loop {
            match child.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("`sapsan import` ended with {status}")),
                None if is_stopped() => return Err("ended by a signal while importing".to_owned()),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Starts the server; returns once it listens.
    pub(crate) fn serve(&self) -> Result<Server, String> {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(&self.config).arg("--data").arg(&self.data).args(["--http", "127.0.0.1:0"]);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = self.spawn(&mut command)?;
        let output = child.child.stdout.take().ok_or("the server has no standard output")?;
        let (said, address) = sync_channel(1);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            // Without a receiver the caller has given up.
            let _ = lines.by_ref().find_map(|line| address_of(&line)).map(|address| said.try_send(address));
            drop(said);
            // The rest is read, so that a full pipe never blocks the server.
            lines.for_each(drop);
        });
        match address.recv_timeout(START_MAX) {
            Ok(address) => Ok(Server { child, address }),
            Err(RecvTimeoutError::Timeout) => Err(format!("the server did not listen within {START_MAX:?}")),
            Err(RecvTimeoutError::Disconnected) => {
                Err("`sapsan serve` ended before it listened: its reason is on standard error".to_owned())
            }
        }
    }

    fn spawn(&self, command: &mut Command) -> Result<Running, String> {
        let mut left = self.unfinished.left();
        let child = command.spawn().map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        left.child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Running { child, unfinished: self.unfinished.clone() })
    }
}

/// The address in a line such as `listening on http://127.0.0.1:8080`.
fn address_of(line: &str) -> Option<SocketAddr> {
    line.split_once("http://")?.1.split('/').next()?.trim().parse().ok()
}

/// A server that listens.
pub(crate) struct Server {
    child: Running,
    /// Its address.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Ends it by SIGTERM and waits for it. An error describes any other end.
    pub(crate) fn end(mut self) -> Result<(), String> {
        if let Some(status) = self.child.ended()? {
            return Err(format!("the server had ended by itself: {status}"));
        }
        let id =
            i32::try_from(self.child.child.id()).ok().and_then(Pid::from_raw).ok_or("the server has no process id")?;
        kill_process(id, Signal::TERM).map_err(|error| format!("cannot end the server: {error}"))?;
        let deadline = Instant::now() + END_MAX;
        while Instant::now() < deadline {
            match self.child.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the server ended with {status}")),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
        Err(format!("the server did not end within {END_MAX:?} of SIGTERM, and was killed"))
    }
}

/// A child process that does not outlive its owner.
struct Running {
    child: Child,
    unfinished: Unfinished,
}

impl Running {
    fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| format!("cannot wait for a child: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing if it has ended.
        let mut left = self.unfinished.left();
        let _ = self.child.kill();
        let _ = self.child.wait();
        left.child = None;
    }
}

/// The time at which the data was made, from an options file beside the first zip: the contest's "now", for ages.
pub(crate) fn now_of(zip: &Path) -> Option<u64> {
    let options = std::fs::read_to_string(zip.with_file_name("options.txt")).ok()?;
    options.lines().next()?.trim().parse().ok()
}

#[cfg(test)]
mod children {
    use super::{Service, Unfinished, address_of, now_of};
    use std::path::Path;
    use std::process::Command;

    /// A shell script in place of `sapsan`.
    fn service(folder: &Path, script: &str) -> Service {
        let (source, program) = (folder.join("source"), folder.join("program"));
        std::fs::write(&source, format!("#!/bin/sh\n{script}\n")).expect("written");
        // A child copies it: a file that this process has open for writing, or a child between its fork and its exec, cannot be
        // executed (ETXTBSY in execve(2)).
        let installed = Command::new("install").args(["-m", "755"]).args([&source, &program]).status();
        assert!(installed.expect("coreutils").success());
        let (config, data) = (folder.join("a.toml"), folder.join("data"));
        Service {
            program,
            config,
            data,
            arguments: vec!["--threads".into(), "1".into()],
            unfinished: Unfinished::default(),
        }
    }

    #[test]
    fn a_second_signal_leaves_neither_a_child_nor_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = tempfile::tempdir().expect("a folder");
        std::fs::write(left.path().join("file"), "x").expect("written");
        let service = service(folder.path(), "echo 'listening on http://127.0.0.1:4711'; exec sleep 600");
        service.unfinished.note_folder(left.path());
        let mut server = service.serve().expect("it listens");
        service.unfinished.remove();
        let status = server.child.child.wait().expect("it ended");
        assert!(!status.success() && !left.path().exists(), "{status}");
    }

    #[test]
    fn a_server_is_found_where_it_says_and_ends_by_sigterm() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!(
            "trap 'echo ended > {0}/ended; exit 0' TERM; echo \"$@\" > {0}/arguments; echo 'starting'; \
             echo 'listening on http://127.0.0.1:4711'; while :; do sleep 0.02; done",
            folder.path().display()
        );
        let service = service(folder.path(), &script);
        let server = service.serve().expect("it listens");
        assert_eq!(server.address.port(), 4711);
        server.end().expect("a clean end");
        assert!(folder.path().join("ended").exists());
        let arguments = std::fs::read_to_string(folder.path().join("arguments")).expect("readable");
        assert!(
            arguments.starts_with("serve ") && arguments.ends_with("--http 127.0.0.1:0 --threads 1\n"),
            "{arguments}"
        );
    }

    #[test]
    fn a_child_that_fails_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let service = service(folder.path(), "exit 3");
        let problem = service.serve().err().expect("it ended");
        assert!(problem.contains("ended before it listened"), "{problem}");
        let problem = service.import(&[], || false).expect_err("it failed");
        assert!(problem.contains("import` ended with") && problem.contains('3'), "{problem}");
    }

    #[test]
    fn an_import_is_killed_when_the_run_is_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let problem = service(folder.path(), "exec sleep 600").import(&[], || true).expect_err("stopped");
        assert!(problem.contains("by a signal"), "{problem}");
    }

    #[test]
    fn addresses_and_moments_are_read() {
        assert_eq!(address_of("listening on http://[::1]:80").map(|address| address.port()), Some(80));
        assert_eq!(address_of("listening"), None);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("options.txt"), "1503966608\n0\n").expect("written");
        assert_eq!(now_of(&folder.path().join("data.zip")), Some(1_503_966_608));
    }
}
