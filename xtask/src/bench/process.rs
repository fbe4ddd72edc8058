//! Servers under measurement: started pinned, their CPU time and memory read from /proc, ended by id.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Clock ticks a second in /proc/PID/stat: fixed at 100 by the kernel's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;
const START_LIMIT: Duration = Duration::from_secs(60);

/// A server process; ended when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Server {
    /// Starts `command` on these cores and waits until something listens at `address`.
    pub(super) fn start(
        cores: &str,
        program: &Path,
        arguments: &[String],
        address: SocketAddr,
    ) -> Result<Server, String> {
        let child = Command::new("taskset")
            .args(["-c", cores])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut server = Server { child, address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{} ended with {status} before it listened", program.display()));
            }
            if started.elapsed() > START_LIMIT {
                return Err(format!("{} does not listen at {address}", program.display()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// User and system time of all its threads so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The command's name, in parentheses, may hold blanks: fields are counted behind it (proc_pid_stat(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / TICKS_PER_SECOND
    }

    /// Anonymous resident memory in bytes.
    pub(super) fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    /// Ends it at once, as a power cut would.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free now.
pub(super) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map_err(|error| format!("no free port: {error}"))
}
