//! The client over TLS: with a real redis-server, and with servers that it must refuse.

use crate::certificate::Authority;
use crate::fake_server::{FakeServer, Peer, script};
use crate::redis_tls::TlsRedis;
use resp::{
    Client, ClientPool, ClientSettings, CommandError, Endpoint, Lost, NotSent, Pipeline, Subscriber, SubscriberEvent,
    Tls,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Short enough to wait for, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(300);
/// Options of a server that requires no client certificate.
const ANY_CLIENT: [&str; 2] = ["--tls-auth-clients", "no"];

#[test]
fn commands_pipelines_and_large_values_pass_in_both_versions() {
    let authority = Authority::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let arguments = [&ANY_CLIENT[..], &["--tls-protocols", version]].concat();
        let Some(server) = TlsRedis::start(&authority, &arguments) else { return };
        let mut client = Client::connect(&format!("{}&protocol=resp3", server.tls_address())).unwrap();
        client.set_timeout(PATIENCE);
        client.command::<()>(("SET", "k", "v")).unwrap();
        assert_eq!(client.command::<String>(("GET", "k")).unwrap(), "v");
        check_pipeline(&mut client);
        check_large_value(&mut client);
    }
}

fn check_pipeline(client: &mut Client) {
    let mut pipeline = Pipeline::new();
    for _ in 0..10_000 {
        pipeline.add(("INCR", "count"));
    }
    let counts = client.pipeline::<usize>(&pipeline).unwrap();
    assert!(counts.into_iter().map(Result::unwrap).eq(1..=10_000));
}

/// Many records, and more bytes than both sockets hold.
fn check_large_value(client: &mut Client) {
    let value: Vec<u8> = (0..20 << 20).map(|index: u32| (index % 251) as u8).collect();
    client.command::<()>(("SET", "large", &value)).unwrap();
    assert!(client.command::<Vec<u8>>(("GET", "large")).unwrap() == value);
}

#[test]
fn commands_without_replies_are_executed_in_order() {
    let authority = Authority::new();
    let Some(server) = TlsRedis::start(&authority, &ANY_CLIENT) else { return };
    let mut client = Client::connect(&server.tls_address()).unwrap();
    for number in 0..5_000 {
        client.noreply(("RPUSH", "list", number)).unwrap();
    }
    let list = client.command::<Vec<i32>>(("LRANGE", "list", 0, -1)).unwrap();
    assert!(list.into_iter().eq(0..5_000));
}

#[test]
fn threads_share_a_pool() {
    let authority = Authority::new();
    let Some(server) = TlsRedis::start(&authority, &ANY_CLIENT) else { return };
    let pool = ClientPool::new(ClientSettings::of(&server.tls_address()).unwrap(), 3);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..50).for_each(|_| pool.get().unwrap().command::<()>(("INCR", "n")).unwrap()));
        }
    });
    assert_eq!(pool.get().unwrap().command::<i64>(("GET", "n")).unwrap(), 300);
}

#[test]
fn client_and_subscriber_connect_again_after_a_restart() {
    let authority = Authority::new();
    let Some(mut server) = TlsRedis::start(&authority, &ANY_CLIENT) else { return };
    let mut client = Client::connect(&server.tls_address()).unwrap();
    client.select(3).unwrap();
    let mut subscriber = Subscriber::connect(ClientSettings::of(&server.tls_address()).unwrap()).unwrap();
    subscriber.subscribe(&["news"]).unwrap();
    assert_eq!(subscriber.next(PATIENCE).unwrap(), Some(SubscriberEvent::Subscribed { channel: b"news" }));
    server.kill();
    server.run();
    assert_eq!(subscriber.next(PATIENCE).unwrap(), Some(SubscriberEvent::Reconnected));
    assert_eq!(subscriber.next(PATIENCE).unwrap(), Some(SubscriberEvent::Subscribed { channel: b"news" }));
    // The end of the connection is noticed before the command is sent.
    std::thread::sleep(SHORT);
    assert_eq!(client.publish("news", "again").unwrap(), 1);
    let expected = SubscriberEvent::Message { pattern: None, channel: b"news", payload: b"again" };
    assert_eq!(subscriber.next(PATIENCE).unwrap(), Some(expected));
    assert!(client.command::<String>(("CLIENT", "INFO")).unwrap().contains(" db=3 "));
}

