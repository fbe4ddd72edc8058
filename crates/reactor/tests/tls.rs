//! TLS in both directions: the reactor's server and client, each against rustls on a plain blocking socket, and against each
//! other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{Echo, FILE_TAIL, FileSender, Lines, Making, PATIENCE, any_port, connect, eventually, loops};
use reactor::{
    Closed, ConnectFailure, Factory, Io, ListenerSettings, Message, Outgoing, Protocol, Reactor, ReactorSettings,
    RunningReactor, TlsClient, TlsServer, Traffic,
};

const NAME: &str = "server.test";

/// A self-signed certificate and its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
    der: rustls::pki_types::CertificateDer<'static>,
}

fn pair(name: &str) -> Pair {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem(), der: made.cert.der().clone() }
}

impl Pair {
    fn server(&self) -> TlsServer {
        TlsServer::from_pem(self.certificate.as_bytes(), self.key.as_bytes(), &["echo"]).unwrap()
    }

    fn client(&self, name: &str) -> TlsClient {
        TlsClient::from_pem(self.certificate.as_bytes(), name, &["echo"]).unwrap()
    }

    /// A blocking client of rustls that trusts this certificate.
    fn plain_client(&self, versions: &[&'static rustls::SupportedProtocolVersion], protocols: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

struct TlsEcho {
    address: SocketAddr,
    running: RunningReactor,
}

fn serve(settings: ReactorSettings, tls: TlsServer, factory: Arc<dyn Factory>) -> TlsEcho {
    let mut reactor = Reactor::new(settings).unwrap();
    let own = ListenerSettings { tls: Some(tls), ..ListenerSettings::default() };
    let (listener, address) = reactor.bind(any_port(), own).unwrap();
    reactor.accept_by(listener, factory);
    TlsEcho { address, running: reactor.start().unwrap() }
}

impl TlsEcho {
    fn stop(self) {
        self.running.drain(Duration::from_millis(300));
        self.running.join().unwrap();
    }
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn shake_hands(address: SocketAddr, config: ClientConfig) -> std::io::Result<Stream> {
    let name = ServerName::try_from(NAME).unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = connect(address);
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(session, stream))
}

fn both_versions() -> [&'static rustls::SupportedProtocolVersion; 2] {
    [&rustls::version::TLS12, &rustls::version::TLS13]
}

/// The server has closed or reset the connection.
#[track_caller]
fn check_ended(stream: &mut TcpStream) {
    match stream.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// Sends that many bytes while it reads them back; then ends its half, and reads the server's end.
#[track_caller]
fn check_echo(mut stream: Stream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    let mut got = Vec::new();
    for piece in sent.chunks(100_000) {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
        let mut reply = vec![0; piece.len()];
        stream.read_exact(&mut reply).unwrap();
        got.append(&mut reply);
    }
    assert!(got == sent, "{bytes} bytes");
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    // The server's close_notify, not the bare end of its TCP connection, which rustls returns as an error.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn what_is_sent_comes_back_in_each_version_with_both_ends() {
    let pair = pair(NAME);
    let server = serve(loops(2), pair.server(), Making::each(|_, _| Box::new(Echo)));
    for version in both_versions() {
        for bytes in [0, 1, 70_000, 3_000_000] {
            check_echo(shake_hands(server.address, pair.plain_client(&[version], &["echo"])).unwrap(), bytes);
        }
    }
    eventually("all are closed", || server.running.metrics().sum(|l| l.open) == 0);
    assert_eq!(server.running.metrics().sum(|l| l.handshakes), 8);
    assert_eq!(server.running.metrics().sum(|l| l.closed_finished), 8);
    server.stop();
}

#[test]
fn a_file_is_sent_in_its_place() {
    let contents: Vec<u8> = (0..700_000).map(|at| (at % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&contents).unwrap();
    let (pair, sender) = (pair(NAME), FileSender::new(file, 7, contents.len() - 7));
    let server = serve(loops(1), pair.server(), Making::each(move |_, _| Box::new(sender.clone())));
    let mut stream = shake_hands(server.address, pair.plain_client(&both_versions(), &["echo"])).unwrap();
    stream.write_all(b"abc").unwrap();
    stream.flush().unwrap();
    let expected = [b"head ", &contents[7..], FILE_TAIL].concat().repeat(3);
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == expected);
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    server.stop();
}

#[test]
fn small_buffers_change_nothing_but_speed() {
    let pair = pair(NAME);
    let tight = Traffic {
        read_bytes_per_turn: 512,
        input_bytes_max: 512,
        output_high_water: 1000,
        output_low_water: 100,
        ..Traffic::default()
    };
    let settings = ReactorSettings { pool_buffers_max: 0, traffic: tight, ..loops(1) };
    let server = serve(settings, pair.server(), Making::each(|_, _| Box::new(Echo)));
    check_echo(shake_hands(server.address, pair.plain_client(&both_versions(), &[])).unwrap(), 300_000);
    server.stop();
}

#[test]
fn a_protocol_is_agreed_on_and_a_client_that_offers_others_is_refused() {
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Echo)));
    let stream = shake_hands(server.address, pair.plain_client(&both_versions(), &["other", "echo"])).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(b"echo".as_slice()));
    let error = shake_hands(server.address, pair.plain_client(&both_versions(), &["other"])).unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    eventually("it is counted", || server.running.metrics().sum(|l| l.handshakes_failed) == 1);
    server.stop();
}

