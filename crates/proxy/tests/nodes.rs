//! Programs that tests start: redis-server and nutcracker, on loopback and free ports, ended when their handles are dropped.

pub(crate) mod cluster;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proxy::Address;
use proxy::config::{NodeConfig, ProxyConfig};
use proxy::placement::Placement;
use resp::codec::{FrameLimits, ReplyFramer};

/// Every wait ends after this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path of a program: on the PATH, or where `cargo xtask redis` puts it. `REDIS_SERVER` names another redis-server, such as
/// an older version or Valkey.
fn found(program: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("REDIS_SERVER").filter(|_| program == "redis-server") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The test program lies in target/PROFILE/deps.
    let target = std::env::current_exe().ok().and_then(|program| Some(program.ancestors().nth(3)?.join("redis")));
    let unpacked = target.into_iter().flat_map(|folder| [folder.clone(), folder.join("usr/sbin")]);
    let folders = std::env::split_paths(&path).chain(unpacked);
    folders.map(|folder| folder.join(program)).find(|program| program.is_file())
}

/// Whether a program is installed; if not, the closing line counts the test as skipped.
pub(crate) fn is_there(program: &str) -> bool {
    let there = found(program).is_some();
    if !there {
        // Bypasses libtest, which captures what a passing test prints by println!.
        let _ = writeln!(std::io::stdout(), "SKIPPED: {program} is not there (`cargo xtask redis` installs servers)");
    }
    there
}

/// The path of an installed program.
pub(crate) fn command(program: &str) -> Command {
    Command::new(found(program).unwrap_or_else(|| program.into()))
}

/// A port of loopback on which no program listens at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Number of ports to try for one server.
pub(crate) const PORTS_TRIED: usize = 5;

