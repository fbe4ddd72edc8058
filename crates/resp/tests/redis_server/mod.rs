//! The test's own redis-server, on a free port and a Unix socket, without files; it ends when the value is dropped.

use resp::{Client, ClientSettings};
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not answer within this time is broken.
const START_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct RedisServer {
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    port: u16,
    folder: tempfile::TempDir,
}

impl RedisServer {
    /// Starts a server with further arguments. None, after printing a line, if redis-server is not installed.
    pub(crate) fn start(arguments: &[&str]) -> Option<RedisServer> {
        let Some(program) = program() else {
            // Not `println!`, which libtest captures: the closing line of `cargo xtask test` counts this one.
            let line = "\nSKIPPED: redis-server is not there (cargo xtask redis installs it)\n";
            std::io::stdout().write_all(line.as_bytes()).expect("a standard output");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut server = RedisServer { program, arguments, child: None, port, folder };
        server.run();
        Some(server)
    }

    /// Starts it again, at the same port, after [`RedisServer::kill`].
    pub(crate) fn run(&mut self) {
        let socket = self.socket();
        let child = Command::new(&self.program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--unixsocket", socket.to_str().unwrap(), "--dir", self.folder.path().to_str().unwrap()])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .spawn()
            .expect("a redis-server");
        self.child = Some(child);
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(started.elapsed() < START_LIMIT, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn unix_address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn settings(&self) -> ClientSettings {
        ClientSettings::of(&self.address()).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address()).unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program that `REDIS_SERVER` names, such as another version or Valkey; else the one on the PATH, or where
/// `cargo xtask redis` puts it.
pub(crate) fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("REDIS_SERVER") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The test program lies in target/PROFILE/deps.
    let target = std::env::current_exe().ok().and_then(|program| Some(program.ancestors().nth(3)?.to_path_buf()));
    let folders = std::env::split_paths(&path).chain(target.map(|target| target.join("redis")));
    folders.map(|folder| folder.join("redis-server")).find(|program| program.is_file())
}
