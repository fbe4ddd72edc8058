//! Client libraries of other languages: ioredis, go-redis and Jedis, through the proxy and, to attribute failures, directly with
//! a redis-server. Their programs are in `clients/`; `cargo xtask redis-clients` installs them, and without it the tests print
//! `SKIPPED`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::nodes::{Program, Sharded, is_there};

/// Seconds after which a hanging program is ended.
const LIMIT: &str = "120";

/// The folder into which `cargo xtask redis-clients` installs.
fn installed() -> PathBuf {
    // The test program lies in target/PROFILE/deps.
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().join("redis-clients")
}

/// A file of `clients/`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Connections to a server, which can all be closed at once.
struct Relay {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn start(to: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay { address: listener.local_addr().unwrap(), open: Arc::default() };
        let open = Arc::clone(&relay.open);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(to) else { continue };
                open.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                pass(near.try_clone().unwrap(), far.try_clone().unwrap());
                pass(far, near);
            }
        });
        relay
    }

    fn cut(&self) {
        // A connection that has ended by itself cannot be shut down again.
        self.open.lock().unwrap().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// A client's program, ended when the value is dropped.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client's program against a server until it reports that it is done.
#[track_caller]
fn run(program: &str, arguments: &[&Path], variables: &[(&str, &Path)], server: SocketAddr) {
    let relay = Relay::start(server);
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(program).args(arguments).arg(relay.address.port().to_string());
    command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = Client(command.spawn().unwrap());
    let (mut answers, lines) = (client.0.stdin.take().unwrap(), client.0.stdout.take().unwrap());
    let mut last = String::new();
    for line in BufReader::new(lines).lines() {
        last = line.unwrap();
        if last == "cut" {
            relay.cut();
            answers.write_all(b"\n").unwrap();
        }
    }
    assert!(client.0.wait().unwrap().success() && last == "done", "{program}: {last}");
}

/// Directly with a redis-server, then through the proxy.
#[track_caller]
fn check(program: &str, arguments: &[&Path], variables: &[(&str, &Path)]) {
    let redis = Program::redis();
    run(program, arguments, variables, redis.address);
    let sharded = Sharded::start(|config| config.threads = 2);
    run(program, arguments, variables, sharded.address());
}

/// Whether a client is installed; if not, the closing line counts the test as skipped.
fn is_installed(client: &str, path: &Path) -> bool {
    if !is_there("redis-server") {
        return false;
    }
    let there = path.exists();
    if !there {
        // Bypasses libtest, which captures what a passing test prints by println!.
        let line = format!("SKIPPED: {client} is not there (`cargo xtask redis-clients {client}` installs it)\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
    there
}

#[test]
fn ioredis_works_through_the_proxy() {
    let modules = installed().join("ioredis/node_modules");
    if is_installed("ioredis", &modules.join("ioredis")) {
        check("node", &[&source("ioredis.js")], &[("NODE_PATH", &modules)]);
    }
}

#[test]
fn go_redis_works_through_the_proxy() {
    let program = installed().join("go-redis/clients");
    if is_installed("go-redis", &program) {
        check(program.to_str().unwrap(), &[], &[]);
    }
}

#[test]
fn jedis_works_through_the_proxy() {
    let folder = installed().join("jedis");
    if is_installed("jedis", &folder.join("Clients.class")) {
        let classes = PathBuf::from(format!("{0}:{0}/*", folder.display()));
        check("java", &[Path::new("-cp"), &classes, Path::new("Clients")], &[]);
    }
}
