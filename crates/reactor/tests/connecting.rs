//! Outgoing connections: reasons of failure, their limit, their time limit, and Unix sockets.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::harness::{Echo, Making, PATIENCE, connect, eventually, exchange, loops, rest, serve};
use reactor::{
    Address, Closed, ConnectFailure, Io, LoopContext, LoopState, Outgoing, Protocol, Reactor, ReactorSettings,
    RunningReactor,
};

/// Reports whether it was connected, and how it ended.
struct Telling(Sender<Result<(), Closed>>);

impl Protocol for Telling {
    fn input(&mut self, _io: &mut Io<'_>) {}
    fn writable(&mut self, _io: &mut Io<'_>) {
        self.0.send(Ok(())).unwrap();
    }
    fn closed(&mut self, reason: Closed) {
        self.0.send(Err(reason)).unwrap();
    }
}

fn client(settings: ReactorSettings) -> RunningReactor {
    Reactor::new(settings).unwrap().start().unwrap()
}

fn begin(running: &RunningReactor, to: impl Into<Outgoing>) -> Receiver<Result<(), Closed>> {
    let (told, tellings) = mpsc::channel();
    running.loops()[0].connect(to, Box::new(|_, _| Box::new(Telling(told))));
    tellings
}

fn stop(running: RunningReactor) {
    running.drain(Duration::ZERO);
    running.join().unwrap();
}

#[track_caller]
fn check_failure(settings: ReactorSettings, to: impl Into<Outgoing>, failure: ConnectFailure) {
    let running = client(settings);
    let told = begin(&running, to).recv_timeout(PATIENCE).unwrap();
    assert_eq!(told, Err(Closed::Unconnected(failure)));
    eventually("it is counted", || running.metrics().sum(|l| l.closed_unconnected) == 1);
    assert_eq!(running.metrics().sum(|l| l.open), 0);
    stop(running);
}

fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_port_without_a_server_refuses() {
    check_failure(loops(1), refusing(), ConnectFailure::Refused);
}

/// A listener whose backlog is full: its kernel drops the packets that would open a connection.
fn full() -> (socket2::Socket, Vec<socket2::Socket>, SocketAddr) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = (0..4).map(|_| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let _ = socket.connect_timeout(&address, Duration::from_millis(100));
        socket
    });
    (listener, waiting.collect(), address.as_socket().unwrap())
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_after_the_time_for_it() {
    let (_listener, _waiting, address) = full();
    let settings = ReactorSettings { connect_max: Duration::from_millis(60), ..loops(1) };
    check_failure(settings, address, ConnectFailure::TimedOut);
    let own = Outgoing { connect_max: Some(Duration::from_millis(60)), ..Outgoing::to(address) };
    check_failure(loops(1), own, ConnectFailure::TimedOut);
}

#[test]
fn an_address_that_no_route_leads_to_is_unreachable() {
    // This machine has no IPv6, or has it and no route to the documentation prefix (RFC 3849).
    let running = client(loops(1));
    let to: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
    let own = Outgoing { connect_max: Some(Duration::from_millis(200)), ..Outgoing::to(to) };
    let told = begin(&running, own).recv_timeout(PATIENCE).unwrap();
    use ConnectFailure::{AddressNotAvailable, Other, TimedOut, Unreachable};
    let unsupported = Other(std::io::Error::from_raw_os_error(libc::EAFNOSUPPORT).kind());
    let allowed = [Unreachable, AddressNotAvailable, TimedOut, unsupported].map(Closed::Unconnected);
    assert!(told.is_err_and(|reason| allowed.contains(&reason)), "{told:?}");
    stop(running);
}

#[test]
fn a_unix_socket_whose_file_is_missing_is_not_found() {
    check_failure(loops(1), PathBuf::from("/nowhere/at/all"), ConnectFailure::Other(ErrorKind::NotFound));
}

