//! A redis-server that speaks TLS on a port of its own, with a certificate for 127.0.0.1.

use crate::certificate::Authority;
use crate::redis_server::{RedisServer, program};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

pub(crate) struct TlsRedis {
    server: RedisServer,
    port: u16,
    /// Certificates and keys, which the server reads again after a restart.
    files: tempfile::TempDir,
}

impl TlsRedis {
    /// Starts a server whose certificate this authority issues. None, after printing a line, if redis-server is missing or was
    /// built without TLS.
    pub(crate) fn start(authority: &Authority, arguments: &[&str]) -> Option<TlsRedis> {
        if program().is_some_and(|program| !knows_tls(&program)) {
            skip("redis-server was built without TLS");
            return None;
        }
        let files = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
        Some(TlsRedis { server: RedisServer::start(&all)?, port, files })
    }

    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    pub(crate) fn run(&mut self) {
        self.server.run();
    }

    /// The address, with the authority as the only trusted one.
    pub(crate) fn tls_address(&self) -> String {
        format!("rediss://127.0.0.1:{}?ca={}", self.port, self.files.path().join("root.pem").display())
    }
}

/// Not `println!`, which libtest captures: the closing line of `cargo xtask test` counts these.
pub(crate) fn skip(reason: &str) {
    std::io::stdout().write_all(format!("\nSKIPPED: {reason}\n").as_bytes()).expect("a standard output");
}

/// A server without the key ends at once; a server without TLS does not know the directive (Redis) or the kind of connection
/// (Valkey).
fn knows_tls(program: &Path) -> bool {
    let without_key = ["--port", "0", "--tls-port", "1", "--bind", "127.0.0.1", "--tls-cert-file", "/none.pem"];
    let output = Command::new(program).args(without_key).args(["--save", "", "--dir", "/tmp"]).output();
    String::from_utf8_lossy(&output.expect("a redis-server").stdout).contains("Failed to configure TLS")
}