#[test]
fn every_split_of_a_clients_bytes_is_understood() {
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Lines)));
    for piece in [1, 7, 100] {
        let name = ServerName::try_from(NAME).unwrap();
        let mut session = ClientConnection::new(Arc::new(pair.plain_client(&both_versions(), &[])), name).unwrap();
        let mut stream = connect(server.address);
        while session.is_handshaking() || session.wants_write() {
            let mut records = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut records).unwrap();
            }
            for part in records.chunks(piece) {
                stream.write_all(part).unwrap();
            }
            if session.is_handshaking() && session.wants_read() {
                session.read_tls(&mut stream).unwrap();
                session.process_new_packets().unwrap();
            }
        }
        let mut stream = StreamOwned::new(session, stream);
        stream.write_all(b"in pieces\n").unwrap();
        let mut reply = [0; 11];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b">in pieces\n");
    }
    server.stop();
}

#[test]
fn a_slow_reader_stops_a_fast_sender_and_memory_stays_bounded() {
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Echo)));
    let mut stream = shake_hands(server.address, pair.plain_client(&both_versions(), &[])).unwrap();
    stream.sock.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0_u64;
    let error = loop {
        match stream.write_all(&[7; 65_536]).and_then(|()| stream.flush()) {
            Ok(()) => sent += 65_536,
            Err(error) => break error,
        }
        assert!(sent < 200_000_000, "the sender is not stopped");
    };
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    let held = server.running.metrics().sum(|l| l.held_bytes);
    let traffic = Traffic::default();
    // Buffers double in size; beside the queues there are bytes that wait for the socket and decrypted bytes.
    let bound = 2 * (traffic.output_high_water + 2 * traffic.read_bytes_per_turn) + (64 << 10) + (32 << 10);
    assert!(held > 0 && held <= bound as u64, "{held} bytes are held");
    // Once it reads, all echoed bytes arrive in order, beside those that the session has not sent yet.
    stream.sock.set_nonblocking(true).unwrap();
    let mut read = 0;
    eventually("all has come back", || {
        let mut piece = [0; 16_384];
        let _ = stream.conn.write_tls(&mut stream.sock);
        while stream.conn.read_tls(&mut stream.sock).is_ok_and(|received| received > 0) {
            stream.conn.process_new_packets().unwrap();
            while let Ok(taken) = stream.conn.reader().read(&mut piece) {
                assert!(taken > 0 && piece[..taken].iter().all(|byte| *byte == 7), "{:?}", server.running.metrics());
                read += taken as u64;
            }
        }
        read >= sent
    });
    server.stop();
}