#[test]
fn outgoing_connections_have_a_bound_apart_from_accepted_ones() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = ReactorSettings { outgoing_max: 2, connections_max: 1, ..loops(1) };
    let server = serve(settings, Making::each(|_, _| Box::new(Echo)));
    let first = begin(&server.running, address);
    assert_eq!(first.recv_timeout(PATIENCE).unwrap(), Ok(()));
    assert_eq!(begin(&server.running, address).recv_timeout(PATIENCE).unwrap(), Ok(()));
    let third = begin(&server.running, address).recv_timeout(PATIENCE).unwrap();
    assert_eq!(third, Err(Closed::Unconnected(ConnectFailure::LimitReached)));
    exchange(&mut server.connect(), b"room for one", b"room for one");
    // A connection that ends makes room for the next.
    let accepted = listener.accept().unwrap().0;
    socket2::SockRef::from(&accepted).set_linger(Some(Duration::ZERO)).unwrap();
    drop(accepted);
    assert!(first.recv_timeout(PATIENCE).unwrap().is_err());
    eventually("one is gone", || server.metrics().sum(|l| l.closed_peer) == 1);
    assert_eq!(begin(&server.running, address).recv_timeout(PATIENCE).unwrap(), Ok(()));
    server.stop();
}

/// Connects as many times as its loop starts, and reports the immediate results.
struct Eager {
    to: SocketAddr,
    told: Sender<Vec<Option<ConnectFailure>>>,
}

impl LoopState for Eager {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        let (told, _) = mpsc::channel();
        let tries = (0..3).map(|_| at.connect(self.to, Box::new(Telling(told.clone()))).err());
        self.told.send(tries.collect()).unwrap();
    }
}

#[test]
fn a_caller_on_the_loop_is_told_at_once_that_the_bound_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let mut reactor = Reactor::new(ReactorSettings { outgoing_max: 2, ..loops(1) }).unwrap();
    let (told, tellings) = mpsc::channel();
    reactor.set_up(move |setup| setup.add_state(Box::new(Eager { to, told: told.clone() })));
    let running = reactor.start().unwrap();
    let tries = tellings.recv_timeout(PATIENCE).unwrap();
    assert_eq!(tries, [None, None, Some(ConnectFailure::LimitReached)]);
    stop(running);
}

#[test]
fn a_unix_socket_is_connected_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut reactor = Reactor::new(loops(1)).unwrap();
    reactor.listen_unix(&path, Making::each(|_, _| Box::new(Echo))).unwrap();
    let server = reactor.start().unwrap();
    let running = client(loops(1));
    let (told, tellings) = mpsc::channel();
    running.loops()[0].connect(path, Box::new(|_, _| Box::new(Asking(told))));
    assert_eq!(tellings.recv_timeout(PATIENCE).unwrap(), b"over a file");
    stop(running);
    stop(server);
}

/// Sends some bytes, and reports the answer.
struct Asking(Sender<Vec<u8>>);

impl Protocol for Asking {
    fn writable(&mut self, io: &mut Io<'_>) {
        io.output().extend_from_slice(b"over a file");
        io.end_output();
    }
    fn input(&mut self, io: &mut Io<'_>) {
        if io.input_ended() {
            self.0.send(io.input().to_vec()).unwrap();
        }
    }
}

#[test]
fn a_unix_socket_without_a_server_refuses_and_one_whose_backlog_is_full_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    check_failure(loops(1), Address::Unix(path.clone()), ConnectFailure::Refused);
    std::fs::remove_file(&path).unwrap();
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    check_failure(loops(1), Address::Unix(path), ConnectFailure::Other(ErrorKind::WouldBlock));
}

#[test]
fn a_connection_that_is_begun_while_the_loop_drains_ends_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = client(loops(1));
    let told = begin(&running, listener.local_addr().unwrap());
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Ok(()));
    running.drain(PATIENCE);
    assert_eq!(rest(&mut listener.accept().unwrap().0), b"");
    running.join().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Err(Closed::Finished));
    assert!(connect(listener.local_addr().unwrap()).peer_addr().is_ok());
}