/// A program that listens on a port.
pub(crate) struct Program {
    process: Child,
    port: u16,
    pub(crate) address: SocketAddr,
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ends the process that this test started.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Program {
    /// Starts a program and waits until it listens on a port of loopback.
    pub(crate) fn start(command: &mut Command, port: u16) -> Program {
        Program::try_start(command, port).unwrap_or_else(|| panic!("{command:?} ended before it listened"))
    }

    /// The same. None if the program ends before it listens, for example because its port was taken meanwhile.
    pub(crate) fn try_start(command: &mut Command, port: u16) -> Option<Program> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut program = Program { process, port, address: SocketAddr::from(([127, 0, 0, 1], port)) };
        let started = Instant::now();
        loop {
            if program.process.try_wait().unwrap().is_some() {
                return None;
            }
            if TcpStream::connect(program.address).is_ok() {
                return Some(program);
            }
            assert!(started.elapsed() < PATIENCE, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A Redis without persistence.
    pub(crate) fn redis() -> Program {
        Program::redis_with(&[])
    }

    /// The same with more arguments.
    pub(crate) fn redis_with(more: &[&str]) -> Program {
        // Another test's server may have taken the port before this one used it: then another process answers.
        let mut tries = std::iter::repeat_with(free_port).take(PORTS_TRIED);
        let started = tries.find_map(|port| Program::try_redis_at(port, more).filter(Program::answers_itself));
        started.expect("a port that no other process takes")
    }

    /// Whether the server that answers on the port is this process. Another one may end meanwhile.
    fn answers_itself(&self) -> bool {
        let own = format!("process_id:{}\r\n", self.process.id());
        self.info().is_ok_and(|info| info.contains(&own))
    }

    /// The reply to INFO of the server on the port.
    fn info(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"INFO server\r\nQUIT\r\n")?;
        let mut info = String::new();
        stream.read_to_string(&mut info)?;
        Ok(info)
    }

    /// Kills it, as a crash would; returns its port.
    pub(crate) fn kill(self) -> u16 {
        self.port
    }

    /// Sends it a signal, such as STOP or CONT.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Starts it on this port.
    pub(crate) fn redis_at(port: u16) -> Program {
        Program::try_redis_at(port, &[]).expect("redis-server ended before it listened")
    }

    pub(crate) fn try_redis_at(port: u16, more: &[&str]) -> Option<Program> {
        let arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp", "--port"];
        Program::try_start(command("redis-server").args(arguments).arg(port.to_string()).args(more), port)
    }
}

/// Four nodes and a proxy before them, in this process.
pub(crate) struct Sharded {
    pub(crate) nodes: Vec<Program>,
    pub(crate) proxy: Option<proxy::RunningProxy>,
}

impl Sharded {
    /// Starts the nodes, and a proxy whose configuration `change` may adapt.
    pub(crate) fn start(change: impl FnOnce(&mut ProxyConfig)) -> Sharded {
        let nodes: Vec<Program> = (0..4).map(|_| Program::redis()).collect();
        let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
        Sharded { nodes, proxy: Some(start_proxy(&addresses, change)) }
    }

    pub(crate) fn proxy(&self) -> &proxy::RunningProxy {
        self.proxy.as_ref().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        address_of(self.proxy())
    }

    pub(crate) fn connect(&self) -> Plain {
        Plain::connect(self.address())
    }

    /// A key of the node with this number.
    pub(crate) fn key_of(&self, node: usize) -> String {
        key_of(node, self.nodes.len(), 0)
    }
}

impl Drop for Sharded {
    fn drop(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.drain(Duration::ZERO);
            let _ = proxy.join();
        }
    }
}

/// Starts a proxy for these nodes.
pub(crate) fn start_proxy(nodes: &[SocketAddr], change: impl FnOnce(&mut ProxyConfig)) -> proxy::RunningProxy {
    let mut config = ProxyConfig::new(nodes.iter().map(|address| node(*address)).collect());
    config.threads = 1;
    change(&mut config);
    proxy::start(config, &[proxy::parse_address("127.0.0.1:0").unwrap()]).unwrap()
}

/// The address of a proxy.
pub(crate) fn address_of(proxy: &proxy::RunningProxy) -> SocketAddr {
    let Address::Tcp(address) = &proxy.addresses()[0] else { panic!("it listens on a Unix socket") };
    *address
}

/// A node as parsed from the command line.
pub(crate) fn node(address: SocketAddr) -> NodeConfig {
    let name = address.to_string();
    NodeConfig { ring_name: name.clone(), name, address: address.into(), weight: 1 }
}

/// The `nth` key that CRC-32 maps to this node, for this number of nodes.
pub(crate) fn key_of(node: usize, nodes: usize, nth: usize) -> String {
    let placement = Placement::Crc32 { nodes, hash_tag: None };
    (0..)
        .map(|number| format!("key:{number}"))
        .filter(|key| placement.node(key.as_bytes(), 0) == node)
        .nth(nth)
        .unwrap()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A raw connection that sends requests as arrays of bulk strings.
pub(crate) struct Plain(BufReader<TcpStream>);

impl Plain {
    pub(crate) fn connect(address: SocketAddr) -> Plain {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Plain(BufReader::new(stream))
    }

    /// Sends commands without waiting for replies.
    pub(crate) fn send<'a>(&mut self, commands: impl IntoIterator<Item = &'a [&'a [u8]]>) {
        let mut bytes = Vec::new();
        for arguments in commands {
            bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
            for argument in arguments {
                bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                bytes.extend_from_slice(argument);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.0.get_mut().write_all(&bytes).unwrap();
    }

    /// A line of a reply, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the connection ended: {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    /// A reply that is an array of bulk strings.
    pub(crate) fn texts(&mut self) -> Vec<Vec<u8>> {
        let count = self.line();
        let count: usize = count.strip_prefix('*').unwrap_or_else(|| panic!("{count}")).parse().unwrap();
        let mut texts = Vec::with_capacity(count);
        for _ in 0..count {
            let length: usize = self.line().strip_prefix('$').unwrap().parse().unwrap();
            let mut text = vec![0; length + 2];
            self.0.read_exact(&mut text).unwrap();
            text.truncate(length);
            texts.push(text);
        }
        texts
    }

    /// Sends a command and returns its raw reply.
    pub(crate) fn reply(&mut self, arguments: &[&str]) -> Vec<u8> {
        self.send([&*arguments.iter().map(|argument| argument.as_bytes()).collect::<Vec<_>>()]);
        self.next_reply()
    }

    /// The same as text.
    pub(crate) fn text(&mut self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.reply(arguments)).into_owned()
    }

    /// Sends raw bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The same, if the connection has not ended.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// The connection itself.
    pub(crate) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    /// Whether the connection ends in time, for any reason; unread replies are dropped.
    pub(crate) fn has_ended(&mut self) -> bool {
        match std::io::copy(&mut self.0, &mut std::io::sink()) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// The next raw reply.
    pub(crate) fn next_reply(&mut self) -> Vec<u8> {
        self.try_reply().expect("the connection has ended")
    }

    /// The next raw reply; none if the connection ends before.
    pub(crate) fn try_reply(&mut self) -> Option<Vec<u8>> {
        let mut framer = ReplyFramer::new(FrameLimits::default());
        let mut reply = Vec::new();
        loop {
            let input = match self.0.fill_buf() {
                // By the end of a program that a test has started.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                input => input.unwrap(),
            };
            if input.is_empty() {
                return None;
            }
            let advance = framer.advance(input).unwrap();
            reply.extend_from_slice(&input[..advance.consumed]);
            self.0.consume(advance.consumed);
            if advance.is_complete {
                return Some(reply);
            }
        }
    }
}
