//! Ports, placement of connections on loops, and the limit of their number.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::harness::{Echo, Making, Server, connect, eventually, exchange, loops, serve};
use reactor::{Reactor, ReactorSettings, RunningReactor};

fn echo(settings: ReactorSettings) -> Server {
    serve(settings, Making::each(|_, _| Box::new(Echo)))
}

fn try_serve(address: SocketAddr, loops_count: usize) -> std::io::Result<RunningReactor> {
    let mut reactor = Reactor::new(loops(loops_count))?;
    reactor.listen(address, Making::each(|_, _| Box::new(Echo)))?;
    reactor.start()
}

#[track_caller]
fn check_refused(address: SocketAddr, loops_count: usize) {
    let error = try_serve(address, loops_count).err().expect("a second server on the port");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_second_server_on_the_port_is_refused() {
    for first_loops in [1, 2] {
        let server = echo(loops(first_loops));
        check_refused(server.address, 1);
        check_refused(server.address, 2);
        exchange(&mut server.connect(), b"undisturbed", b"undisturbed");
        server.stop();
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    check_refused(other.local_addr().unwrap(), 2);
}

#[test]
fn of_servers_that_start_together_one_gets_the_port() {
    for _ in 0..20 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let together = Arc::new(Barrier::new(4));
        let starting: Vec<_> = (0..4)
            .map(|_| {
                let together = Arc::clone(&together);
                std::thread::spawn(move || {
                    together.wait();
                    try_serve(free, 2)
                })
            })
            .collect();
        let started: Vec<_> = starting.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect();
        assert_eq!(started.len(), 1);
        for running in started {
            running.drain(Duration::ZERO);
            running.join().unwrap();
        }
    }
}

#[test]
fn a_port_can_be_taken_again_after_a_restart() {
    let server = echo(loops(2));
    let address = server.address;
    let mut stream = server.connect();
    exchange(&mut stream, b"x", b"x");
    // The server closes first, so its side stays in TIME_WAIT.
    server.running.drain(Duration::from_secs(10));
    assert_eq!(crate::harness::rest(&mut stream), b"");
    drop(stream);
    server.running.join().unwrap();
    let again = try_serve(address, 2).unwrap();
    exchange(&mut connect(address), b"y", b"y");
    again.drain(Duration::from_millis(100));
    again.join().unwrap();
}

fn open_per_loop(server: &Server) -> Vec<u64> {
    server.metrics().loops.iter().map(|l| l.open).collect()
}

#[track_caller]
fn check_spread(loops_count: usize, connections: usize, differs_by: u64) {
    let server = echo(loops(loops_count));
    let streams: Vec<TcpStream> = (0..connections)
        .map(|_| {
            let mut stream = server.connect();
            exchange(&mut stream, b"x", b"x"); // one after another, so that the counts are settled
            stream
        })
        .collect();
    let open = open_per_loop(&server);
    assert_eq!(open.iter().sum::<u64>(), connections as u64);
    let (least, most) = (open.iter().min().unwrap(), open.iter().max().unwrap());
    assert!(most - least <= differs_by, "{connections} connections lie as {open:?}");
    drop(streams);
    eventually("the counts return to zero", || open_per_loop(&server).iter().all(|open| *open == 0));
    server.stop();
}

#[test]
fn few_connections_are_spread_evenly() {
    check_spread(2, 2, 1);
    check_spread(2, 7, 1);
    check_spread(4, 4, 1);
    check_spread(4, 64, 1);
}

#[test]
fn every_loops_listener_gets_its_share_of_connections() {
    let server = echo(loops(3));
    for _ in 0..100 {
        exchange(&mut server.connect(), b"x", b"x");
    }
    let accepted: Vec<u64> = server.metrics().loops.iter().map(|l| l.accepted).collect();
    assert_eq!(accepted.iter().sum::<u64>(), 100);
    assert!(accepted.iter().all(|accepted| *accepted > 5), "accepted: {accepted:?}");
    server.stop();
}

#[test]
fn accepted_sockets_have_no_delay() {
    // TCP_NODELAY is inherited from the listener; should a kernel stop doing so, small replies would wait for ACKs.
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.set_tcp_nodelay(true).unwrap();
    listener.bind(&crate::harness::any_port().into()).unwrap();
    listener.listen(1).unwrap();
    let _client = connect(listener.local_addr().unwrap().as_socket().unwrap());
    assert!(listener.accept().unwrap().0.tcp_nodelay().unwrap());
}

#[test]
fn connections_over_the_bound_wait_until_one_is_closed() {
    let server = echo(ReactorSettings { connections_max: 3, accept_pause: Duration::from_secs(600), ..loops(1) });
    let mut open: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    for stream in &mut open {
        exchange(stream, b"x", b"x");
    }
    let mut waiting: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    eventually("accepting pauses", || server.metrics().sum(|l| l.accept_pauses) > 0);
    assert_eq!(server.metrics().sum(|l| l.open), 3);
    for mut stream in waiting.drain(..) {
        open.pop();
        exchange(&mut stream, b"now", b"now");
        open.push(stream);
        open.rotate_right(1);
    }
    assert_eq!(server.metrics().sum(|l| l.accepted), 6);
    drop(open);
    server.stop();
}

#[test]
fn another_loops_room_is_found_after_the_pause() {
    // Whichever loop has room, connections that wait in the other's backlog are accepted by its timer.
    let settings = ReactorSettings { connections_max: 4, accept_pause: Duration::from_millis(5), ..loops(2) };
    let server = echo(settings);
    let open: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    eventually("all are in", || server.metrics().sum(|l| l.open) == 4);
    let mut waiting: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    drop(open);
    for stream in &mut waiting {
        exchange(stream, b"now", b"now");
    }
    server.stop();
}

#[test]
fn a_refused_connection_is_closed_and_leaves_no_trace() {
    let server = serve(loops(1), Making::some(|_, _| None));
    assert_eq!(crate::harness::rest(&mut server.connect()), b"");
    eventually("it is counted", || server.metrics().sum(|l| l.refused) == 1);
    assert_eq!(server.metrics().sum(|l| l.open), 0);
    server.stop();
}

#[test]
fn an_acceptor_that_panics_refuses() {
    let server = serve(loops(1), Making::each(|_, _| panic!("in accept")));
    assert_eq!(crate::harness::rest(&mut server.connect()), b"");
    eventually("it is counted", || server.metrics().sum(|l| l.panics) == 1);
    server.stop();
}