#[test]
fn a_peer_that_does_not_shake_hands_is_closed_after_the_time_for_it() {
    let pair = pair(NAME);
    let tls = pair.server().with_handshake_max(Duration::from_millis(50));
    let server = serve(loops(1), tls, Making::each(|_, _| Box::new(Echo)));
    let mut silent = connect(server.address);
    check_ended(&mut silent);
    let mut half = connect(server.address);
    half.write_all(&[22, 3, 1, 2, 0, 1]).unwrap(); // the beginning of a hello
    check_ended(&mut half);
    eventually("they are gone", || server.running.metrics().sum(|l| l.open) == 0);
    let metrics = server.running.metrics();
    assert_eq!((metrics.sum(|l| l.handshakes_failed), metrics.sum(|l| l.closed_transport)), (2, 2));
    server.stop();
}

#[test]
fn what_is_no_tls_is_answered_by_an_alert_and_closed() {
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Echo)));
    let mut stream = connect(server.address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer[0] == 21, "an alert or nothing: {answer:?}");
    eventually("it is gone", || server.running.metrics().sum(|l| l.open) == 0);
    server.stop();
}

/// Reports how it was closed.
struct Closing(Sender<Closed>);

impl Protocol for Closing {
    fn input(&mut self, io: &mut Io<'_>) {
        io.consume(io.input().len());
        if io.input_ended() {
            io.finish();
        }
    }
    fn closed(&mut self, reason: Closed) {
        self.0.send(reason).unwrap();
    }
}

#[test]
fn a_peer_that_is_cut_off_is_no_peer_that_has_ended() {
    let pair = pair(NAME);
    let (told, reasons) = mpsc::channel();
    let server = serve(loops(1), pair.server(), Making::each(move |_, _| Box::new(Closing(told.clone()))));
    let config = || pair.plain_client(&both_versions(), &[]);
    // By the end of its TCP connection alone, which anybody in between could cause.
    let cut = shake_hands(server.address, config()).unwrap();
    cut.sock.shutdown(Shutdown::Both).unwrap();
    assert_eq!(reasons.recv_timeout(PATIENCE), Ok(Closed::Peer));
    let mut ended = shake_hands(server.address, config()).unwrap();
    ended.conn.send_close_notify();
    ended.flush().unwrap();
    assert_eq!(reasons.recv_timeout(PATIENCE), Ok(Closed::Finished));
    server.stop();
}

/// Blocks the loop until the sender is used or dropped.
fn hold(server: &TlsEcho) -> Sender<()> {
    let (release, released) = mpsc::channel();
    server.running.loops()[0].run(Box::new(move |_| {
        let _ = released.recv();
    }));
    release
}

#[test]
fn an_end_that_arrives_together_with_bytes_is_seen_behind_them() {
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Echo)));
    for version in both_versions() {
        for says_so in [true, false] {
            let mut stream = shake_hands(server.address, pair.plain_client(&[version], &["echo"])).unwrap();
            stream.write_all(b"first").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            let release = hold(&server);
            stream.write_all(b"last").unwrap();
            if says_so {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
            stream.sock.shutdown(Shutdown::Write).unwrap();
            drop(release);
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            assert_eq!(rest, b"last", "{ended:?}");
        }
    }
    eventually("all are closed", || server.running.metrics().sum(|l| l.open) == 0);
    let closed = |count: fn(&reactor::LoopMetrics) -> u64| server.running.metrics().sum(count);
    assert_eq!((closed(|l| l.closed_finished), closed(|l| l.closed_peer)), (2, 2));
    server.stop();
}

#[test]
fn another_certificate_is_used_from_the_next_handshake_on() {
    let (first, second) = (pair(NAME), pair(NAME));
    let tls = first.server();
    let server = serve(loops(2), tls.clone(), Making::each(|_, _| Box::new(Lines)));
    let mut open = shake_hands(server.address, first.plain_client(&both_versions(), &[])).unwrap();
    tls.replace(second.certificate.as_bytes(), second.key.as_bytes()).unwrap();
    assert!(shake_hands(server.address, first.plain_client(&both_versions(), &[])).is_err());
    shake_hands(server.address, second.plain_client(&both_versions(), &[])).unwrap();
    open.write_all(b"still\n").unwrap();
    let mut reply = [0; 7];
    open.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b">still\n");
    server.stop();
}

