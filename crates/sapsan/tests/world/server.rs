//! The `sapsan` binary: the server as a child process, ended by its id, and the commands beside it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a drain may take: a large statement that is under way is waited for.
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// The binary with these arguments. A campaign can name another one, such as one with a fault that was put back.
pub(crate) fn sapsan(arguments: &[&str]) -> Command {
    let binary = std::env::var_os("SAPSAN_WORLD_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_sapsan").into());
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command of the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    sapsan(arguments).output().expect("the binary starts")
}

/// Both outputs of a command that has ended, as one text.
pub(crate) fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts the server on a free port and waits until it listens. Its log is appended to `log`.
    pub(crate) fn start(config: &Path, data: &Path, log: &Path) -> Result<Server, String> {
        let file = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        let mut command = sapsan(&["serve"]);
        command.arg(config).arg("--data").arg(data).args(["--allow-drop", "--http", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("http://")?.1.split('/').next()?.trim().parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let status = child.wait();
            return Err(format!("the server ended with {status:?} without saying where it listens: {}", log.display()));
        };
        // The rest is read away, so that a full pipe never stops the server.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Server { child, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("the child can be waited for");
    }

    /// SIGTERM, and a clean end.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        signal(self.id(), "-TERM");
        let began = Instant::now();
        while began.elapsed() < STOP_LIMIT {
            match self.child.try_wait().expect("the child can be waited for") {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("a server that was asked to stop ended with {status}")),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(format!("the server did not end within {STOP_LIMIT:?} of SIGTERM"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that this program has started.
pub(crate) fn signal(id: u32, name: &str) {
    let status = Command::new("kill").args([name, &id.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {name} {id}");
}
