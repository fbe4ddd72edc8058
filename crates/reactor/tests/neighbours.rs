//! A TCP relay whose two ends are connections of one loop: bytes pass from the read buffer of one into the write queue of the
//! other, without a message, and each side stops while the other's queue is full.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Making, Server, eventually, exchange, hold, loops, rest, serve};
use crate::relay::{check_one_way, pair, target};
use reactor::{Closed, ConnectionId, Io, Protocol, ReactorSettings, Traffic};

/// One end of a relayed connection.
struct End {
    /// Target address of the far end; only in the near end.
    target: Option<SocketAddr>,
    other: Option<ConnectionId>,
}

impl Protocol for End {
    fn opened(&mut self, io: &mut Io<'_>) {
        let (Some(target), me) = (self.target, io.id()) else { return };
        match io.connect(target, Box::new(End { target: None, other: Some(me) })) {
            Ok(far) => self.other = Some(far),
            Err(_) => io.abort(),
        }
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let ended = io.input_ended();
        let Some((input, mut other)) = self.other.and_then(|other| io.input_and_neighbour(other)) else {
            return io.finish();
        };
        let passed = input.len();
        other.output().extend_from_slice(input);
        if ended {
            other.end_output();
        }
        let is_full = other.congested();
        io.consume(passed);
        if is_full {
            io.pause_input();
        }
    }

    /// This end's queue has room again, or its connection is made.
    fn writable(&mut self, io: &mut Io<'_>) {
        if let Some(mut other) = self.other.and_then(|other| io.neighbour(other)) {
            other.resume_input();
        }
    }

    fn timer(&mut self, io: &mut Io<'_>) {
        io.abort();
    }
}

fn relay_to(target: SocketAddr, settings: ReactorSettings) -> Server {
    serve(settings, Making::each(move |_, _| Box::new(End { target: Some(target), other: None })))
}

#[test]
fn bytes_and_half_close_pass_in_both_directions() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(1));
    for bytes in [0, 1, 100_000, 5_000_000] {
        let (near, far) = pair(&relay, &listener);
        check_one_way(near, far, bytes);
        let (near, far) = pair(&relay, &listener);
        check_one_way(far, near, bytes);
    }
    eventually("all are closed", || relay.metrics().sum(|l| l.open) == 0);
    assert_eq!(relay.metrics().sum(|l| l.mailbox_messages), 0);
    relay.stop();
}

/// Sends its input to itself and, with another mark, to an earlier connection, through the neighbourhood.
struct Chorus {
    before: Option<ConnectionId>,
}

impl Protocol for Chorus {
    fn input(&mut self, io: &mut Io<'_>) {
        let own = io.id();
        let (input, mut all) = io.input_and_neighbourhood();
        let passed = input.len();
        for (mark, id) in [(b'.', Some(own)), (b'>', self.before)] {
            if let Some(output) = id.and_then(|id| all.output(id)) {
                output.extend_from_slice(input);
                output.push(mark);
            }
        }
        let unsent = (all.unsent(own), self.before.map(|id| all.unsent(id)));
        assert_eq!(unsent, (passed + 1, self.before.map(|_| passed + 1)));
        assert!(all.connection(own).is_none(), "it is out of its slot");
        io.consume(passed);
        assert!(io.neighbourhood().output(own).is_some_and(|output| output.ends_with(b".")));
    }
}

#[test]
fn a_neighbourhood_reaches_the_connection_whose_turn_it_is_and_the_others() {
    let before = std::sync::Mutex::new(None);
    let make = move |id, _: &reactor::Loop| -> Box<dyn Protocol> {
        Box::new(Chorus { before: before.lock().unwrap().replace(id) })
    };
    let server = serve(loops(1), Making::each(make));
    let mut first = server.connect();
    exchange(&mut first, b"a", b"a.");
    let mut second = server.connect();
    exchange(&mut second, b"b", b"b.");
    exchange(&mut first, b"", b"b>");
    server.stop();
}

#[test]
fn what_several_turns_of_a_tick_pass_on_leaves_in_one_write() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(1));
    let (mut near, mut far) = pair(&relay, &listener);
    exchange(&mut near, b"warm", b"");
    far.read_exact(&mut [0; 4]).unwrap();
    let before = relay.metrics().sum(|l| l.writes);
    for _ in 0..100 {
        exchange(&mut near, b"question", b"");
        far.read_exact(&mut [0; 8]).unwrap();
    }
    assert_eq!(relay.metrics().sum(|l| l.writes) - before, 100);
    drop((near, far));
    relay.stop();
}

