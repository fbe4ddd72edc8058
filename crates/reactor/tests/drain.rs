//! Draining: what had arrived is served, connections that hang are closed at the deadline, the port is free afterwards.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use crate::harness::{Making, PATIENCE, Server, eventually, exchange, loops, rest, serve, with};
use reactor::{Closed, Io, Protocol, Traffic};

/// `Lines`; a stubborn one waits for its peer's end when the loop drains.
struct Drained {
    stubborn: bool,
    told: Sender<&'static str>,
    lines: crate::harness::Lines,
}

impl Protocol for Drained {
    fn input(&mut self, io: &mut Io<'_>) {
        self.lines.input(io);
    }
    fn drain(&mut self, io: &mut Io<'_>) {
        self.told.send("drain").unwrap();
        if !self.stubborn {
            io.finish();
        }
    }
    fn closed(&mut self, reason: Closed) {
        let told = match reason {
            Closed::Drained => "cut",
            Closed::Finished => "finished",
            _ => "other",
        };
        self.told.send(told).unwrap();
    }
}

fn server(loops_count: usize, stubborn: bool) -> (Server, mpsc::Receiver<&'static str>) {
    let (told, tellings) = mpsc::channel();
    let make = move |_, _: &_| {
        Box::new(Drained { stubborn, told: told.clone(), lines: crate::harness::Lines }) as Box<dyn Protocol>
    };
    (serve(loops(loops_count), Making::each(make)), tellings)
}

#[track_caller]
fn check_told(tellings: &mpsc::Receiver<&'static str>, expected: &[&str]) {
    let told: Vec<_> = expected.iter().map(|_| tellings.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(told, expected);
}

#[test]
fn an_idle_connection_is_told_and_finished() {
    let (server, tellings) = server(2, false);
    let mut stream = server.connect();
    exchange(&mut stream, b"one\n", b">one\n");
    server.running.drain(Duration::from_secs(600));
    assert_eq!(rest(&mut stream), b"");
    drop(stream);
    server.running.join().unwrap();
    check_told(&tellings, &["drain", "finished"]);
}

#[test]
fn an_idle_peer_that_does_not_close_does_not_hold_the_loop() {
    let (told, tellings) = mpsc::channel();
    let make = move |_, _: &_| {
        Box::new(Drained { stubborn: false, told: told.clone(), lines: crate::harness::Lines }) as Box<dyn Protocol>
    };
    let settings = with(1, Traffic { linger_max: Duration::from_secs(600), ..Traffic::default() });
    let server = serve(settings, Making::each(make));
    let mut stream = server.connect();
    exchange(&mut stream, b"one\n", b">one\n");
    server.running.drain(Duration::from_secs(600));
    let (ended, end) = mpsc::channel();
    let running = server.running;
    std::thread::spawn(move || ended.send(running.join()));
    end.recv_timeout(PATIENCE).unwrap().unwrap();
    check_told(&tellings, &["drain", "finished"]);
    drop(stream);
}

#[test]
fn a_stubborn_connection_is_cut_at_the_deadline() {
    let (server, tellings) = server(2, true);
    let mut stream = server.connect();
    exchange(&mut stream, b"one\n", b">one\n");
    server.running.drain(Duration::from_millis(100));
    check_told(&tellings, &["drain"]);
    exchange(&mut stream, b"two\n", b">two\n"); // requests in progress continue
    assert_eq!(rest(&mut stream), b"");
    server.running.join().unwrap();
    check_told(&tellings, &["cut"]);
}

#[test]
fn a_second_drain_shortens_the_deadline() {
    let (server, tellings) = server(1, true);
    let _stream = server.connect();
    eventually("it is open", || server.metrics().sum(|l| l.open) == 1);
    server.running.drain(Duration::from_secs(600));
    server.running.drain(Duration::from_secs(1200));
    server.running.drain(Duration::ZERO);
    server.running.join().unwrap();
    check_told(&tellings, &["drain", "cut"]);
}

#[test]
fn what_waits_in_the_backlog_is_served_before_the_port_closes() {
    let (server, _tellings) = server(1, false);
    let (release, held) = mpsc::channel::<()>();
    let (begun, holding) = mpsc::channel();
    server.running.loops()[0].run(Box::new(move |_| {
        begun.send(()).unwrap();
        let _ = held.recv();
    }));
    holding.recv().unwrap();
    // The loop is blocked: the kernel completes these connections and queues their data. Accepting them takes more than one tick.
    let mut waiting: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    for stream in &mut waiting {
        stream.write_all(b"hello\n").unwrap();
    }
    server.running.drain(Duration::from_secs(60));
    drop(release);
    for stream in &mut waiting {
        assert_eq!(rest(stream), b">hello\n");
    }
    let address = server.address;
    drop(waiting);
    server.running.join().unwrap();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_loop_without_connections_ends_at_once() {
    let (server, _tellings) = server(2, true);
    server.running.drain(Duration::from_secs(600));
    server.running.join().unwrap();
}
