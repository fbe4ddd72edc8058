//! The closed model, and the variants of connections: kept alive, new for each request, pipelined, with TLS,
//! with chunks.

use crate::harness::{Answer, Server, closed, finish, get, get_with, ok, open, record, reply};
use loadtest::engine::{LoadSettings, Watchers};
use reactor::{TlsClient, TlsServer};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn each_connection_has_one_request_in_flight_and_is_kept() {
    let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (of_server, most_of_server) = (Arc::clone(&now), Arc::clone(&most));
    let server = Server::start(move |_| {
        let running = of_server.fetch_add(1, Ordering::SeqCst) + 1;
        most_of_server.fetch_max(running, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        of_server.fetch_sub(1, Ordering::SeqCst);
        ok()
    });
    let recording = record(&closed(server.address, 300));
    assert_eq!((server.connections(), most.load(Ordering::SeqCst)), (8, 8));
    assert_eq!((recording.outcome.right, recording.outcome.planned), (server.requests(), server.requests()));
    assert!(recording.outcome.right >= 8);
    assert_eq!(recording.load, "8 connections, 300ms");
    assert!(loadtest::table::text(&recording, 100).contains("Valid: a closed load has no plan to keep to."));
}

#[test]
fn with_new_connections_each_request_has_its_own() {
    let server = Server::start(|arrived| {
        assert!(arrived.head.contains("Connection: close"));
        Answer::Last(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi".to_vec())
    });
    let close = [("Connection".to_owned(), "close".to_owned())];
    for load in [closed(server.address, 200), open(server.address, "const(200,200ms)")] {
        let (before, requests_before) = (server.connections(), server.requests());
        let settings = LoadSettings { new_connections: true, ..load };
        let outcome = finish(&settings, get_with(&close), Watchers::default()).recording.outcome;
        assert!(outcome.right > 0 && outcome.right == outcome.planned, "{outcome:?}");
        let (connections, requests) = (server.connections() - before, server.requests() - requests_before);
        assert_eq!(requests, outcome.sent);
        // Connections that were being opened at the end of a closed load send nothing.
        let unused = u64::from(settings.connections);
        assert!((requests..=requests + unused).contains(&connections), "{connections} for {requests} requests");
    }
}

#[test]
fn a_connection_that_the_server_closes_after_a_reply_is_made_anew() {
    let server = Server::start(|arrived| match arrived.number % 3 {
        2 => Answer::Last(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => ok(),
    });
    for load in [closed(server.address, 300), open(server.address, "const(200,300ms)")] {
        let outcome = record(&load).outcome;
        assert!(outcome.right > 20 && outcome.right == outcome.planned, "{outcome:?}");
    }
}

#[test]
fn so_many_requests_are_pipelined_on_a_connection() {
    // The server is silent until eight requests have arrived, and then answers all of them.
    let waiting = Mutex::new(0);
    let server = Server::start(move |_| {
        let mut waiting = waiting.lock().unwrap();
        *waiting += 1;
        if *waiting < 8 {
            return Answer::Silence;
        }
        *waiting = 0;
        Answer::Bytes(reply(200, "x").repeat(8))
    });
    let timeout = Duration::from_millis(500);
    let settings = LoadSettings { connections: 1, pipeline: 8, threads: 1, timeout, ..closed(server.address, 200) };
    let outcome = record(&settings).outcome;
    assert!(outcome.right >= 8 && outcome.right.is_multiple_of(8), "{outcome:?}");
    // The last group may be smaller than eight, because the run ended within it.
    assert!(outcome.failures.total() < 8, "{outcome:?}");
}

#[test]
fn replies_in_chunks_in_pieces_and_until_the_end_are_read() {
    let server = Server::start(|arrived| match arrived.number % 3 {
        0 => Answer::Bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nT: x\r\n\r\n"
                .to_vec(),
        ),
        1 => Answer::Bytes([b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), reply(200, &"x".repeat(300_000))].concat()),
        _ => Answer::Last(b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec()),
    });
    let outcome = record(&closed(server.address, 300)).outcome;
    assert!(outcome.right > 10 && outcome.right == outcome.planned, "{outcome:?}");
}

/// A TLS server on the reactor, which answers each read with a reply.
mod tls_server {
    use super::reply;
    use reactor::{
        Accept, ConnectionId, Io, ListenerSettings, Loop, Protocol, Reactor, ReactorSettings, RunningReactor, TlsServer,
    };
    use std::net::SocketAddr;

    struct Hello;

    impl Protocol for Hello {
        fn input(&mut self, io: &mut Io<'_>) {
            let bytes = io.input().len();
            io.consume(bytes);
            if bytes > 0 {
                io.output().extend_from_slice(&reply(200, "hello"));
            }
            if io.input_ended() {
                io.finish();
            }
        }
    }

    struct Hellos;

    impl Accept for Hellos {
        fn accept(&mut self, _peer: SocketAddr, _id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
            Some(Box::new(Hello))
        }
    }

    pub(super) fn start(tls: TlsServer) -> (SocketAddr, RunningReactor) {
        let mut reactor = Reactor::new(ReactorSettings { loops: 1, ..ReactorSettings::default() }).unwrap();
        let settings = ListenerSettings { tls: Some(tls), ..ListenerSettings::default() };
        let (listener, address) = reactor.bind("127.0.0.1:0".parse().unwrap(), settings).unwrap();
        reactor.set_up(move |setup| setup.accept(listener, Box::new(Hellos)));
        (address, reactor.start().unwrap())
    }
}

#[test]
fn tls_is_spoken_with_a_server_that_is_trusted_and_not_with_another() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), &["http/1.1"]).unwrap();
    let (address, running) = tls_server::start(tls);
    let trusted = TlsClient::from_pem(certificate.as_bytes(), "localhost", &["http/1.1"]).unwrap();
    for load in [closed(address, 200), open(address, "const(100,200ms)")] {
        let outcome = record(&LoadSettings { tls: Some(trusted.clone()), ..load }).outcome;
        assert!(outcome.right > 10 && outcome.right == outcome.planned, "{outcome:?}");
    }
    let named = trusted.named("other.test").unwrap();
    let outcome = record(&LoadSettings { tls: Some(named), ..open(address, "const(100,100ms)") }).outcome;
    let (reason, count) = outcome.failures.connect.iter().next().expect("no connection is made");
    assert!(*count == 10 && reason.contains("TLS handshake") && reason.contains("name"), "{outcome:?}");
    running.drain(Duration::ZERO);
    running.join().unwrap();
}

#[test]
fn progress_is_told_once_a_second() {
    let server = Server::start(|_| ok());
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let of_engine = std::rc::Rc::clone(&seen);
    let progress =
        Box::new(move |progress: &loadtest::live::RunProgress| of_engine.borrow_mut().push(progress.clone()));
    let watchers = Watchers { progress: Some(progress), ..Watchers::default() };
    let outcome = finish(&open(server.address, "const(100,2500ms)"), get(), watchers).recording.outcome;
    let seen = seen.borrow();
    assert!((1..=3).contains(&seen.len()), "{seen:?}");
    let last = seen.last().unwrap();
    assert!(last.requests > 0 && last.requests <= outcome.planned && last.errors == 0, "{last:?}");
    assert_eq!((last.planned_rate, last.planned_seconds), (Some(100.0), Some(2.5)));
}
