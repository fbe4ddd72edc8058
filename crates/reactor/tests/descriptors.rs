//! A process without free descriptors: new connections wait, the loop neither spins nor dies. A test binary of its own,
//! for the limit is the whole process's.
#![allow(clippy::unwrap_used, unsafe_code)] // setrlimit has no safe binding among our libraries

mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::Duration;

use harness::{Echo, Making, eventually, loops, serve};
use reactor::{Closed, ConnectFailure, Io, Protocol, ReactorSettings};

/// Reports how it ended.
struct Telling(mpsc::Sender<Closed>);

impl Protocol for Telling {
    fn input(&mut self, _io: &mut Io<'_>) {}
    fn closed(&mut self, reason: Closed) {
        self.0.send(reason).unwrap();
    }
}

fn limit_descriptors(soft: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a live local.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = soft.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// The number that the next descriptor gets: the kernel takes the lowest free one.
fn next_descriptor() -> u64 {
    std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64
}

#[test]
fn without_descriptors_connections_wait_and_the_loop_sleeps() {
    const CLIENTS: usize = 20;
    const FREE: u64 = 5;
    let settings = ReactorSettings { accept_pause: Duration::from_millis(50), ..loops(1) };
    let server = serve(settings, Making::each(|_, _| Box::new(Echo)));
    let (release, held) = mpsc::channel::<()>();
    let (begun, holding) = mpsc::channel();
    server.running.loops()[0].run(Box::new(move |_| {
        begun.send(()).unwrap();
        let _ = held.recv();
    }));
    holding.recv().unwrap();
    // While the loop is held, the kernel completes the connections; their accepted sides take no descriptor yet.
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(&[number as u8]).unwrap();
    }
    limit_descriptors(next_descriptor() + FREE);
    drop(release);

    eventually("accepting pauses", || server.metrics().sum(|l| l.accept_pauses) > 0);
    let accepted = server.metrics().sum(|l| l.accepted) as usize;
    assert_eq!(accepted as u64, FREE);
    let before = server.metrics().sum(|l| l.ticks);
    std::thread::sleep(Duration::from_millis(500));
    let ticks = server.metrics().sum(|l| l.ticks) - before;
    assert!(ticks < 60, "{ticks} ticks in half a second without descriptors: it spins");

    // An outgoing connection does not wait: it fails at once, with the reason.
    let (told, reason) = mpsc::channel();
    server.running.loops()[0].connect(server.address, Box::new(|_, _| Box::new(Telling(told))));
    assert_eq!(reason.recv_timeout(harness::PATIENCE), Ok(Closed::Unconnected(ConnectFailure::TooManyDescriptors)));

    // Each connection that ends makes room for the next, without waiting for the pause to end. The backlog is in order.
    for (number, mut client) in clients.into_iter().enumerate() {
        let mut reply = [0];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(usize::from(reply[0]), number);
    }
    limit_descriptors(u64::MAX);
    eventually("all were served", || server.metrics().sum(|l| l.accepted) == CLIENTS as u64);
    eventually("all are closed", || server.metrics().sum(|l| l.open) == 0);
    server.stop();
}
