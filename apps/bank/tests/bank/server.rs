//! `bank serve` as a process, with a few customers; it ends when the value is dropped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

use crate::redis_server::RedisServer;
use crate::visitor::Visitor;

/// Customers have the logins `user1` to `user9` and the passwords `password1` to `password9`.
pub(crate) const USERS: u32 = 9;

pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) address: SocketAddr,
    arguments: Vec<String>,
    folder: TempDir,
    redis: Option<RedisServer>,
}

impl Server {
    /// With the embedded ledger, and the loopback address as a trusted proxy.
    pub(crate) fn embedded() -> Server {
        Server::start(None, &["--trusted-proxy", "127.0.0.1"])
    }

    /// With the ledger in Redis. None, after printing a line, if there is no redis-server.
    pub(crate) fn redis() -> Option<Server> {
        let redis = RedisServer::start(&[])?;
        Some(Server::start(Some(redis), &["--trusted-proxy", "127.0.0.1"]))
    }

    pub(crate) fn start(redis: Option<RedisServer>, arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users.tsv");
        let lines = (1..=USERS).map(|id| {
            let hash = bank::user::hash(&format!("password{id}"), "salt");
            format!("{id}\tuser{id}\tpassword{id}\tsalt\t{hash}\n")
        });
        std::fs::write(&users, lines.collect::<String>()).unwrap();
        let data = folder.path().join("data");
        let imported = command().arg("import").arg("--data").arg(&data).arg("--users").arg(&users).output().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        if let Some(redis) = &redis {
            arguments.extend(["--redis".to_owned(), redis.address()]);
        }
        let mut server = Server { child: None, address: ([127, 0, 0, 1], 0).into(), arguments, folder, redis };
        server.run();
        server
    }

    /// Starts it on a free port.
    pub(crate) fn run(&mut self) {
        let mut child = command()
            .args(["serve", "--http", "127.0.0.1:0", "--data"])
            .arg(self.data())
            .args(&self.arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.child = Some(child);
        let (_, address) = line.trim().split_once("http://").unwrap_or_else(|| panic!("no address in {line:?}"));
        self.address = address.parse().unwrap();
    }

    /// Kills it like `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.child.as_ref().unwrap())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn visitor(&self, address: &str) -> Visitor {
        Visitor::from(self.address, address)
    }

    /// Whether its ledger is in Redis.
    pub(crate) fn is_redis(&self) -> bool {
        self.redis.is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bank"))
}
