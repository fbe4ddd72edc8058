//! A TCP relay in under 100 lines: outgoing connections served like accepted ones, with back-pressure both ways and half-close
//! passed on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::harness::{Making, Server, connect, eventually, loops, serve};
use reactor::{Closed, ConnectionId, Io, Message, Protocol, ReactorSettings, Traffic};

// ---- the relay ----

enum Tell {
    Bytes(Vec<u8>),
    Ended,
    Pause,
    Resume,
    Gone,
}

/// One end of a relayed connection; `other` is the far end.
struct End {
    target: Option<SocketAddr>,
    other: Option<(reactor::Loop, ConnectionId)>,
}

impl End {
    fn tell(&self, what: Tell) {
        if let Some((lp, other)) = &self.other {
            lp.send(*other, Message { tag: 0, payload: Box::new(what) });
        }
    }
}

impl Protocol for End {
    fn opened(&mut self, io: &mut Io<'_>) {
        let (Some(target), me) = (self.target, io.id()) else { return };
        let far = End { target: None, other: Some((io.lp().clone(), me)) };
        match io.connect(target, Box::new(far)) {
            Ok(far) => self.other = Some((io.lp().clone(), far)),
            Err(_) => io.abort(),
        }
        io.pause_input(); // until the far end is connected
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let bytes = io.input().to_vec();
        io.consume(bytes.len());
        if !bytes.is_empty() {
            self.tell(Tell::Bytes(bytes));
        }
        if io.input_ended() {
            self.tell(Tell::Ended);
        }
    }

    fn writable(&mut self, _io: &mut Io<'_>) {
        self.tell(Tell::Resume);
    }

    fn message(&mut self, message: Message, io: &mut Io<'_>) {
        match *message.payload.downcast::<Tell>().unwrap() {
            Tell::Bytes(bytes) => {
                io.output().extend_from_slice(&bytes);
                if io.congested() {
                    self.tell(Tell::Pause);
                }
            }
            Tell::Ended => io.end_output(),
            Tell::Pause => io.pause_input(),
            Tell::Resume => io.resume_input(),
            Tell::Gone => io.finish(),
        }
    }

    fn closed(&mut self, reason: Closed) {
        if reason != Closed::Finished {
            self.tell(Tell::Gone);
        }
    }
}

fn relay_to(target: SocketAddr, settings: ReactorSettings) -> Server {
    serve(settings, Making::each(move |_, _| Box::new(End { target: Some(target), other: None })))
}

// ---- its tests ----

pub(crate) fn target() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn pair(relay: &Server, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = relay.connect();
    let far = listener.accept().unwrap().0;
    far.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    (near, far)
}

#[track_caller]
pub(crate) fn check_one_way(mut from: TcpStream, mut to: TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|i| (i % 253) as u8).collect();
    let expected = sent.clone();
    let writer = std::thread::spawn(move || {
        from.write_all(&sent).unwrap();
        from.shutdown(Shutdown::Write).unwrap();
        from
    });
    let mut got = Vec::new();
    to.read_to_end(&mut got).unwrap();
    assert!(got == expected, "{bytes} bytes");
    // The other direction is still open: half-close was passed on, and nothing else.
    let mut from = writer.join().unwrap();
    to.write_all(b"still there").unwrap();
    drop(to);
    assert_eq!(crate::harness::rest(&mut from), b"still there");
}

#[test]
fn bytes_and_half_close_pass_in_both_directions() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(2));
    for bytes in [0, 1, 100_000, 5_000_000] {
        let (near, far) = pair(&relay, &listener);
        check_one_way(near, far, bytes);
        let (near, far) = pair(&relay, &listener);
        check_one_way(far, near, bytes);
    }
    eventually("all are closed", || relay.metrics().sum(|l| l.open) == 0);
    relay.stop();
}

#[track_caller]
fn check_slow_reader_stops_sender(mut sender: TcpStream, mut reader: TcpStream, relay: &Server) {
    sender.set_nonblocking(true).unwrap();
    let (mut sent, mut waits) = (0, 0);
    while waits < 100 {
        match sender.write(&[7; 65_536]) {
            Ok(n) => (sent, waits) = (sent + n as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waits += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 200_000_000, "the sender is not stopped");
    }
    let metrics = relay.metrics();
    let held = metrics.sum(|l| l.bytes_in) - metrics.sum(|l| l.bytes_out);
    // The high-water mark, the read that crossed it, and one more that was in flight.
    let bound = Traffic::default().output_high_water + 3 * Traffic::default().read_bytes_per_turn;
    assert!(held <= bound as u64, "the relay holds {held} bytes");
    sender.set_nonblocking(false).unwrap();
    sender.shutdown(Shutdown::Write).unwrap();
    let got = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert_eq!(got, sent, "once the reader reads, all of it arrives");
}

#[test]
fn a_slow_reader_stops_a_fast_sender_and_memory_stays_bounded() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(1));
    let (near, far) = pair(&relay, &listener);
    check_slow_reader_stops_sender(near, far, &relay);
    relay.stop();
    let relay = relay_to(address, loops(1));
    let (near, far) = pair(&relay, &listener);
    check_slow_reader_stops_sender(far, near, &relay);
    relay.stop();
}

#[test]
fn a_target_that_refuses_ends_the_near_end() {
    let (listener, address) = target();
    drop(listener);
    let relay = relay_to(address, loops(1));
    assert_eq!(crate::harness::rest(&mut relay.connect()), b"");
    eventually("both are gone", || relay.metrics().sum(|l| l.open) == 0);
    assert_eq!(relay.metrics().sum(|l| l.closed_unconnected), 1);
    relay.stop();
}

#[test]
fn a_reset_of_one_end_closes_the_other() {
    let (listener, address) = target();
    let relay = relay_to(address, loops(1));
    let (mut near, far) = pair(&relay, &listener);
    socket2::SockRef::from(&far).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(far);
    assert_eq!(near.read(&mut [0]).unwrap_or(0), 0);
    drop(near);
    eventually("both are gone", || relay.metrics().sum(|l| l.open) == 0);
    relay.stop();
}

#[test]
fn connections_can_be_opened_from_other_threads() {
    let (listener, address) = target();
    let client = reactor::Reactor::new(loops(2)).unwrap().start().unwrap();
    let refused = {
        let (gone, refused) = target();
        drop(gone);
        refused
    };
    for lp in client.loops() {
        lp.connect(address, Box::new(|_, _| Box::new(crate::harness::Echo)));
        lp.connect(refused, Box::new(|_, _| Box::new(crate::harness::Echo)));
    }
    for _ in client.loops() {
        let mut accepted = listener.accept().unwrap().0;
        crate::harness::exchange(&mut accepted, b"to the client", b"to the client");
    }
    eventually("two are made", || client.metrics().sum(|l| l.connected) == 2);
    eventually("two failed", || client.metrics().sum(|l| l.closed_unconnected) == 2);
    assert!(connect(address).peer_addr().is_ok());
    client.drain(std::time::Duration::ZERO);
    client.join().unwrap();
}
