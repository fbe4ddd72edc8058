//! A server on a free loopback port for the tests, with protocols made by a closure.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses its part

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use reactor::{
    Accept, ConnectionId, Factory, FileRange, Io, Loop, Piece, Protocol, Reactor, ReactorMetrics, ReactorSettings,
    RunningReactor, Setup, Traffic,
};

/// Longest wait of any test for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

type Make = dyn Fn(ConnectionId, &Loop) -> Option<Box<dyn Protocol>> + Send + Sync;

/// A factory made of a closure.
pub(crate) struct Making(Arc<Make>);

impl Making {
    pub(crate) fn each(make: impl Fn(ConnectionId, &Loop) -> Box<dyn Protocol> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Arc::new(move |id, lp| Some(make(id, lp)))))
    }

    pub(crate) fn some(
        make: impl Fn(ConnectionId, &Loop) -> Option<Box<dyn Protocol>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self(Arc::new(make)))
    }
}

impl Factory for Making {
    fn acceptor(&self, _setup: &mut Setup<'_>) -> Box<dyn Accept> {
        Box::new(Making(Arc::clone(&self.0)))
    }
}

impl Accept for Making {
    fn accept(&mut self, _peer: SocketAddr, id: ConnectionId, lp: &Loop) -> Option<Box<dyn Protocol>> {
        (self.0)(id, lp)
    }
}

/// Echoes its input, and finishes when the peer does.
pub(crate) struct Echo;

impl Protocol for Echo {
    fn input(&mut self, io: &mut Io<'_>) {
        let (input, output) = io.split();
        output.extend_from_slice(input);
        let n = input.len();
        io.consume(n);
        if io.input_ended() {
            io.finish();
        }
    }
}

/// Answers each line with `>` and the line; counts lines against the budget.
pub(crate) struct Lines;

impl Protocol for Lines {
    fn input(&mut self, io: &mut Io<'_>) {
        while let Some(end) = io.input().iter().position(|byte| *byte == b'\n') {
            let (input, output) = io.split();
            output.push(b'>');
            output.extend_from_slice(&input[..=end]);
            io.consume(end + 1);
            if !io.spend(1) {
                return;
            }
        }
        if io.input_ended() {
            io.finish();
        }
    }
}

/// The bytes that a [`FileSender`] sends after each range.
pub(crate) const FILE_TAIL: &[u8] = b" tail\n";

/// Answers each byte with a range of a file between some bytes.
#[derive(Clone)]
pub(crate) struct FileSender(FileRange);

impl FileSender {
    pub(crate) fn new(file: std::fs::File, from: u64, bytes: usize) -> Self {
        Self(FileRange::new(Arc::new(file), from, bytes))
    }
}

impl Protocol for FileSender {
    fn input(&mut self, io: &mut Io<'_>) {
        while !io.input().is_empty() && !io.congested() {
            io.consume(1);
            io.output().extend_from_slice(b"head ");
            let behind = io.output().len();
            io.output().extend_from_slice(FILE_TAIL);
            io.output_pieces(&mut vec![(behind, Piece::File(self.0.clone()))]);
            if !io.spend(1) {
                return;
            }
        }
        if io.input().is_empty() && io.input_ended() {
            io.finish();
        }
    }

    fn writable(&mut self, io: &mut Io<'_>) {
        self.input(io);
    }
}

/// A running reactor with one listener.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) running: RunningReactor,
}

pub(crate) fn loops(loops: usize) -> ReactorSettings {
    ReactorSettings { loops, ..ReactorSettings::default() }
}

/// The same with limits of the connections' own.
pub(crate) fn with(loops_count: usize, traffic: Traffic) -> ReactorSettings {
    ReactorSettings { traffic, ..loops(loops_count) }
}

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn serve(settings: ReactorSettings, factory: Arc<dyn Factory>) -> Server {
    let mut reactor = Reactor::new(settings).unwrap();
    let address = reactor.listen(any_port(), factory).unwrap();
    Server { address, running: reactor.start().unwrap() }
}

impl Server {
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub(crate) fn metrics(&self) -> ReactorMetrics {
        self.running.metrics()
    }

    /// Drains with a generous limit and checks that every loop ended well.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.running.drain(Duration::from_millis(300));
        self.running.join().unwrap();
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    patient(TcpStream::connect(address).unwrap())
}

/// The same from a loopback address of the client's own.
pub(crate) fn connect_from(to: SocketAddr, from: [u8; 4]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    patient(TcpStream::from(socket))
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Writes `request`, reads exactly as many bytes as `reply` has, compares.
#[track_caller]
pub(crate) fn exchange(stream: &mut TcpStream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).unwrap();
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(reply));
}

/// Ends the write side and returns everything received until the peer ends.
#[track_caller]
pub(crate) fn rest_after_half_close(stream: &mut TcpStream) -> Vec<u8> {
    stream.shutdown(Shutdown::Write).unwrap();
    rest(stream)
}

#[track_caller]
pub(crate) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Blocks the loop until the sender is dropped, so that bytes sent meanwhile arrive together.
pub(crate) fn hold(lp: &Loop) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (begun, holding) = mpsc::channel();
    lp.run(Box::new(move |_| {
        begun.send(()).unwrap();
        let _ = held.recv();
    }));
    holding.recv().unwrap();
    release
}

/// Waits until `condition` holds; a test that waits too long fails.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
