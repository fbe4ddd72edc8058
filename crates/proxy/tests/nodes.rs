//! Programs that tests start: redis-server and nutcracker, on loopback and free ports, ended with their handles.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a program is on the PATH; where not, the closing line counts the test as skipped.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !there {
        // Past libtest, which keeps what a passing test prints by println!.
        let _ = writeln!(std::io::stdout(), "SKIPPED: {program} is not installed");
    }
    there
}

/// A port of loopback that nothing listens on at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program that listens.
pub(crate) struct Program {
    process: Child,
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
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let program = Program { process, address: SocketAddr::from(([127, 0, 0, 1], port)) };
        let started = Instant::now();
        while TcpStream::connect(program.address).is_err() {
            assert!(started.elapsed() < PATIENCE, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        program
    }

    /// A Redis that keeps nothing on disk.
    pub(crate) fn redis() -> Program {
        let port = free_port();
        let arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp", "--port"];
        Program::start(Command::new("redis-server").args(arguments).arg(port.to_string()), port)
    }
}

/// A plain connection: requests as arrays of bulk strings.
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
}
