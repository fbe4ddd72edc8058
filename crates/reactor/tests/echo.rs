//! Bytes in, bytes out: a connection from accept to close.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::harness::{Echo, Lines, Making, connect, eventually, exchange, loops, rest, rest_after_half_close, serve};
use reactor::{Io, Protocol, ReactorSettings, Traffic};

#[track_caller]
fn check_echo(settings: ReactorSettings, bytes: usize) {
    let server = serve(settings, Making::each(|_, _| Box::new(Echo)));
    let sent: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    let mut stream = server.connect();
    let mut writing = stream.try_clone().unwrap();
    let expected = sent.clone();
    let writer = std::thread::spawn(move || {
        writing.write_all(&sent).unwrap();
        writing.shutdown(std::net::Shutdown::Write).unwrap();
    });
    assert!(rest(&mut stream) == expected, "{bytes} bytes did not come back as they were sent");
    writer.join().unwrap();
    server.stop();
}

#[test]
fn what_is_sent_comes_back() {
    check_echo(loops(1), 0);
    check_echo(loops(1), 1);
    check_echo(loops(2), 65_536);
    check_echo(loops(2), 3_000_001);
}

#[test]
fn small_buffers_change_nothing_but_speed() {
    let tight = Traffic {
        read_bytes_per_turn: 512,
        input_bytes_max: 512,
        output_high_water: 1000,
        output_low_water: 100,
        ..Traffic::default()
    };
    check_echo(ReactorSettings { pool_buffers_max: 0, traffic: tight, ..loops(1) }, 300_000);
}

#[test]
fn requests_in_pieces_are_joined() {
    let server = serve(loops(1), Making::each(|_, _| Box::new(Lines)));
    let mut stream = server.connect();
    for piece in ["he", "l", "lo\nwor", "ld"] {
        stream.write_all(piece.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    exchange(&mut stream, b"\n", b">hello\n>world\n");
    server.stop();
}

#[test]
fn a_request_as_long_as_the_limit_is_joined() {
    let server = serve(loops(1), Making::each(|_, _| Box::new(Lines)));
    let mut request = vec![b'x'; Traffic::default().input_bytes_max - 1];
    request.push(b'\n');
    let mut stream = server.connect();
    let mut writing = stream.try_clone().unwrap();
    let sent = request.clone();
    let writer = std::thread::spawn(move || writing.write_all(&sent).unwrap());
    let mut reply = vec![0; request.len() + 1];
    stream.read_exact(&mut reply).unwrap();
    assert!(reply[0] == b'>' && reply[1..] == request[..]);
    writer.join().unwrap();
    server.stop();
}

#[test]
fn a_half_closed_peer_gets_its_reply() {
    let server = serve(loops(2), Making::each(|_, _| Box::new(Lines)));
    let mut stream = server.connect();
    stream.write_all(b"one\ntwo\n").unwrap();
    assert_eq!(rest_after_half_close(&mut stream), b">one\n>two\n");
    eventually("the connection is counted as finished", || server.metrics().sum(|l| l.closed_finished) == 1);
    assert_eq!(server.metrics().sum(|l| l.open), 0);
    server.stop();
}

#[test]
fn bytes_and_connections_are_counted() {
    let server = serve(loops(2), Making::each(|_, _| Box::new(Lines)));
    let mut stream = server.connect();
    exchange(&mut stream, b"abc\n", b">abc\n");
    // Counted after the call, so the client may be ahead.
    eventually("5 bytes out", || server.metrics().sum(|l| l.bytes_out) == 5);
    let metrics = server.metrics();
    assert_eq!(metrics.sum(|l| l.bytes_in), 4);
    assert_eq!((metrics.sum(|l| l.accepted), metrics.sum(|l| l.open)), (1, 1));
    drop(stream);
    eventually("the end is noticed", || server.metrics().sum(|l| l.open) == 0);
    server.stop();
}

/// Greets, then sends `static` parts between copied ones.
struct Spliced(Arc<[u8]>);

impl Protocol for Spliced {
    fn opened(&mut self, io: &mut Io<'_>) {
        io.output().extend_from_slice(b"hello,");
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let n = io.input().len();
        for part in 0..n {
            io.output().extend_from_slice(format!("[{part}:").as_bytes());
            io.output_shared(Arc::clone(&self.0));
            io.output().push(b']');
        }
        io.output_shared(Arc::from(&b""[..]));
        io.consume(n);
        io.finish();
    }
}

#[test]
fn shared_pieces_stand_where_they_were_queued() {
    for (parts, piece_bytes) in [(1, 1), (100, 10), (3, 1_000_000), (200, 20_000)] {
        let piece: Arc<[u8]> = vec![b's'; piece_bytes].into();
        let of_server = Arc::clone(&piece);
        let server = serve(loops(1), Making::each(move |_, _| Box::new(Spliced(Arc::clone(&of_server)))));
        let mut stream = connect(server.address);
        stream.write_all(&vec![b'.'; parts]).unwrap();
        let got = rest(&mut stream);
        let expected: Vec<u8> = std::iter::once(b"hello,".to_vec())
            .chain((0..parts).map(|part| [format!("[{part}:").as_bytes(), &piece, b"]"].concat()))
            .flatten()
            .collect();
        assert!(got == expected, "{parts} parts of {piece_bytes} bytes");
        server.stop();
    }
}
