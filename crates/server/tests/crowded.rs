//! More clients than connections.

use crate::harness::TestServer;
use std::io::Write as _;
use std::net::TcpStream;

#[test]
fn health_is_told_while_half_requests_hold_all_connections() {
    let server = TestServer::start("connections_max = 8\nhead_seconds = 600\nbody_seconds = 600", "");
    let halves: Vec<TcpStream> = (0..8)
        .map(|number| {
            let (mut stream, _) = server.connect().into_parts();
            stream.write_all(if number % 2 == 0 { b"GET /_/health HT" } else { b"GET / HTTP/1.1\r\nA: " }).unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(server.get("/_/health").status, 200);
    }
    assert!(server.metric("sapsan_http_made_room_total") >= 1.0);
    drop(halves);
}
