//! How connections end: without losing a reply, within bounds, and without effect on others.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use crate::harness::{Making, Server, eventually, exchange, loops, rest, serve, with};
use reactor::{Closed, Io, LoopMetrics, Message, Protocol, ReactorSettings, Traffic};

/// Answers the first line with `reply` and finishes, whatever follows; reports the reason of its close.
struct Once {
    reply: Arc<[u8]>,
    closed: Sender<Closed>,
}

impl Protocol for Once {
    fn input(&mut self, io: &mut Io<'_>) {
        if io.input().contains(&b'\n') {
            io.output_shared(Arc::clone(&self.reply));
            io.finish();
        }
    }
    fn closed(&mut self, reason: Closed) {
        self.closed.send(reason).unwrap();
    }
}

fn once(settings: ReactorSettings, reply_bytes: usize) -> (Server, mpsc::Receiver<Closed>) {
    let (closed, reasons) = mpsc::channel();
    let reply: Arc<[u8]> = vec![b'r'; reply_bytes].into();
    let server =
        serve(settings, Making::each(move |_, _| Box::new(Once { reply: Arc::clone(&reply), closed: closed.clone() })));
    (server, reasons)
}

#[track_caller]
fn check_reply_survives(reply_bytes: usize, stray_before: usize, stray_after: usize) {
    let (server, reasons) = once(loops(1), reply_bytes);
    let mut stream = server.connect();
    stream.write_all(&[b"line\n", vec![b'.'; stray_before].as_slice()].concat()).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..stray_after {
            writing.write_all(b"stray ").unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        writing.shutdown(std::net::Shutdown::Write).unwrap();
    });
    // Read only after the stray bytes had every chance to provoke a reset.
    writer.join().unwrap();
    assert_eq!(rest(&mut stream).len(), reply_bytes);
    assert_eq!(reasons.recv_timeout(crate::harness::PATIENCE).unwrap(), Closed::Finished);
    server.stop();
}

#[test]
fn bytes_after_the_last_request_cost_no_reply() {
    check_reply_survives(100, 0, 0);
    check_reply_survives(100, 10, 0);
    check_reply_survives(100, 0, 30);
    check_reply_survives(100_000, 100_000, 30);
}

#[track_caller]
fn check_closed(server: Server, reasons: &mpsc::Receiver<Closed>, expected: Closed, count: fn(&LoopMetrics) -> u64) {
    assert_eq!(reasons.recv_timeout(crate::harness::PATIENCE).unwrap(), expected);
    eventually("it is counted", || server.metrics().sum(count) == 1 && server.metrics().sum(|l| l.open) == 0);
    server.stop();
}

#[test]
fn a_peer_that_never_closes_is_left_after_the_linger_time() {
    let (server, reasons) = once(with(1, Traffic { linger_max: Duration::from_millis(50), ..Traffic::default() }), 10);
    let mut stream = server.connect();
    stream.write_all(b"line\n").unwrap();
    assert_eq!(rest(&mut stream).len(), 10);
    check_closed(server, &reasons, Closed::Finished, |l| l.closed_finished);
}

#[test]
fn a_peer_that_sends_without_end_is_left_after_the_linger_bytes() {
    let settings =
        with(1, Traffic { linger_bytes_max: 10_000, linger_max: Duration::from_secs(600), ..Traffic::default() });
    let (server, reasons) = once(settings, 10);
    let mut stream = server.connect();
    stream.write_all(b"line\n").unwrap();
    // In small pieces, so that no single read reaches the bound.
    for _ in 0..5000 {
        if stream.write_all(&[b'.'; 100]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    check_closed(server, &reasons, Closed::Finished, |l| l.closed_finished);
}

#[test]
fn a_peer_that_takes_nothing_is_cut_after_the_stall_time() {
    let (server, reasons) =
        once(with(1, Traffic { send_behind_max: Duration::from_millis(50), ..Traffic::default() }), 64_000_000);
    let mut stream = server.connect();
    stream.write_all(b"line\n").unwrap();
    check_closed(server, &reasons, Closed::Stalled, |l| l.closed_stalled);
}

#[test]
fn a_peer_that_resets_is_noticed() {
    let (server, reasons) = once(loops(1), 10);
    let mut stream = server.connect();
    stream.write_all(b"no line end").unwrap();
    eventually("it arrived", || server.metrics().sum(|l| l.bytes_in) == 11);
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    check_closed(server, &reasons, Closed::Peer, |l| l.closed_peer);
}

/// Panics in the call that its first byte names.
struct Fragile {
    closed: Arc<AtomicUsize>,
    trigger: u8,
}

impl Protocol for Fragile {
    fn input(&mut self, io: &mut Io<'_>) {
        self.trigger = io.input().first().copied().unwrap_or(self.trigger);
        let n = io.input().len();
        io.consume(n);
        match self.trigger {
            b'i' => panic!("in input"),
            b't' => io.set_timer(Some(Duration::from_millis(1))),
            b'p' => io.set_precise_timer(Some(1)),
            b'm' => io.lp().send(io.id(), Message { tag: 0, payload: Box::new(()) }),
            b'w' => io.notify_writable(),
            b'a' => io.abort(),
            b'c' => io.finish(),
            _ if n > 0 => io.output().extend_from_slice(b"fine"),
            _ => io.finish(),
        }
    }
    fn timer(&mut self, _io: &mut Io<'_>) {
        panic!("in timer");
    }
    fn precise_timer(&mut self, _io: &mut Io<'_>) {
        panic!("in precise_timer");
    }
    fn message(&mut self, _message: Message, _io: &mut Io<'_>) {
        panic!("in message");
    }
    fn writable(&mut self, _io: &mut Io<'_>) {
        panic!("in writable");
    }
    fn closed(&mut self, _reason: Closed) {
        self.closed.fetch_add(1, Ordering::SeqCst);
        assert!(self.trigger != b'c', "in closed");
    }
}

#[test]
fn a_panic_closes_its_connection_and_no_other() {
    let closed = Arc::new(AtomicUsize::new(0));
    let of_server = Arc::clone(&closed);
    let server =
        serve(loops(1), Making::each(move |_, _| Box::new(Fragile { closed: Arc::clone(&of_server), trigger: b'?' })));
    let mut neighbour = server.connect();
    exchange(&mut neighbour, b"x", b"fine");
    for (nth, trigger) in (1..).zip(["i", "t", "p", "m", "w", "c"]) {
        let mut stream = server.connect();
        stream.write_all(trigger.as_bytes()).unwrap();
        let mut nothing = [0];
        assert_eq!(stream.read(&mut nothing).unwrap_or(0), 0, "{trigger}: closed without a reply");
        drop(stream);
        eventually("the panic is counted", || server.metrics().sum(|l| l.panics) == nth);
        eventually("closed is called", || closed.load(Ordering::SeqCst) as u64 == nth);
        exchange(&mut neighbour, b"x", b"fine");
    }
    assert_eq!(server.metrics().sum(|l| l.closed_panicked), 5, "all but the one in `closed` itself");
    server.stop();
}

#[test]
fn abort_closes_at_once() {
    let server = serve(
        loops(1),
        Making::each(|_, _| Box::new(Fragile { closed: Arc::new(AtomicUsize::new(0)), trigger: b'?' })),
    );
    let mut stream = server.connect();
    stream.write_all(b"a").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    eventually("it is counted", || server.metrics().sum(|l| l.closed_aborted) == 1);
    server.stop();
}
