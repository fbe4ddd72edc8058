//! A peer that does not read is not read from either; memory stays bounded; nothing is lost.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Making, eventually, exchange, loops, serve, with};
use reactor::{Io, Message, Protocol, Traffic};

const REPLY_BYTES: usize = 1000;

/// Answers each byte with `REPLY_BYTES` of it; records the longest queue.
struct Amplify(Arc<AtomicUsize>);

impl Protocol for Amplify {
    fn input(&mut self, io: &mut Io<'_>) {
        while let Some(&byte) = io.input().first() {
            io.consume(1);
            io.output().extend_from_slice(&[byte; REPLY_BYTES]);
            self.0.fetch_max(io.unsent(), Ordering::SeqCst);
            if !io.spend(1) {
                return;
            }
        }
        if io.input_ended() {
            io.finish();
        }
    }
}

/// Writes until the peer has read nothing for a while; returns the number of bytes taken.
fn write_until_blocked(stream: &mut TcpStream, bytes_max: usize) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut taken, mut waits) = (0, 0);
    while waits < 100 && taken < bytes_max {
        match stream.write(&[b'x'; 4096]) {
            Ok(n) => (taken, waits) = (taken + n, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waits += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    taken
}

#[test]
fn a_peer_that_does_not_read_is_not_read() {
    let longest = Arc::new(AtomicUsize::new(0));
    let of_server = Arc::clone(&longest);
    let settings = with(1, Traffic { output_high_water: 100_000, output_low_water: 10_000, ..Traffic::default() });
    let server = serve(settings, Making::each(move |_, _| Box::new(Amplify(Arc::clone(&of_server)))));
    let mut stream = server.connect();
    let sent = write_until_blocked(&mut stream, 64_000_000);
    assert!(sent < 64_000_000, "the server read all of it");
    // One reply may cross the mark.
    assert!(longest.load(Ordering::SeqCst) <= 100_000 + REPLY_BYTES, "{} bytes queued", longest.load(Ordering::SeqCst));
    let replies_before = server.metrics().sum(|l| l.bytes_out) / REPLY_BYTES as u64;
    assert!((replies_before as usize) < sent, "the queue was the limit, not the input");

    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            n => got += n,
        }
    }
    assert_eq!(got, sent * REPLY_BYTES, "every reply arrives once the peer reads");
    server.stop();
}

/// Takes no input until asked; then counts it.
struct Paused {
    taken: Arc<AtomicUsize>,
    told: Arc<std::sync::Mutex<Option<reactor::ConnectionId>>>,
}

impl Protocol for Paused {
    fn opened(&mut self, io: &mut Io<'_>) {
        io.pause_input();
        *self.told.lock().unwrap() = Some(io.id());
    }
    fn input(&mut self, io: &mut Io<'_>) {
        let n = io.input().len();
        io.consume(n);
        self.taken.fetch_add(n, Ordering::SeqCst);
    }
    fn message(&mut self, message: Message, io: &mut Io<'_>) {
        if message.tag == 1 { io.resume_input() } else { io.pause_input() }
    }
}

#[test]
fn paused_input_stays_in_the_kernel_until_resumed() {
    let (taken, told) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let (server_taken, server_told) = (Arc::clone(&taken), Arc::clone(&told));
    let server = serve(
        loops(1),
        Making::each(move |_, _| Box::new(Paused { taken: Arc::clone(&server_taken), told: Arc::clone(&server_told) })),
    );
    let mut stream = server.connect();
    let sent = write_until_blocked(&mut stream, 256_000_000);
    assert!(sent < 256_000_000);
    assert_eq!((taken.load(Ordering::SeqCst), server.metrics().sum(|l| l.bytes_in)), (0, 0));
    let id = told.lock().unwrap().unwrap();
    server.running.loops()[0].send(id, Message { tag: 1, payload: Box::new(()) });
    eventually("all of it is taken", || taken.load(Ordering::SeqCst) == sent);
    server.stop();
}

/// Sends `left` chunks, each on a call of `writable`.
struct Producer {
    left: usize,
    calls: Arc<AtomicUsize>,
    by_notice: bool,
}

impl Producer {
    fn produce(&mut self, io: &mut Io<'_>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        while self.left > 0 && !io.congested() {
            self.left -= 1;
            io.output().extend_from_slice(&[b'p'; 10_000]);
            if self.by_notice {
                return io.notify_writable();
            }
        }
        if self.left == 0 {
            io.finish();
        }
    }
}

impl Protocol for Producer {
    fn input(&mut self, io: &mut Io<'_>) {
        let n = io.input().len();
        io.consume(n);
        self.produce(io);
    }
    fn writable(&mut self, io: &mut Io<'_>) {
        self.produce(io);
    }
}

#[track_caller]
fn check_production(by_notice: bool, calls_min: usize) {
    let calls = Arc::new(AtomicUsize::new(0));
    let of_server = Arc::clone(&calls);
    let server = serve(
        loops(1),
        Making::each(move |_, _| Box::new(Producer { left: 1000, calls: Arc::clone(&of_server), by_notice })),
    );
    let mut stream = server.connect();
    stream.write_all(b"go").unwrap();
    assert_eq!(crate::harness::rest(&mut stream).len(), 10_000_000);
    assert!(calls.load(Ordering::SeqCst) >= calls_min, "{} calls", calls.load(Ordering::SeqCst));
    server.stop();
}

#[test]
fn a_producer_is_called_at_each_low_water_mark() {
    // At most 256 KB fit between two calls.
    check_production(false, 10_000_000 / (256 * 1024 + 10_000));
}

#[test]
fn a_producer_that_asks_is_called_each_time() {
    check_production(true, 1000);
}

#[test]
fn a_congested_connection_does_not_hold_up_another() {
    let longest = Arc::new(AtomicUsize::new(0));
    let server = serve(loops(1), Making::each(move |_, _| Box::new(Amplify(Arc::clone(&longest)))));
    let mut stuck = server.connect();
    write_until_blocked(&mut stuck, 64_000_000);
    exchange(&mut server.connect(), b"a", &[b'a'; REPLY_BYTES]);
    server.stop();
}
