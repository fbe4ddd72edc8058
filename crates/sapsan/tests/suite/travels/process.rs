//! The `sapsan` binary as a child process, ended by id when the test is over.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to say where it listens.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a drain may take.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The service file that users get.
pub(crate) fn travels_toml() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/travels/travels.toml")
}

/// The `sapsan` binary with these arguments, not yet started.
pub(crate) fn sapsan(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Imports files into a data folder with the real command.
#[track_caller]
pub(crate) fn import(data: &Path, file: &Path) {
    let output = run_import(data, file);
    assert!(output.status.success(), "import failed: {}", String::from_utf8_lossy(&output.stderr));
}

/// The same, whatever comes of it.
pub(crate) fn run_import(data: &Path, file: &Path) -> Output {
    sapsan(&["import"])
        .arg(travels_toml())
        .arg("--data")
        .arg(data)
        .arg(file)
        .output()
        .expect("the sapsan binary starts")
}

/// `sapsan serve`, not yet started.
pub(crate) fn serve(file: &Path, data: &Path, now: i64) -> Command {
    let mut command = sapsan(&["serve"]);
    command.arg(file).arg("--data").arg(data).stdout(Stdio::piped());
    command.args(["--http", "127.0.0.1:0", "--threads", "2", "--set", &format!("now={now}")]);
    command
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Where it answers.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `sapsan serve` for the travels file on a free port; returns once it listens.
    #[track_caller]
    pub(crate) fn start(data: &Path, now: i64) -> Server {
        Server::start_with(data, now, &[])
    }

    /// The same with more arguments.
    #[track_caller]
    pub(crate) fn start_with(data: &Path, now: i64, more: &[&str]) -> Server {
        Server::start_service(&travels_toml(), data, now, more)
    }

    /// The same for another service file.
    #[track_caller]
    pub(crate) fn start_service(file: &Path, data: &Path, now: i64, more: &[&str]) -> Server {
        Server::of(serve(file, data, now).args(more))
    }

    /// The same of a command that [`serve`] has made.
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Server {
        let mut child = command.spawn().expect("the sapsan binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("http://")?.1.split('/').next()?.trim().parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            panic!("the server ended without saying where it listens: {:?}", child.wait());
        };
        // The rest of its output is read away, so that a full pipe never stops it.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, address }
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child can be waited for")
    }

    /// Ends the process as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }

    /// SIGTERM, then waits for a clean end.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().is_ok_and(|status| status.success()));
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                assert!(status.success(), "a drained server ends with 0, not {status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not end within {STOP_LIMIT:?} of SIGTERM");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_that_is_asked_to_stop_ends_with_status_0() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let started = Instant::now();
    let server = Server::start(data.path(), 0);
    assert!(started.elapsed() < START_LIMIT);
    server.stop();
}