#[test]
fn a_server_that_wants_a_certificate_of_the_client_gets_it() {
    let authority = Authority::new();
    let Some(server) = TlsRedis::start(&authority, &[]) else { return };
    let own = authority.issue("client.test");
    let mut settings = ClientSettings::of(&server.tls_address()).unwrap();
    let tls = settings.tls.clone().unwrap();
    // In TLS 1.3 the server's refusal follows the handshake; here it meets HELLO, which belongs to connecting.
    settings.version = resp::codec::ProtocolVersion::Resp3;
    let error = Client::new(settings.clone()).command::<()>("PING").unwrap_err();
    let words = "TLS: the server requires a certificate of the client";
    assert!(matches!(&error, CommandError::NotSent(NotSent::Tls(error)) if error.to_string() == words), "{error:?}");
    settings.tls = Some(tls.with_identity(own.certificate.as_bytes(), own.key.as_bytes()).unwrap());
    assert_eq!(Client::new(settings).command::<String>("PING").unwrap(), "PONG");
}

/// The client gives up at its first attempt, although it has time, with this message.
#[track_caller]
fn check_refused(server: &FakeServer, tls: Tls, words: &str) {
    let mut settings = server.settings.clone();
    (settings.tls, settings.timeout) = (Some(tls), Duration::from_secs(3600));
    let error = Client::new(settings).command::<()>("PING").unwrap_err();
    assert!(matches!(error, CommandError::NotSent(NotSent::Tls(_))), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

/// A script for a client that never sends a request.
fn no_request(peer: &mut Peer) {
    peer.expect_refusal();
}

#[test]
fn a_certificate_of_an_unknown_issuer_is_refused() {
    let server = FakeServer::start_tls(vec![script(no_request)]);
    let tls = Tls::with_roots(Authority::new().certificate.as_bytes(), "127.0.0.1").unwrap();
    check_refused(&server, tls, "unknown issuer");
    server.finish();
}

#[test]
fn an_issuer_that_only_has_the_name_of_a_trusted_one_is_refused() {
    let [trusted, other] = [Authority::named("same"), Authority::named("same")];
    let server = FakeServer::start_tls_with(&other.issue("127.0.0.1"), vec![script(no_request)]);
    let tls = Tls::with_roots(trusted.certificate.as_bytes(), "127.0.0.1").unwrap();
    check_refused(&server, tls, "was not signed by the trusted issuer");
    server.finish();
}

#[test]
fn the_system_does_not_trust_an_authority_that_a_test_made() {
    let server = FakeServer::start_tls(vec![script(no_request)]);
    match Tls::with_system_roots("127.0.0.1") {
        Ok(tls) => check_refused(&server, tls, "unknown issuer"),
        Err(error) => {
            assert_eq!(error, resp::TlsSettingsError::NoSystemRoots);
            crate::redis_tls::skip("the system has no trusted certificates");
            return;
        }
    }
    server.finish();
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let server = FakeServer::start_tls_with(&authority.issue("other.test"), vec![script(no_request)]);
    let tls = Tls::with_roots(authority.certificate.as_bytes(), "127.0.0.1").unwrap();
    check_refused(&server, tls, "not valid for name");
    server.finish();
}

#[test]
fn the_expected_name_can_be_another_than_the_host() {
    let authority = Authority::new();
    let answer = |peer: &mut Peer| {
        peer.expect("PING");
        peer.send(b"+PONG\r\n");
    };
    let server = FakeServer::start_tls_with(&authority.issue("other.test"), vec![script(answer)]);
    let mut settings = server.settings.clone();
    settings.tls = Some(Tls::with_roots(authority.certificate.as_bytes(), "other.test").unwrap());
    assert_eq!(Client::new(settings).command::<String>("PING").unwrap(), "PONG");
    server.finish();
}

#[test]
fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let server = FakeServer::start_tls_with(&authority.issue_expired("127.0.0.1"), vec![script(no_request)]);
    let tls = Tls::with_roots(authority.certificate.as_bytes(), "127.0.0.1").unwrap();
    check_refused(&server, tls, "expired");
    server.finish();
}

fn any_tls() -> Tls {
    Tls::with_roots(Authority::new().certificate.as_bytes(), "127.0.0.1").unwrap()
}

#[test]
fn a_server_without_tls_is_refused_with_what_is_wrong() {
    let server = FakeServer::start(vec![script(|peer| peer.send(b"-ERR unknown command\r\n"))]);
    check_refused(&server, any_tls(), "no TLS; it may expect none (redis://)");
    server.finish();
}

/// A server that begins a handshake in this way and does not end it; the call ends in time, with the reason.
#[track_caller]
fn check_handshake(run: impl FnOnce(&mut Peer) + Send + 'static, kind: std::io::ErrorKind, words: &str) {
    let server = FakeServer::start(vec![script(run)]);
    let mut settings = server.settings.clone();
    (settings.tls, settings.timeout) = (Some(any_tls()), SHORT);
    let error = Client::new(settings).command::<()>("PING").unwrap_err();
    assert!(matches!(&error, CommandError::NotSent(NotSent::Connect(error)) if error.kind() == kind), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
    server.finish();
}

/// The beginning of a record that holds a ServerHello of 122 bytes.
const HALF_HELLO: [u8; 9] = [0x16, 3, 3, 0, 122, 2, 0, 0, 118];

#[test]
fn a_server_that_stops_in_the_middle_of_the_handshake_ends_the_call_at_its_deadline() {
    let words = "TLS: the server did not complete the handshake in time";
    let stop = |peer: &mut Peer| {
        peer.send(&HALF_HELLO);
        peer.expect_refusal();
    };
    check_handshake(stop, std::io::ErrorKind::TimedOut, words);
    let silent = |peer: &mut Peer| peer.expect_refusal();
    check_handshake(silent, std::io::ErrorKind::TimedOut, words);
    let drip = |peer: &mut Peer| {
        peer.send(&HALF_HELLO);
        let started = Instant::now();
        while started.elapsed() < SHORT * 20 && peer.send_some(&[0]) == 1 {
            std::thread::sleep(SHORT / 20);
        }
    };
    check_handshake(drip, std::io::ErrorKind::TimedOut, words);
}

/// Accepts a connection to this server, whose replies arrive in pieces smaller than a record.
fn slow_relay(server: Endpoint) -> Endpoint {
    let Endpoint::Tcp { host, port } = server else { panic!("no TCP") };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Endpoint::Tcp { host: host.clone(), port: listener.local_addr().unwrap().port() };
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        let mut server = TcpStream::connect((host.as_str(), port)).unwrap();
        let (mut requests, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut requests, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let mut piece = [0; 10];
        while let Ok(read @ 1..) = server.read(&mut piece) {
            if client.write_all(&piece[..read]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    relay
}

#[test]
fn a_reply_in_records_that_come_in_pieces_is_read() {
    let authority = Authority::new();
    let server = FakeServer::start_tls_with(
        &authority.issue("127.0.0.1"),
        vec![script(|peer| {
            for _ in 0..3 {
                peer.expect("GET");
                peer.send(b"$10\r\n0123456789\r\n");
            }
            peer.expect_end();
        })],
    );
    let mut settings = server.settings.clone();
    settings.tls = Some(Tls::with_roots(authority.certificate.as_bytes(), "127.0.0.1").unwrap());
    settings.endpoint = slow_relay(server.settings.endpoint.clone());
    let mut client = Client::new(settings);
    client.command::<String>(("GET", "k")).unwrap();
    let mut pipeline = Pipeline::new();
    pipeline.add(("GET", "k")).add(("GET", "k"));
    let replies = client.pipeline::<String>(&pipeline).unwrap();
    assert!(replies.into_iter().all(|reply| reply.unwrap() == "0123456789"));
    drop(client);
    server.finish();
}

#[test]
fn an_end_without_close_notify_leaves_the_outcome_unknown() {
    let server = FakeServer::start_tls(vec![script(|peer| {
        peer.expect("GET");
    })]);
    let error = Client::new(server.settings.clone()).command::<()>(("GET", "k")).unwrap_err();
    assert!(matches!(error, CommandError::OutcomeUnknown(Lost::Closed)), "{error:?}");
    server.finish();
}