// ---- the reactor's client ----

/// Sends some bytes once it is connected, and reports the answer, the failure, and how it ended.
struct Asking {
    bytes: usize,
    got: usize,
    told: Sender<String>,
}

impl Protocol for Asking {
    fn writable(&mut self, io: &mut Io<'_>) {
        if self.got == 0 && io.unsent() == 0 {
            let bytes = self.bytes;
            io.output().extend((0..bytes).map(|i| (i % 251) as u8));
        }
    }
    fn input(&mut self, io: &mut Io<'_>) {
        let right = io.input().iter().enumerate().all(|(at, byte)| *byte == ((self.got + at) % 251) as u8);
        assert!(right, "other bytes came back");
        self.got += io.input().len();
        io.consume(io.input().len());
        if self.got == self.bytes {
            self.told.send(format!("{} bytes", self.got)).unwrap();
            io.finish();
        }
    }
    fn message(&mut self, _message: Message, io: &mut Io<'_>) {
        io.finish();
    }
    fn failed(&mut self, error: &std::io::Error) {
        self.told.send(error.to_string()).unwrap();
    }
    fn closed(&mut self, reason: Closed) {
        self.told.send(format!("{reason:?}")).unwrap();
    }
}

fn ask(running: &RunningReactor, to: SocketAddr, tls: TlsClient, bytes: usize) -> Receiver<String> {
    let (told, tellings) = mpsc::channel();
    let own = Outgoing { tls: Some(tls), ..Outgoing::to(to) };
    running.loops()[0].connect(own, Box::new(move |_, _| Box::new(Asking { bytes, got: 0, told })));
    tellings
}

#[test]
fn client_and_server_of_two_reactors_exchange_bytes() {
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Echo)));
    let client = Reactor::new(loops(1)).unwrap().start().unwrap();
    // The bytes that it writes at once stay below the high-water mark: above it neither side would read.
    for bytes in [1, 20_000, 200_000] {
        let tellings = ask(&client, server.address, pair.client(NAME), bytes);
        assert_eq!(tellings.recv_timeout(PATIENCE).unwrap(), format!("{bytes} bytes"));
        assert_eq!(tellings.recv_timeout(PATIENCE).unwrap(), "Finished");
    }
    assert_eq!(client.metrics().sum(|l| l.handshakes), 3);
    client.drain(Duration::ZERO);
    client.join().unwrap();
    server.stop();
}

#[track_caller]
fn check_distrust(tls: TlsClient, server: &TlsEcho, expected: &str) {
    let client = Reactor::new(loops(1)).unwrap().start().unwrap();
    let tellings = ask(&client, server.address, tls, 1);
    let text = tellings.recv_timeout(PATIENCE).unwrap();
    assert!(text.contains(expected), "{text}");
    let reason = format!("{:?}", Closed::Unconnected(ConnectFailure::Handshake));
    assert_eq!(tellings.recv_timeout(PATIENCE).unwrap(), reason);
    client.drain(Duration::ZERO);
    client.join().unwrap();
}

#[test]
fn a_server_that_is_not_trusted_or_has_another_name_fails_the_handshake_with_a_text() {
    let (ours, other) = (pair(NAME), pair("other.test"));
    let server = serve(loops(1), ours.server(), Making::each(|_, _| Box::new(Echo)));
    check_distrust(ours.client("other.test"), &server, "not valid for name");
    check_distrust(other.client(NAME), &server, "invalid peer certificate");
    server.stop();
}

