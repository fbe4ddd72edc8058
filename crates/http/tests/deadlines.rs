//! Deadlines: what happens to a client that is too slow. The deadlines are short, and no test measures time.

use std::time::Duration;

use crate::harness::TestServer;
use http::{Deadlines, HttpSettings};

const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(60);

fn server(change: impl FnOnce(&mut Deadlines)) -> TestServer {
    let mut deadlines = Deadlines { head: LONG, body: LONG, idle: LONG, ..Deadlines::default() };
    change(&mut deadlines);
    TestServer::start(HttpSettings { deadlines, ..HttpSettings::default() })
}

#[test]
fn a_connection_without_a_byte_is_closed_in_silence() {
    let server = server(|deadlines| deadlines.head = SHORT);
    server.connect().expect_end();
    assert_eq!(server.metrics().timed_out, 1);
}

#[test]
fn an_unfinished_head_is_answered_408() {
    let server = server(|deadlines| deadlines.head = SHORT);
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHos");
    assert_eq!(client.answer().status, 408);
    client.expect_end();
}

#[test]
fn a_head_that_trickles_in_is_answered_408_all_the_same() {
    let server = server(|deadlines| deadlines.head = SHORT);
    let mut client = server.connect();
    client.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut answer = [0; 12];
    for byte in b"GET / HTTP/1.1\r\nA: ".iter().chain(std::iter::repeat_n(&b'b', 2000)) {
        client.send(&[*byte]);
        if std::io::Read::read(&mut client.socket, &mut answer).is_ok() {
            break;
        }
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[test]
fn a_second_head_has_its_own_time() {
    let server = server(|deadlines| deadlines.head = SHORT);
    let mut client = server.connect();
    client.probe("/first");
    std::thread::sleep(SHORT * 2);
    client.probe("/second");
    client.send(b"GET / HT");
    assert_eq!(client.answer().status, 408);
}

#[test]
fn an_unfinished_body_is_answered_408() {
    let server = server(|deadlines| deadlines.body = SHORT);
    for body in ["Content-Length: 9\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: h\r\n{body}").as_bytes());
        assert_eq!(client.answer().status, 408);
        client.expect_end();
    }
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let server = server(|deadlines| deadlines.idle = SHORT);
    let mut client = server.connect();
    client.probe("/a");
    client.expect_end();
}

#[test]
fn a_connection_that_waits_for_a_late_reply_is_not_idle() {
    let server = server(|deadlines| (deadlines.idle, deadlines.head) = (SHORT, SHORT));
    let mut client = server.connect();
    client.send(b"GET /late/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let late = server.shelf.take("/late/1");
    std::thread::sleep(SHORT * 4);
    late.send(http::Status(200), "", b"at last".to_vec());
    client.expect(200, "at last");
    client.expect_end();
}

#[test]
fn a_client_that_takes_its_reply_slowly_is_not_idle() {
    // The write queue takes the whole reply, so for the server only the client's reading is left.
    let traffic = reactor::Traffic { output_high_water: 64 << 20, ..reactor::Traffic::default() };
    let loops = reactor::ReactorSettings { loops: 1, traffic, ..reactor::ReactorSettings::default() };
    let deadlines = Deadlines { idle: SHORT, ..Deadlines::default() };
    let server = TestServer::start_on(loops, HttpSettings { deadlines, ..HttpSettings::default() });
    let mut client = server.connect();
    client.send(b"GET /large/30000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(SHORT * 5);
    assert_eq!(server.metrics().timed_out, 0);
    assert_eq!(client.answer().body.len(), 30_000_000);
}

#[test]
fn a_client_that_takes_nothing_is_cut() {
    let traffic = reactor::Traffic { send_behind_max: SHORT, ..reactor::Traffic::default() };
    let loops = reactor::ReactorSettings { loops: 1, traffic, ..reactor::ReactorSettings::default() };
    let server = TestServer::start_on(loops, HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /stream/50000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut late = server.connect();
    late.send(b"GET /large/50000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    let cut = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        server.metrics().timed_out == 2
    });
    assert!(cut, "both clients still hold their replies");
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.socket, &mut bytes);
    assert!(bytes.len() < 50_000_000);
}

/// Bytes that a client receives of a large reply while it reads in pieces, with a pause after each.
fn read_slowly(server: &TestServer, reply_bytes: usize, piece: usize, pause: Duration) -> usize {
    let mut client = server.connect();
    client.send(format!("GET /large/{reply_bytes} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    let (mut buffer, mut got) = (vec![0; piece], 0);
    while let Ok(1..) = std::io::Read::read(&mut client.socket, &mut buffer).inspect(|bytes| got += bytes) {
        if got >= reply_bytes {
            break;
        }
        std::thread::sleep(pause);
    }
    got
}

#[test]
fn a_client_that_takes_a_little_now_and_then_is_cut_and_one_that_takes_enough_is_not() {
    let start = |send_rate_min, send_behind_max| {
        let traffic = reactor::Traffic { send_rate_min, send_behind_max, ..reactor::Traffic::default() };
        let settings = reactor::ReactorSettings { loops: 1, traffic, ..reactor::ReactorSettings::default() };
        TestServer::start_on(settings, HttpSettings::default())
    };
    // It receives three megabytes a second; the minimum rate is ten.
    let server = start(10 << 20, SHORT * 4);
    let got = read_slowly(&server, 50_000_000, 64 << 10, Duration::from_millis(20));
    assert!(got < 40_000_000 && server.metrics().timed_out == 1, "{got} bytes, {:?}", server.metrics());
    // Here it receives more than a hundred times the minimum, for longer than a client may receive nothing.
    let server = start(10 << 10, Duration::from_millis(800));
    let got = read_slowly(&server, 4_000_000, 64 << 10, Duration::from_millis(20));
    assert!(got >= 4_000_000 && server.metrics().timed_out == 0, "{got} bytes, {:?}", server.metrics());
}

#[test]
fn a_body_that_comes_a_byte_now_and_then_is_answered_408() {
    let server = server(|deadlines| (deadlines.body, deadlines.body_rate_min) = (SHORT * 2, 100_000));
    let mut client = server.connect();
    // A fast start is no credit.
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n");
    client.send(&[b'x'; 200_000]);
    client.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut answer = [0; 12];
    let answered = (0..500).any(|_| {
        client.send(b"x");
        std::io::Read::read(&mut client.socket, &mut answer).is_ok()
    });
    assert!(answered && &answer == b"HTTP/1.1 408", "{answered}");
}
