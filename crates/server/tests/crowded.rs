//! More clients than connections, and clients that hold memory without progress.

use crate::harness::{Client, TestServer};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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
    let began = Instant::now();
    while server.metric("sapsan_http_made_room_total") < 1.0 {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody made room");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(halves);
}

#[test]
fn health_and_metrics_are_told_while_requests_hold_all_connections() {
    let server = TestServer::start("connections_max = 8", ITEMS);
    put(&server, 1, 100);
    let feeds: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET", "/_/changes", "", b"");
            assert!(client.head().starts_with("HTTP/1.1 200"));
            client
        })
        .collect();
    for _ in 0..40 {
        assert_eq!(["/_/health", "/_/metrics"].map(|target| server.get(target).status), [200; 2]);
    }
    let refused = server.get("/items/1");
    assert_eq!(refused.status, 503, "{}", refused.text());
    drop(feeds);
}

#[test]
fn the_listener_of_the_general_api_is_served_while_clients_of_the_other_hold_all_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let pairs = |tables: [&str; 4]| {
        let join = |(left, right): (&str, &str)| format!("JOIN items {right} ON {left}.price + {right}.price >= 0");
        let joins: Vec<String> = tables.iter().zip(&tables[1..]).map(|(left, right)| join((*left, *right))).collect();
        format!("SELECT COUNT(*) AS n FROM items {} {}", tables[0], joins.join(" "))
    };
    let endless = format!(
        "[[endpoints]]\nroute = \"POST /items\"\ninsert = \"items\"\n\
         [[endpoints]]\nroute = \"GET /endless\"\nquery = \"{}\"\n",
        pairs(["a", "b", "c", "d"])
    );
    for admin in ["127.0.0.1:0".to_owned(), format!("unix:{}", path.display())] {
        let limits = "connections_max = 8\nscan_rows_max = 1000000000000\nquery_seconds = 600";
        let server = TestServer::start(&format!("{limits}\nadmin = \"{admin}\""), &endless);
        let mut client = server.connect();
        for id in 0..200 {
            let item = format!("{{\"id\":{id},\"group\":\"g\",\"price\":1}}");
            client.send("POST", "/items", "", item.as_bytes());
            assert_eq!(client.answer(false).status, 201);
        }
        drop(client);
        // As many as there are places and reserved places. Those with a place keep it: they wait for the server.
        let crowd: Vec<Client> = (0..24)
            .map(|_| {
                let mut client = server.connect();
                client.send("GET", "/endless", "", b"");
                client
            })
            .collect();
        for _ in 0..3 {
            let told = match server.admin_address() {
                Some(address) => list(TcpStream::connect(address).unwrap()),
                None => list(UnixStream::connect(&path).unwrap()),
            };
            assert!(told.starts_with("HTTP/1.1 200 "), "{admin}: {told}");
        }
        drop(crowd);
    }
}

/// The reply to a request of the general API that is not vital.
fn list(mut stream: impl Read + Write) -> String {
    let head = "GET /_/collections/items HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut reply = String::new();
    // A connection that is not admitted ends.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.read_to_string(&mut reply));
    reply
}

const ITEMS: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";

fn put(server: &TestServer, id: u32, note_bytes: usize) {
    let note = "n".repeat(note_bytes);
    let body = format!("{{\"id\":{id},\"group\":\"g\",\"price\":1,\"note\":\"{note}\"}}");
    let answer = server.ask("PUT", &format!("/_/collections/items/{id}"), "", body.as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
}

#[test]
fn clients_that_do_not_read_deny_nobody() {
    let server = TestServer::start("memory = \"64MB\"", ITEMS);
    put(&server, 1, 300_000);
    put(&server, 2, 100);
    let request = "GET /items/1 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10);
    let silent = |_| {
        let (mut stream, _) = server.connect().into_parts();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..150).map(silent).collect();
    silent.iter().for_each(|stream| drop(stream.peek(&mut [0])));
    for _ in 0..10 {
        let statuses = ["/_/health", "/items/1", "/items/2"].map(|target| server.get(target).status);
        assert_eq!(statuses, [200; 3]);
    }
    assert!(server.metric("sapsan_http_hoarders_total") >= 1.0);
    let (used, bound) = ("sapsan_memory_used_bytes{part=\"buffers\"}", "sapsan_memory_bound_bytes{part=\"buffers\"}");
    assert!(server.metric(used) <= server.metric(bound));
}

#[test]
fn unfinished_bodies_deny_nobody() {
    let server = TestServer::start("memory = \"64MB\"", "");
    let unfinished = |_| {
        let (mut stream, _) = server.connect().into_parts();
        stream.write_all(b"POST /_/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n").unwrap();
        // The server may have closed it.
        let _ = stream.write_all(&[b' '; 900_000]);
        stream
    };
    let silent: Vec<TcpStream> = (0..12).map(unfinished).collect();
    // Until the server has read more of them than it keeps, the well-behaved body may be the largest of all.
    let began = Instant::now();
    while server.metric("sapsan_http_hoarders_total") < 1.0 {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody holds most");
        std::thread::sleep(Duration::from_millis(5));
    }
    for id in 0..4 {
        put(&server, id, 300_000);
    }
    let mut bulk: Client = server.connect();
    bulk.send("POST", "/_/collections/items/bulk", "", &[b' '; 900_000]);
    assert_ne!(bulk.answer(false).status, 503);
    drop(silent);
}