#[test]
fn a_server_may_require_a_certificate_that_its_roots_have_issued() {
    let (ours, of_client, other) = (pair(NAME), pair("client.test"), pair("other.test"));
    let [certificate, key, roots] = [&ours.certificate, &ours.key, &of_client.certificate].map(|pem| pem.as_bytes());
    let tls = TlsServer::from_pem_with_client_roots(certificate, key, roots, &["echo"]).unwrap();
    let server = serve(loops(1), tls, Making::each(|_, _| Box::new(Echo)));
    let client = Reactor::new(loops(1)).unwrap().start().unwrap();
    let showing = |pair: &Pair| {
        let tls = ours.client(NAME).with_certificate(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
        ask(&client, server.address, tls, 1)
    };
    let served = showing(&of_client);
    assert_eq!(served.recv_timeout(PATIENCE).unwrap(), "1 bytes");
    let refused = [showing(&other), ask(&client, server.address, ours.client(NAME), 1)];
    for tellings in &refused {
        // Under TLS 1.3 the client has sent by then: it gets an alert, or a reset because of unread bytes.
        assert_ne!(tellings.recv_timeout(PATIENCE).unwrap(), "1 bytes");
    }
    eventually("both are counted", || server.running.metrics().sum(|l| l.handshakes_failed) == 2);
    client.drain(Duration::ZERO);
    client.join().unwrap();
    server.stop();
}

#[test]
fn a_server_that_never_answers_a_hello_is_given_up_after_the_time_for_it() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Reactor::new(loops(1)).unwrap().start().unwrap();
    let tls = pair(NAME).client(NAME).with_handshake_max(Duration::from_millis(50));
    let tellings = ask(&client, silent.local_addr().unwrap(), tls, 1);
    let reason = format!("{:?}", Closed::Unconnected(ConnectFailure::TimedOut));
    assert_eq!(tellings.recv_timeout(PATIENCE).unwrap(), reason);
    client.drain(Duration::ZERO);
    client.join().unwrap();
}

#[test]
fn a_drain_waits_for_no_handshake() {
    let pair = pair(NAME);
    let tls = pair.server().with_handshake_max(Duration::from_secs(600));
    let server = serve(loops(1), tls, Making::each(|_, _| Box::new(Echo)));
    let mut silent = connect(server.address);
    eventually("it is there", || server.running.metrics().sum(|l| l.open) == 1);
    server.running.drain(Duration::from_secs(600));
    check_ended(&mut silent);
    server.running.join().unwrap();
}

/// OpenSSL's client speaks both versions with us, and may not renegotiate.
#[test]
fn openssl_speaks_with_us_and_may_not_renegotiate() {
    if Command::new("openssl").arg("version").output().is_err() {
        let text = b"\nSKIPPED: there is no openssl command\n";
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text);
        return;
    }
    let pair = pair(NAME);
    let server = serve(loops(1), pair.server(), Making::each(|_, _| Box::new(Lines)));
    for version in ["-tls1_3", "-tls1_2"] {
        let before = server.running.metrics().sum(|l| l.bytes_out);
        let (mut client, mut stdin) = openssl(&server, version);
        stdin.write_all(b"a line\n").unwrap();
        eventually("it is answered", || server.running.metrics().sum(|l| l.bytes_out) == before + 8);
        // `Q` ends the connection once it has read the answer: both are read in order.
        stdin.write_all(b"Q\n").unwrap();
        let (text, errors) = output_of(&mut client);
        assert!(text.contains("Protocol") || text.contains("New, TLSv1"), "{text}{errors}");
    }
    let (mut client, mut stdin) = openssl(&server, "-tls1_2");
    eventually("hands are shaken", || server.running.metrics().sum(|l| l.handshakes) == 3);
    stdin.write_all(b"R\n").unwrap();
    let (text, errors) = output_of(&mut client);
    assert!(errors.contains("no renegotiation"), "{text}{errors}");
    drop(stdin);
    eventually("it is gone", || server.running.metrics().sum(|l| l.open) == 0);
    server.stop();
}

fn openssl(server: &TlsEcho, version: &str) -> (std::process::Child, std::process::ChildStdin) {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &server.address.to_string(), "-servername", NAME, version])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = client.stdin.take().unwrap();
    (client, stdin)
}

/// The output of the process when it ends; one that does not end is killed.
fn output_of(client: &mut std::process::Child) -> (String, String) {
    let begun = std::time::Instant::now();
    while client.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            client.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    (read(&mut client.stdout.take().unwrap()), read(&mut client.stderr.take().unwrap()))
}
