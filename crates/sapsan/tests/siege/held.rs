//! Connections of attackers: from an address of their own, with a small window of what the kernel takes for them.

use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the kernel keeps for a client that does not read: the rest is the server's to hold.
const WINDOW_BYTES: usize = 4096;
const CONNECT: Duration = Duration::from_secs(2);
/// Connections that one attack opens in one go.
const OPENED_AT_ONCE: usize = 40;
const REST: Duration = Duration::from_millis(20);

/// What became of an attack.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) closed: AtomicU64,
    /// Replies whose status is 2xx, 4xx, 5xx.
    pub(crate) replies: [AtomicU64; 3],
    pub(crate) bytes: AtomicU64,
}

impl Told {
    pub(crate) fn count(&self, status: u16) {
        let place = match status {
            200..300 => 0,
            400..500 => 1,
            500..600 => 2,
            _ => return,
        };
        self.replies[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// Who attacks: where, from which address, until when, and what became of it.
pub(crate) struct Attacker<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) from: Ipv4Addr,
    pub(crate) over: &'a AtomicBool,
    pub(crate) told: &'a Told,
}

impl Attacker<'_> {
    pub(crate) fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// A new connection; `None` where there is none to be had now.
    pub(crate) fn connect(&self, window_bytes: Option<usize>) -> Option<TcpStream> {
        let connected = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((self.from, 0)).into())?;
            if let Some(bytes) = window_bytes {
                socket.set_recv_buffer_size(bytes)?;
            }
            socket.connect_timeout(&self.server.into(), CONNECT)?;
            Ok::<TcpStream, std::io::Error>(socket.into())
        };
        let count = |which: &AtomicU64| which.fetch_add(1, Ordering::Relaxed);
        match connected() {
            Ok(stream) => {
                count(&self.told.connections);
                Some(stream)
            }
            Err(_) => {
                count(&self.told.refused);
                std::thread::sleep(REST);
                None
            }
        }
    }

    /// Holds so many connections, each of which has sent this and reads nothing, or `trickle` bytes now and then. What the server
    /// closes is opened anew.
    pub(crate) fn hold(&self, count: usize, bytes: impl Fn(usize) -> Vec<u8>, trickle: Option<(Duration, usize)>) {
        let (mut held, mut opened): (Vec<Held>, usize) = (Vec::new(), 0);
        while self.goes_on() {
            for _ in 0..OPENED_AT_ONCE.min(count - held.len()) {
                let Some(stream) = self.connect(Some(WINDOW_BYTES)) else { break };
                let _ = stream.set_nonblocking(true);
                held.push(Held { stream, rest: bytes(opened), looked: Instant::now() });
                opened += 1;
            }
            let before = held.len();
            held.retain_mut(|held| held.goes_on(trickle, self.told));
            self.told.closed.fetch_add((before - held.len()) as u64, Ordering::Relaxed);
            std::thread::sleep(REST);
        }
    }

    /// Sends requests one after another and reads the replies, on one connection as long as it lasts. One whose reply takes longer than
    /// the patience is left.
    pub(crate) fn ask(&self, patience: Duration, request: impl Fn(u64) -> Vec<u8>) {
        let (mut connection, mut number) = (None, 0);
        while self.goes_on() {
            let Some(mut stream) = connection.take().or_else(|| self.connect(None)) else { continue };
            let _ = stream.set_read_timeout(Some(patience));
            let _ = stream.set_write_timeout(Some(patience));
            number += 1;
            let status = stream.write_all(&request(number)).and_then(|()| reply(&mut stream, self.told));
            match status {
                Ok(status) => {
                    self.told.count(status);
                    if status == 503 {
                        std::thread::sleep(REST);
                    }
                    connection = Some(stream);
                }
                Err(_) => drop(self.told.closed.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// Sends requests, waits a moment and goes without a look at the replies: closing a socket that has bytes unread resets it.
    pub(crate) fn ask_and_reset(&self, pause: Duration, request: impl Fn(u64) -> Vec<u8>) {
        let mut number = 0;
        while self.goes_on() {
            let Some(mut stream) = self.connect(Some(WINDOW_BYTES)) else { continue };
            let _ = stream.set_write_timeout(Some(pause));
            number += 1;
            let _ = stream.write_all(&request(number));
            std::thread::sleep(pause);
        }
    }
}

struct Held {
    stream: TcpStream,
    /// What is still to be sent.
    rest: Vec<u8>,
    looked: Instant,
}

impl Held {
    /// Sends on, and reads a little where it is time; whether the connection is there.
    fn goes_on(&mut self, trickle: Option<(Duration, usize)>, told: &Told) -> bool {
        if !self.rest.is_empty() {
            match self.stream.write(&self.rest) {
                Ok(count) => drop(self.rest.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        let mut byte = [0; 64];
        let wanted = match trickle {
            Some((every, bytes)) if self.looked.elapsed() >= every => bytes.min(byte.len()),
            // Looked at and left there: whether it was closed.
            _ => {
                return !matches!(self.stream.peek(&mut byte[..1]), Ok(0))
                    && self.stream.take_error().is_ok_and(|error| error.is_none());
            }
        };
        self.looked = Instant::now();
        match self.stream.read(&mut byte[..wanted]) {
            Ok(0) => false,
            Ok(count) => {
                told.bytes.fetch_add(count as u64, Ordering::Relaxed);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Reads a reply to its end; gives its status.
fn reply(stream: &mut TcpStream, told: &Told) -> std::io::Result<u16> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let mut read = |stream: &mut TcpStream, bytes: &mut Vec<u8>| {
        let count = stream.read(&mut piece)?;
        told.bytes.fetch_add(count as u64, Ordering::Relaxed);
        bytes.extend_from_slice(&piece[..count]);
        if count == 0 { Err(std::io::Error::from(ErrorKind::UnexpectedEof)) } else { Ok(()) }
    };
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        read(stream, &mut bytes)?;
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).to_ascii_lowercase();
    let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    if let Some(length) = length {
        while bytes.len() < head_end + length {
            read(stream, &mut bytes)?;
        }
    } else if head.contains("transfer-encoding: chunked") {
        while !bytes.ends_with(b"0\r\n\r\n") {
            let kept = bytes.len().saturating_sub(8).max(head_end.min(bytes.len()));
            // Only the end is looked at.
            bytes.drain(head_end.min(kept)..kept);
            read(stream, &mut bytes)?;
        }
    }
    if head.contains("connection: close") { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(status) }
}
