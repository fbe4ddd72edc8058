//! A redis-server of the test's own, on a free port and a Unix socket, without files; with TLS on a further port where a test
//! wants it. It is ended with the value.

use crate::certificate::Authority;
use resp::{Client, Settings};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not answer by then is broken.
const START_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct RedisServer {
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    port: u16,
    /// 0 without TLS.
    tls_port: u16,
    folder: tempfile::TempDir,
    /// Certificates and keys.
    files: Option<tempfile::TempDir>,
}

impl RedisServer {
    /// Starts one with further arguments; none, and a line that says so, where redis-server is not installed.
    pub(crate) fn start(arguments: &[&str]) -> Option<RedisServer> {
        let Some(program) = program() else {
            skip("redis-server is not there (cargo xtask redis installs it)");
            return None;
        };
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut server =
            RedisServer { program, arguments, child: None, port: free_port(), tls_port: 0, folder, files: None };
        server.run();
        Some(server)
    }

    /// Starts one that speaks TLS too, with a certificate for 127.0.0.1 of the authority; none, and a line that says so, where
    /// redis-server is not there or was built without TLS.
    pub(crate) fn start_tls(authority: &Authority, arguments: &[&str]) -> Option<RedisServer> {
        if program().is_some_and(|program| !knows_tls(&program)) {
            skip("redis-server was built without TLS");
            return None;
        }
        let (files, port) = (tempfile::tempdir().unwrap(), free_port());
        let write = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let pair = authority.issue("127.0.0.1");
        let [certificate, key] = [write("server.pem", &pair.certificate), write("server.key", &pair.key)];
        let [root, port_text] = [write("root.pem", &authority.certificate), port.to_string()];
        let tls = ["--tls-port", &port_text, "--tls-cert-file", &certificate, "--tls-key-file", &key];
        let all = [&tls[..], &["--tls-ca-cert-file", &root], arguments].concat();
        let mut server = RedisServer::start(&all)?;
        server.tls_port = port;
        // Read again after a restart.
        server.files = Some(files);
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

    /// Address for TLS, which trusts the authority of [`RedisServer::start_tls`].
    pub(crate) fn tls_address(&self) -> String {
        let root = self.files.as_ref().expect("a server with TLS").path().join("root.pem");
        format!("rediss://127.0.0.1:{}?ca={}", self.tls_port, root.display())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn unix_address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::of(&self.address()).unwrap()
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

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Not `println!`, which libtest keeps: the closing line of `cargo xtask test` counts these.
pub(crate) fn skip(reason: &str) {
    std::io::stdout().write_all(format!("\nSKIPPED: {reason}\n").as_bytes()).expect("a standard output");
}

/// A server without any port ends at once; one without TLS does not know the name of the second.
fn knows_tls(program: &Path) -> bool {
    let output = Command::new(program).args(["--port", "0", "--tls-port", "0"]).output().expect("a redis-server");
    ![output.stdout, output.stderr].concat().windows(13).any(|window| window == b"Bad directive")
}

/// On the PATH, or where `cargo xtask redis` puts it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The tests' program lies in target/PROFILE/deps.
    let target = std::env::current_exe().ok().and_then(|program| Some(program.ancestors().nth(3)?.to_path_buf()));
    let folders = std::env::split_paths(&path).chain(target.map(|target| target.join("redis")));
    folders.map(|folder| folder.join("redis-server")).find(|program| program.is_file())
}
