//! Memory of idle TLS connections. A test binary of its own: it measures the process.
#![allow(clippy::unwrap_used, unsafe_code)] // setrlimit has no safe binding among our libraries

mod harness;
mod process_limits;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use process_limits::{descriptors_max, resident_bytes};

use harness::{Lines, Making, any_port, connect, eventually, loops};
use reactor::{ListenerSettings, Reactor, TlsServer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CONNECTIONS: usize = 2_000;
/// 8.0 KB were measured, of which rustls keeps 4 KB as its read buffer.
const BYTES_EACH_MAX: usize = 16 * 1024;
const ADDRESS: &str = "TLS_MEMORY_ADDRESS";
const CERTIFICATE: &str = "TLS_MEMORY_CERTIFICATE";

fn client_config(certificate: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// A connection that has used its buffers before it falls idle.
fn used(address: SocketAddr, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, std::net::TcpStream> {
    let session = ClientConnection::new(Arc::clone(config), ServerName::try_from("server.test").unwrap()).unwrap();
    let mut stream = StreamOwned::new(session, connect(address));
    stream.write_all(b"a request\n").unwrap();
    stream.read_exact(&mut [0; 11]).unwrap();
    stream
}

/// The clients, in a process of their own, so that their memory and descriptors are not the server's.
#[test]
#[ignore = "the client process of the other test"]
fn client() {
    let Ok(given) = std::env::var(ADDRESS) else { return };
    let (address, count) = given.split_once('/').unwrap();
    let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
    let config = client_config(&std::env::var(CERTIFICATE).unwrap());
    descriptors_max();
    let streams: Vec<_> = (0..count).map(|_| used(address, &config)).collect();
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    drop(streams);
}

#[test]
fn idle_tls_connections_hold_little_memory() {
    let count = CONNECTIONS.min(descriptors_max() - 200);
    let made = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), &[]).unwrap();
    let mut reactor = Reactor::new(loops(2)).unwrap();
    let own = ListenerSettings { tls: Some(tls), ..ListenerSettings::default() };
    let (listener, address) = reactor.bind(any_port(), own).unwrap();
    reactor.accept_by(listener, Making::each(|_, _| Box::new(Lines)));
    let running = reactor.start().unwrap();
    let config = client_config(&certificate);
    drop((0..20).map(|_| used(address, &config)).collect::<Vec<_>>());
    eventually("the first are gone", || running.metrics().sum(|l| l.open) == 0);
    let before = resident_bytes();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["client", "--exact", "--ignored", "--nocapture"])
        .env(ADDRESS, format!("{address}/{count}"))
        .env(CERTIFICATE, certificate)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")), "the client failed");
    assert!(running.metrics().sum(|l| l.open) >= count as u64);
    let each = resident_bytes().saturating_sub(before) / count;
    println!("{count} idle TLS connections: {each} bytes each");
    assert!(each < BYTES_EACH_MAX, "{each} bytes for each of {count} idle connections");
    eventually("nothing is held", || running.metrics().sum(|l| l.held_bytes) == 0);
    client.stdin.take().unwrap().write_all(b"q").unwrap();
    lines.for_each(drop); // to its end: otherwise its last output fails with a broken pipe
    client.wait().unwrap();
    eventually("all are closed", || running.metrics().sum(|l| l.open) == 0);
    running.drain(std::time::Duration::from_millis(300));
    running.join().unwrap();
}
