//! A server that follows a test's scripts, one for each connection, in order; optionally with TLS.

use crate::certificate::{Authority, Pair};
use resp::codec::{FrameLimits, RequestFramer};
use resp::{ClientSettings, Tls};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Every wait ends after this time.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) type Script = Box<dyn FnOnce(&mut Peer) + Send>;

pub(crate) struct FakeServer {
    pub(crate) settings: ClientSettings,
    thread: Option<JoinHandle<()>>,
}

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: Wire,
    /// Received bytes that no script has read yet.
    input: Vec<u8>,
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl FakeServer {
    /// Accepts a connection for each script; then the port is closed.
    pub(crate) fn start(scripts: Vec<Script>) -> FakeServer {
        FakeServer::run(scripts, Wire::Plain)
    }

    /// The same over TLS, with settings to match.
    pub(crate) fn start_tls(scripts: Vec<Script>) -> FakeServer {
        let authority = Authority::new();
        let mut server = FakeServer::start_tls_with(&authority.issue("127.0.0.1"), scripts);
        server.settings.tls = Some(Tls::with_roots(authority.certificate.as_bytes(), "127.0.0.1").unwrap());
        server
    }

    /// With this certificate; the settings are those without TLS.
    pub(crate) fn start_tls_with(pair: &Pair, scripts: Vec<Script>) -> FakeServer {
        let config = server_config(pair);
        FakeServer::run(scripts, move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            Wire::Tls(Box::new(StreamOwned::new(session, stream)))
        })
    }

    fn run(scripts: Vec<Script>, wire: impl Fn(TcpStream) -> Wire + Send + 'static) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut settings = ClientSettings::of(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        settings.timeout = LIMIT;
        let thread = std::thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                script(&mut Peer { stream: wire(stream), input: Vec::new() });
            }
        });
        FakeServer { settings, thread: Some(thread) }
    }

    /// Waits until all scripts have ended; panics if one of them has failed.
    pub(crate) fn finish(mut self) {
        self.thread.take().unwrap().join().expect("the scripts");
    }
}

impl Peer {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// Sends as much as the socket accepts at once, and returns the number of bytes.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> usize {
        self.stream.socket().set_nonblocking(true).unwrap();
        let sent = self.stream.write(bytes).unwrap_or(0);
        self.stream.socket().set_nonblocking(false).unwrap();
        sent
    }

    /// The next request's bytes; none at the end of the connection.
    pub(crate) fn request(&mut self) -> Option<Vec<u8>> {
        let mut framer = RequestFramer::new(FrameLimits::default());
        let (mut at, mut buffer) = (0, [0; 4096]);
        loop {
            let advance = framer.advance(&self.input[at..]).unwrap();
            at += advance.consumed;
            if advance.is_complete {
                return Some(self.input.drain(..at).collect());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => {
                    return None;
                }
                Err(error) => panic!("the fake server read {error}"),
            }
        }
    }

    /// Reads a request, which must contain this text.
    pub(crate) fn expect(&mut self, text: &str) {
        let request = self.request().expect("a request");
        let request = String::from_utf8_lossy(&request).into_owned();
        assert!(request.contains(text), "{request:?} has no {text:?}");
    }

    /// Waits until the client gives up the handshake; drops the bytes that it sends for that.
    pub(crate) fn expect_refusal(&mut self) {
        loop {
            match self.stream.read(&mut [0; 4096]) {
                Ok(0) => return,
                Ok(_) => assert!(matches!(self.stream, Wire::Plain(_)), "the client completed the handshake"),
                Err(error) => {
                    let expected = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                    assert!(expected.contains(&error.kind()), "the fake server read {error}");
                    return;
                }
            }
        }
    }

    /// Waits until the client closes.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.request(), None, "a request where none was to come");
    }
}

impl Wire {
    fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(room),
            Wire::Tls(stream) => stream.read(room),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}

fn server_config(pair: &Pair) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

/// A script.
pub(crate) fn script(run: impl FnOnce(&mut Peer) + Send + 'static) -> Script {
    Box::new(run)
}
