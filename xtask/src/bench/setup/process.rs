//! Servers under measurement: started pinned, their CPU time and memory read from /proc, ended by process id.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Clock ticks per second in /proc/PID/stat: fixed at 100 by the kernel's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;
const START_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for the bytes of a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A server process; ended when dropped.
pub(in crate::bench) struct Server {
    child: Child,
    pub(in crate::bench) address: SocketAddr,
}

impl Server {
    /// Starts `command` on these cores and waits until a process listens at `address`.
    pub(in crate::bench) fn start(
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

    /// Its process id.
    pub(in crate::bench) fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time of all its threads so far, in seconds.
    pub(in crate::bench) fn cpu_seconds(&self) -> f64 {
        Stat::of(self.child.id()).own
    }

    /// The same with its child processes: those that run, and those that have ended.
    pub(in crate::bench) fn cpu_seconds_with_children(&self) -> f64 {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let running: f64 =
            children.split_whitespace().filter_map(|id| id.parse().ok()).map(|id| Stat::of(id).own).sum();
        let stat = Stat::of(id);
        stat.own + stat.ended_children + running
    }

    /// CPU time of each thread so far, in nanoseconds, by thread id.
    pub(in crate::bench) fn thread_nanoseconds(&self) -> BTreeMap<u32, u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let of = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, text.split_whitespace().next()?.parse().ok()?))
        };
        tasks.into_iter().flatten().filter_map(|task| of(task.ok()?)).collect()
    }

    /// Anonymous resident memory in bytes.
    pub(in crate::bench) fn anonymous_bytes(&self) -> u64 {
        anonymous_bytes(self.child.id())
    }

    /// Requests its end and waits for it.
    pub(in crate::bench) fn terminate(mut self) -> Result<(), String> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        asked.and_then(|_| self.child.wait()).map(drop).map_err(|error| format!("ending a server: {error}"))
    }

    /// Kills it, like a power failure would.
    pub(in crate::bench) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of a process so far, in seconds; 0 if it has ended.
struct Stat {
    own: f64,
    ended_children: f64,
}

impl Stat {
    fn of(id: u32) -> Stat {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default())
    }

    fn parse(stat: &str) -> Stat {
        // The command's name, in parentheses, may contain blanks: fields are counted after it
        // (proc_pid_stat(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        Stat {
            own: (ticks(11) + ticks(12)) / TICKS_PER_SECOND,
            ended_children: (ticks(13) + ticks(14)) / TICKS_PER_SECOND,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address with a currently free port.
pub(in crate::bench) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map_err(|error| format!("no free port: {error}"))
}

/// Anonymous resident memory of a process in bytes; 0 if it has ended.
pub(in crate::bench) fn anonymous_bytes(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Sends a request on a new connection and reads until the server closes it.
pub(in crate::bench) fn exchange(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>, String> {
    let talk = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        stream.write_all(request)?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        Ok(reply)
    };
    talk().map_err(|error| format!("{address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_after_a_name_with_blanks_and_parentheses() {
        let stat = Stat::parse("7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 1 0 100\n");
        assert_eq!((stat.own, stat.ended_children), (2.0, 0.5));
    }
}
