//! TLS on the server's address: both versions, renewal of the certificate, and faulty files.

use crate::harness::{SERVER, mistakes};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use server::config::ServiceConfig;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// A self-signed certificate of `localhost`.
struct Pair {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem(), der: made.cert.der().clone() }
}

impl Pair {
    fn write(&self, folder: &Path) {
        std::fs::write(folder.join("cert.pem"), &self.certificate).unwrap();
        std::fs::write(folder.join("key.pem"), &self.key).unwrap();
    }
}

struct TlsServer {
    running: Option<server::RunningServer>,
    folder: tempfile::TempDir,
}

impl TlsServer {
    fn start(pair: &Pair) -> TlsServer {
        let folder = tempfile::tempdir().unwrap();
        pair.write(folder.path());
        let path = folder.path().join("service.toml");
        let tls = "tls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
        std::fs::write(&path, format!("{ITEMS}[server]\n{SERVER}{tls}")).unwrap();
        let config = ServiceConfig::load(&path, &[]).unwrap();
        let running = server::start(&config, &folder.path().join("data")).unwrap();
        TlsServer { running: Some(running), folder }
    }

    fn running(&self) -> &server::RunningServer {
        self.running.as_ref().unwrap()
    }

    /// Status line and body of a request on a connection of its own.
    fn ask(&self, pair: &Pair, version: &'static SupportedProtocolVersion, request: &str) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(pair.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        let socket = TcpStream::connect(self.running().address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        stream.write_all(request.as_bytes())?;
        let mut reply = String::new();
        // To the server's close_notify: the end of TCP alone would be an error.
        stream.read_to_string(&mut reply)?;
        assert_eq!(stream.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));
        Ok(reply)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain();
            running.join().unwrap();
        }
    }
}

fn request(method: &str, target: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn documents_are_written_and_read_in_both_versions() {
    let pair = pair();
    let server = TlsServer::start(&pair);
    for (id, version) in [(1, &rustls::version::TLS12), (2, &rustls::version::TLS13)] {
        let text = "x".repeat(100_000);
        let put =
            request("PUT", &format!("/_/collections/items/{id}"), &format!("{{\"id\":{id},\"text\":\"{text}\"}}"));
        let reply = server.ask(&pair, version, &put).unwrap();
        assert!(reply.starts_with("HTTP/1.1 20"), "{reply}");
        let reply = server.ask(&pair, version, &request("GET", &format!("/_/collections/items/{id}"), "")).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(&text), "{}", &reply[..200]);
    }
    let page = request("GET", "/_/schema", "").replace("Connection", "Origin: https://localhost\r\nConnection");
    let reply = server.ask(&pair, &rustls::version::TLS13, &page).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "a page of the server's own: {reply}");
}

#[test]
fn plain_http_on_the_address_is_answered_by_nothing_that_is_http() {
    let server = TlsServer::start(&pair());
    let mut stream = TcpStream::connect(server.running().address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request("GET", "/_/health", "").as_bytes()).unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP"));
}

#[test]
fn a_renewed_certificate_is_used_after_a_reload_and_a_damaged_one_is_not() {
    let (first, second) = (pair(), pair());
    let server = TlsServer::start(&first);
    let health = request("GET", "/_/health", "");
    let version = &rustls::version::TLS13;
    assert!(server.ask(&first, version, &health).is_ok());
    // Two files that do not belong together: the reload is refused, and names them.
    std::fs::write(server.folder.path().join("cert.pem"), &second.certificate).unwrap();
    let reply = server.ask(&first, version, &request("POST", "/_/config/reload", "")).unwrap();
    assert!(reply.starts_with("HTTP/1.1 4") && reply.contains("key.pem is not the private key"), "{reply}");
    assert!(server.ask(&first, version, &health).is_ok());
    second.write(server.folder.path());
    let reply = server.ask(&first, version, &request("POST", "/_/config/reload", "")).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(server.ask(&first, version, &health).is_err());
    assert!(server.ask(&second, version, &health).is_ok());
    // By a signal, as SIGHUP does.
    first.write(server.folder.path());
    server.running().reload();
    let begun = Instant::now();
    while server.ask(&first, version, &health).is_err() {
        assert!(begun.elapsed() < PATIENCE, "the certificate is not renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_missing_damaged_or_mismatching_file_is_named() {
    let (ours, other) = (pair(), pair());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, text) in [("cert", &*ours.certificate), ("key", &*ours.key), ("other", &*other.key), ("empty", "")] {
        std::fs::write(path(name), text).unwrap();
    }
    for (cert, key, told) in [
        ("cert", "key", None),
        ("none", "key", Some(["cannot read", "none: No such file"])),
        ("cert", "none", Some(["cannot read", "none: No such file"])),
        ("empty", "key", Some(["empty: certificate: ", "no PEM block"])),
        ("cert", "empty", Some(["empty: private key: ", ""])),
        ("cert", "other", Some(["other is not the private key of the certificate in", "cert"])),
    ] {
        let (cert, key) = (path(cert), path(key));
        let file = format!("[server]\ntls = {{ cert = \"{}\", key = \"{}\" }}\n", cert.display(), key.display());
        let found = mistakes(&file);
        match told {
            None => assert_eq!(found, ""),
            Some(parts) => assert!(found.contains("2:7") && parts.iter().all(|part| found.contains(part)), "{found}"),
        }
    }
    assert!(mistakes("[server]\ntls = { cert = \"x\" }\n").contains("key"));
}

#[test]
fn curl_speaks_both_versions() {
    if Command::new("curl").arg("--version").output().is_err() {
        let _ = std::io::stdout().write_all(b"\nSKIPPED: there is no curl\n");
        return;
    }
    let pair = pair();
    let server = TlsServer::start(&pair);
    let url = format!("https://localhost:{}/_/health", server.running().address().port());
    for versions in [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20", "--ipv4", "--cacert"]);
        let certificate = server.folder.path().join("cert.pem");
        let output =
            curl.arg(certificate).args(versions).arg("--write-out").arg("%{http_code}").arg(&url).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.ends_with("200"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}