/// Writes until nothing more is taken; returns the number of bytes.
fn fill(sender: &mut TcpStream) -> u64 {
    sender.set_nonblocking(true).unwrap();
    let (mut sent, mut waits) = (0, 0);
    while waits < 100 {
        match sender.write(&[7; 65_536]) {
            Ok(n) => (sent, waits) = (sent + n as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waits += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 200_000_000, "the sender is not stopped");
    }
    sender.set_nonblocking(false).unwrap();
    sent
}

#[track_caller]
fn check_slow_readers_stop_senders(mut near: TcpStream, mut far: TcpStream, relay: &Server) {
    // Both directions are full at once: one side's pause must not block the other's.
    let (from_near, from_far) = (fill(&mut near), fill(&mut far));
    let metrics = relay.metrics();
    let held = metrics.sum(|l| l.bytes_in) - metrics.sum(|l| l.bytes_out);
    // For each direction: the high-water mark, the read that crossed it, and one more that was in flight.
    let traffic = Traffic::default();
    let bound = 2 * (traffic.output_high_water + 2 * traffic.read_bytes_per_turn);
    assert!(held <= bound as u64, "the relay holds {held} bytes");
    near.shutdown(Shutdown::Write).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    let mut other = near.try_clone().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut other, &mut std::io::sink()).unwrap());
    assert_eq!(std::io::copy(&mut far, &mut std::io::sink()).unwrap(), from_near);
    assert_eq!(reading.join().unwrap(), from_far);
}

#[test]
fn slow_readers_stop_fast_senders_in_both_directions() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(1));
    let (near, far) = pair(&relay, &listener);
    check_slow_readers_stop_senders(near, far, &relay);
    eventually("both are gone", || relay.metrics().sum(|l| l.open) == 0);
    relay.stop();
}

#[test]
fn many_relayed_connections_make_progress_beside_one_another() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(1));
    let mut pairs: Vec<_> = (0..50).map(|_| pair(&relay, &listener)).collect();
    for round in 0..20_u8 {
        for (near, far) in &mut pairs {
            near.write_all(&[round; 3000]).unwrap();
            far.write_all(&[round; 3000]).unwrap();
        }
        for (near, far) in &mut pairs {
            exchange(near, b"", &[round; 3000]);
            exchange(far, b"", &[round; 3000]);
        }
    }
    drop(pairs);
    eventually("all are gone", || relay.metrics().sum(|l| l.open) == 0);
    relay.stop();
}

/// Does to the connection before it what its first byte names.
struct Meddler {
    before: Option<ConnectionId>,
}

impl Protocol for Meddler {
    fn input(&mut self, io: &mut Io<'_>) {
        let order = io.input().first().copied();
        io.consume(io.input().len());
        assert!(io.neighbour(io.id()).is_none(), "a connection is no neighbour of its own");
        let before = self.before.and_then(|before| io.neighbour(before));
        match (order, before) {
            (Some(b'f'), Some(mut before)) => {
                before.output().extend_from_slice(b"last words");
                before.finish();
            }
            (Some(b'a'), Some(mut before)) => before.abort(),
            (Some(b'w'), Some(mut before)) => before.notify_writable(),
            (Some(_), None) => io.output().extend_from_slice(b"nobody"),
            _ => {}
        }
        if io.input_ended() {
            io.finish();
        }
    }
    fn writable(&mut self, io: &mut Io<'_>) {
        io.output().extend_from_slice(b"writable");
    }
}

/// Pauses and ends the connection before it, or resumes it; counts its calls with the peer's end.
struct Pauser {
    before: Option<ConnectionId>,
    ends_told: Arc<AtomicUsize>,
}

impl Protocol for Pauser {
    fn input(&mut self, io: &mut Io<'_>) {
        if io.input_ended() {
            self.ends_told.fetch_add(1, Ordering::Relaxed);
        }
        let order = io.input().first().copied();
        io.consume(io.input().len());
        let before = self.before.and_then(|before| io.neighbour(before));
        match (order, before) {
            (Some(b'p'), Some(mut before)) => {
                before.pause_input();
                before.end_output();
            }
            (Some(b'r'), Some(mut before)) => before.resume_input(),
            _ => {}
        }
    }
}

#[test]
fn a_connection_whose_both_sides_have_ended_is_not_closed_before_its_protocol_knows() {
    let (before, ends_told) = (std::sync::Mutex::new(None), Arc::new(AtomicUsize::new(0)));
    let of_server = Arc::clone(&ends_told);
    let server = serve(
        loops(1),
        Making::each(move |id, _| {
            Box::new(Pauser { before: before.lock().unwrap().replace(id), ends_told: Arc::clone(&of_server) })
        }),
    );
    let mut pair = [(); 2].map(|()| server.connect());
    eventually("both are accepted", || server.metrics().sum(|l| l.accepted) == 2);
    let release = hold(&server.running.loops()[0]);
    // Both are read before the second pauses the first: its end is read, and its protocol not called.
    pair[1].write_all(b"p").unwrap();
    pair[0].shutdown(Shutdown::Write).unwrap();
    drop(release);
    assert_eq!(rest(&mut pair[0]), b"");
    assert_eq!((ends_told.load(Ordering::Relaxed), server.metrics().sum(|l| l.open)), (0, 2));
    pair[1].write_all(b"r").unwrap();
    eventually("it is closed", || server.metrics().sum(|l| l.open) == 1);
    assert_eq!(ends_told.load(Ordering::Relaxed), 1);
    drop(pair);
    server.stop();
}

