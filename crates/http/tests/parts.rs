//! Bodies given in parts: joined on the wire, in the right order, at once and late.

use crate::harness::{STATIC, TestServer};
use http::{HttpSettings, UNCOPIED_BYTES_MIN};

fn expected(large: usize) -> String {
    format!("one {}{} two", String::from_utf8_lossy(STATIC), "l".repeat(large))
}

#[test]
fn parts_are_one_body_whatever_is_copied_of_them() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    for large in [0, 1, UNCOPIED_BYTES_MIN - 1, UNCOPIED_BYTES_MIN, 100_000, 3_000_000] {
        for path in ["parts", "late-parts"] {
            client.send(format!("GET /{path}/{large} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
            let answer = client.answer();
            let length = format!("Content-Length: {}\r\n", expected(large).len());
            assert!(answer.head.contains(&length), "{}", answer.head);
            assert!(answer.body == expected(large), "{path}, {large}");
        }
    }
    client.probe("/after");
}

#[test]
fn pipelined_parts_stand_in_the_order_of_their_requests() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    // Behind a late reply the others wait in the ring.
    client.send(b"GET /late-read HTTP/1.1\r\nHost: h\r\n\r\n");
    for large in [10, 20_000, 30_000, 5] {
        client.send(format!("GET /parts/{large} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        client.send(format!("GET /late-parts/{large} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        client.send(format!("GET /shared/{large} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    }
    server.connect().probe("/meanwhile");
    server.shelf.answer("/late-read");
    client.expect(200, "/late-read");
    for large in [10, 20_000, 30_000, 5] {
        client.expect(200, &expected(large));
        client.expect(200, &expected(large));
        client.expect(200, &"s".repeat(large));
    }
    client.probe("/after");
}

#[test]
fn head_has_the_length_of_all_parts_and_none_of_them() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    for path in ["parts", "late-parts"] {
        client.send(format!("HEAD /{path}/20000 HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let answer = client.answer_to(true).unwrap();
        assert!(answer.head.contains(&format!("Content-Length: {}\r\n", expected(20_000).len())), "{}", answer.head);
        client.probe("/after");
    }
}
