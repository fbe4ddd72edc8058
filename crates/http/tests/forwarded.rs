//! The client for which a proxy forwards a request: trusted only from listed peers, and used wherever the client's address
//! counts.

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::harness::TestServer;
use http::{AccessLog, HttpSettings, QueuedWriter, TrustedProxies};

/// A server that trusts these proxies.
fn server(proxies: &[&str]) -> TestServer {
    let trusted_proxies = TrustedProxies::new(proxies).expect("a list of proxies");
    TestServer::start(HttpSettings { trusted_proxies, ..HttpSettings::default() })
}

/// Checks the client of a request with these fields, and the address under which it is counted.
#[track_caller]
fn check(server: &TestServer, fields: &str, told: &str) {
    let mut client = server.connect();
    client.send(format!("GET /client HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes());
    client.expect(200, told);
}

#[test]
fn a_peer_that_is_not_trusted_speaks_for_itself() {
    for proxies in [&[][..], &["10.0.0.0/8", "::1", "unix"]] {
        let server = server(proxies);
        check(&server, "X-Forwarded-For: 192.0.2.1\r\n", "127.0.0.1 127.0.0.1");
        check(&server, "Forwarded: for=192.0.2.1\r\n", "127.0.0.1 127.0.0.1");
    }
}

#[test]
fn a_trusted_peer_is_believed_up_to_the_last_hop_that_is_not() {
    let server = server(&["127.0.0.0/8", "10.0.0.0/8"]);
    for (fields, told) in [
        ("", "127.0.0.1 127.0.0.1"),
        ("X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1 192.0.2.1"),
        ("x-forwarded-for: 1.1.1.1, 192.0.2.1, 10.0.0.7\r\n", "192.0.2.1 192.0.2.1"),
        ("X-Forwarded-For: 1.1.1.1\r\nA: b\r\nX-Forwarded-For: 10.0.0.7, 10.0.0.8\r\n", "1.1.1.1 1.1.1.1"),
        ("X-Forwarded-For: [2001:db8::1:2:3:4]:80\r\n", "2001:db8::1:2:3:4 2001:db8::"),
        ("Forwarded: for=1.1.1.1, for=\"[2001:db8::7]\";proto=http\r\n", "2001:db8::7 2001:db8::"),
        ("Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1 192.0.2.1"),
        ("X-Forwarded-For: 192.0.2.1, nonsense\r\n", "127.0.0.1 127.0.0.1"),
        ("X-Forwarded-For: 192.0.2.1, \u{44f}, 10.0.0.7\r\n", "10.0.0.7 10.0.0.7"),
    ] {
        check(&server, fields, told);
    }
}

#[test]
fn a_request_whose_body_is_taken_in_pieces_has_its_client_too() {
    let server = server(&["127.0.0.1"]);
    let mut client = server.connect();
    client
        .send(b"POST /in-pieces-client HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 9\r\n\r\n");
    client.expect(200, "192.0.2.1 192.0.2.1");
}

/// Destination of an access log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no line panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_access_log_has_the_client() {
    let lines = Lines::default();
    let (writer, thread) = QueuedWriter::start(lines.clone()).unwrap();
    let trusted_proxies = TrustedProxies::new(&["127.0.0.1"]).unwrap();
    let server = TestServer::start(HttpSettings {
        access_log: Some(AccessLog::new(writer)),
        trusted_proxies,
        ..HttpSettings::default()
    });
    let mut client = server.connect();
    client.send(b"GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 2001:db8::7\r\n\r\nGET /b HTTP/1.0\r\n\r\n");
    client.rest();
    drop(thread);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let senders: Vec<_> = text.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(senders, ["2001:db8::7", &client.socket.local_addr().unwrap().to_string()]);
}