/// Asks for a call of `writable`; a `w` is left for a second turn, which finishes the connection before it. Counts calls of `writable`.
struct Finisher {
    before: Option<ConnectionId>,
    has_waited: bool,
    writable: Arc<AtomicUsize>,
}

impl Protocol for Finisher {
    fn input(&mut self, io: &mut Io<'_>) {
        if io.input() != b"w" {
            io.consume(io.input().len());
            return io.notify_writable();
        }
        if !std::mem::replace(&mut self.has_waited, true) {
            let _ = io.spend(u32::MAX);
            return;
        }
        io.consume(1);
        if let Some(mut before) = self.before.and_then(|before| io.neighbour(before)) {
            before.finish();
        }
    }
    fn writable(&mut self, _: &mut Io<'_>) {
        self.writable.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_connection_that_is_finished_by_one_of_its_batch_gets_no_further_call() {
    let (before, writable) = (std::sync::Mutex::new(None), Arc::new(AtomicUsize::new(0)));
    let of_server = Arc::clone(&writable);
    let server = serve(
        loops(1),
        Making::each(move |id, _| {
            let (before, writable) = (before.lock().unwrap().replace(id), Arc::clone(&of_server));
            Box::new(Finisher { before, has_waited: false, writable })
        }),
    );
    let mut pair = [(); 2].map(|()| server.connect());
    eventually("both are accepted", || server.metrics().sum(|l| l.accepted) == 2);
    let release = hold(&server.running.loops()[0]);
    // Both are listed, in this order: the turn of the first is decided before the second finishes it.
    pair[1].write_all(b"w").unwrap();
    pair[0].write_all(b"?").unwrap();
    drop(release);
    assert_eq!(rest(&mut pair[0]), b"");
    assert_eq!(writable.load(Ordering::Relaxed), 0);
    drop(pair);
    server.stop();
}

fn meddlers() -> Server {
    let before = std::sync::Mutex::new(None);
    let make = move |id, _: &_| Box::new(Meddler { before: before.lock().unwrap().replace(id) }) as Box<dyn Protocol>;
    serve(loops(1), Making::each(make))
}

#[test]
fn a_neighbour_is_finished_with_what_was_queued_or_aborted_and_then_is_gone() {
    for (order, last) in [(b"f", b"last words".as_slice()), (b"a", b"")] {
        let server = meddlers();
        let mut first = server.connect();
        exchange(&mut first, b"?", b"nobody");
        let mut second = server.connect();
        second.write_all(order).unwrap();
        assert_eq!(rest(&mut first), last);
        drop(first);
        eventually("it is gone", || server.metrics().sum(|l| l.open) == 1);
        exchange(&mut second, order, b"nobody");
        server.stop();
    }
}

#[test]
fn a_neighbours_protocol_is_called_when_it_is_asked_for() {
    let server = meddlers();
    let mut first = server.connect();
    exchange(&mut first, b"?", b"nobody");
    server.connect().write_all(b"w").unwrap();
    exchange(&mut first, b"", b"writable");
    server.stop();
}

/// Opens a connection to a target, queues for it at once, and reports how it ended.
struct Early(SocketAddr);

impl Protocol for Early {
    fn input(&mut self, io: &mut Io<'_>) {
        let far = io.connect(self.0, Box::new(Silent)).unwrap();
        let (input, mut far) = io.input_and_neighbour(far).unwrap();
        far.output().extend_from_slice(input);
        far.end_output();
        io.finish();
    }
}

struct Silent;

impl Protocol for Silent {
    fn input(&mut self, _io: &mut Io<'_>) {}
    fn closed(&mut self, reason: Closed) {
        assert_eq!(reason, Closed::Finished);
    }
}

#[test]
fn what_is_queued_for_a_connection_before_it_is_made_leaves_then() {
    let (listener, address) = target();
    let server = serve(loops(1), Making::each(move |_, _| Box::new(Early(address))));
    server.connect().write_all(b"early bytes").unwrap();
    assert_eq!(rest(&mut listener.accept().unwrap().0), b"early bytes");
    eventually("both are gone", || server.metrics().sum(|l| l.open) == 0);
    assert_eq!(server.metrics().sum(|l| l.panics), 0);
    server.stop();
}
